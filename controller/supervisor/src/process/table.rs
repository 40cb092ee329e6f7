//! The table of processes, read from /proc: what the system calls for waiting do not tell.

use rustix::process::Pid;

/// A process as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: Pid,
    /// Its parent's; 0 for the first process.
    pub parent: i32,
    /// The id of the process group.
    pub group: i32,
    /// Dead, and nobody has waited for it.
    pub is_zombie: bool,
}

/// All processes that this one may see.
pub fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        // One that ends meanwhile is not there.
        parse(pid, &std::fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// `stat`: id, name in parentheses, state, parent, group, and more.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    // The name may hold anything, parentheses included.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, group, is_zombie })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_name_does_not_confuse_the_fields_after_it() {
        let pid = getpid();
        let found = parse(pid, "7 (a) b (c) Z 1 5 5 0").unwrap();
        assert_eq!(found, Process { pid, parent: 1, group: 5, is_zombie: true });
    }

    #[test]
    fn a_child_is_seen_and_is_a_zombie_until_it_is_waited_for() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let own = getpid().as_raw_nonzero().get();
        let look = || all().find(|process| process.pid == pid);
        let found = look().unwrap();
        assert_eq!((found.parent, found.group), (own, pid.as_raw_nonzero().get()));
        kill_process(pid, Signal::KILL).unwrap();
        while !look().unwrap().is_zombie {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(look(), None);
    }
}
