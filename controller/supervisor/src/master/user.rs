//! Whom nginx's workers run as.
//!
//! Under root they become [`WORKER_USER`], who cannot enter the runtime folder: its sockets, keys and
//! nginx.conf stay root's. Temporary files go to a folder of the workers' own, which is nginx's working
//! directory, so that paths relative to it need no way through the runtime folder.

use anyhow::Context;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

/// Exists on every system that has users at all.
const WORKER_USER: &str = "nobody";

/// Makes the workers' folder; answers their user and group if this process runs as root.
pub fn prepare(folder: &Path) -> anyhow::Result<Option<(String, String)>> {
    let context = || format!("{}", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(context)?;
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let group = fs::read_to_string("/etc/group").context("/etc/group")?;
    let (uid, gid, group) = look_up(&passwd, &group, WORKER_USER).with_context(|| {
        format!("there is no user {WORKER_USER} with a group: create it or do not run as root")
    })?;
    chown(folder, Some(uid), Some(gid)).with_context(context)?;
    Ok(Some((WORKER_USER.into(), group)))
}

/// Uid, gid and the group's name, from the two files.
fn look_up(passwd: &str, group: &str, user: &str) -> Option<(u32, u32, String)> {
    let entry = |text: &str, at: usize, value: &str| {
        let mut lines =
            text.lines().map(|line| line.split(':').map(String::from).collect::<Vec<_>>());
        lines.find(|fields| fields.get(at).is_some_and(|field| field == value))
    };
    let user = entry(passwd, 0, user)?;
    let (uid, gid) = (user.get(2)?.parse().ok()?, user.get(3)?);
    let group = entry(group, 2, gid)?.into_iter().next()?;
    Some((uid, gid.parse().ok()?, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_group_of_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        let group = "root:x:0:\nnogroup:x:65533:\n";
        assert_eq!(look_up(passwd, group, "nobody"), Some((65534, 65533, "nogroup".into())));
        assert_eq!(look_up(passwd, "root:x:0:\n", "nobody"), None);
    }
}
