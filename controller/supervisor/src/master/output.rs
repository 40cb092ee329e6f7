//! Where nginx writes its logs: nginx writes them on its event loop, so its standard output and error must not block.
//!
//! A pipe or terminal whose reader stalls then loses lines instead of requests. `O_NONBLOCK` belongs to an open file,
//! which other programs may share, so nginx gets one of its own. What cannot be opened again,
//! such as a socket, gets the flag itself; this program waits by `poll` where it writes. Files that nginx opens by name, such as
//! `/dev/stdout` for the access log, are the module's part.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use std::process::Stdio;

/// What nginx gets in place of a descriptor of this process.
pub fn for_nginx(own: BorrowedFd<'_>) -> Stdio {
    match fstat(own).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Fifo | FileType::CharacterDevice) => {
            open_again(own).map_or_else(|| shared(own), Stdio::from)
        }
        Ok(FileType::Socket) => shared(own),
        _ => Stdio::inherit(),
    }
}

fn shared(own: BorrowedFd<'_>) -> Stdio {
    let _ = fcntl_getfl(own).and_then(|flags| fcntl_setfl(own, flags | OFlags::NONBLOCK));
    Stdio::inherit()
}

/// `None`: it is another user's.
fn open_again(own: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags =
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(format!("/proc/self/fd/{}", own.as_raw_fd()), flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Write};
    use std::os::fd::AsFd;
    use std::process::Command;

    /// A pipe that takes no more, and that blocks whoever writes.
    fn full() -> (PipeReader, std::io::PipeWriter) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let flags = fcntl_getfl(writer.as_fd()).unwrap();
        fcntl_setfl(writer.as_fd(), flags | OFlags::NONBLOCK).unwrap();
        while writer.write(&[b'x'; 4_096]).is_ok() {}
        fcntl_setfl(writer.as_fd(), flags).unwrap();
        (reader, writer)
    }

    #[test]
    fn a_child_does_not_wait_for_a_reader_that_stalls() {
        let (_reader, writer) = full();
        let mut child = Command::new("dd");
        child.args(["if=/dev/zero", "bs=1", "count=1"]).stderr(Stdio::null());
        let status = child.stdout(for_nginx(writer.as_fd())).status().unwrap();
        assert!(!status.success(), "the write into a full pipe was refused, not awaited");
        let flags = fcntl_getfl(writer.as_fd()).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "the flag is the child's alone");
    }
}
