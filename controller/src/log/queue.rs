//! Lines that wait for standard error, and the thread that writes them.

use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines that wait take at most so much; further ones are lost.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Lines on their way to standard error.
pub struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines that nobody got since the last report of it.
    lost: u64,
    is_writing: bool,
    has_writer: bool,
}

impl Queue {
    /// An empty queue that nobody writes from.
    pub const fn new() -> Self {
        let lines = VecDeque::new();
        let waiting = Waiting { lines, bytes: 0, lost: 0, is_writing: false, has_writer: false };
        Queue { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that writes to standard error.
    pub fn start(&'static self) {
        let write = move || {
            let mut error = StandardError { is_within_line: false };
            self.write_for_ever(&mut |line| error.write(line));
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(write);
        self.lock().has_writer = thread.is_ok();
    }

    /// Adds a line; never waits.
    pub fn push(&self, line: String) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > MAX_WAITING_BYTES {
            waiting.lost += 1;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        self.changed.notify_all();
    }

    /// Waits until every line is written or lost, at most so long.
    pub fn flush(&self, timeout: Duration) {
        let end = Instant::now() + timeout;
        let mut waiting = self.lock();
        while waiting.has_writer && (waiting.is_writing || !waiting.lines.is_empty()) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write_for_ever(&self, write: &mut dyn FnMut(&str) -> io::Result<()>) {
        loop {
            let mut waiting = self.lock();
            waiting.is_writing = false;
            self.changed.notify_all();
            let line = loop {
                if let Some(line) = waiting.lines.pop_front() {
                    break line;
                }
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            };
            waiting.bytes -= line.len();
            waiting.is_writing = true;
            drop(waiting);
            let is_written = write(&line).is_ok();
            let mut waiting = self.lock();
            if !is_written {
                waiting.lost += 1;
            } else if waiting.lost > 0 {
                let lost = std::mem::take(&mut waiting.lost);
                drop(waiting);
                let lost = oxigress_core::text::count(
                    usize::try_from(lost).unwrap_or(usize::MAX),
                    "log line",
                );
                tracing::warn!("dropped {lost} because standard error was blocked");
            }
        }
    }

    #[cfg(test)]
    pub fn take(&self) -> Vec<String> {
        self.lock().lines.drain(..).collect()
    }
}

/// Standard error, which somebody may have set to non-blocking.
struct StandardError {
    /// A write failed in the middle of a line.
    is_within_line: bool,
}

impl StandardError {
    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.is_within_line {
            write_all(b"\n")?;
        }
        self.is_within_line = true;
        write_all(line.as_bytes())?;
        self.is_within_line = false;
        Ok(())
    }
}

/// Writes all, in one piece as long as it fits; waits for a reader that is slow.
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match io::stderr().write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let error = rustix::stdio::stderr();
                let _ = poll(&mut [PollFd::new(&error, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Writers of these tests run as long as the process.
    fn started(mut write: impl FnMut(&str) -> io::Result<()> + Send + 'static) -> &'static Queue {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        queue.lock().has_writer = true;
        std::thread::spawn(move || queue.write_for_ever(&mut write));
        queue
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_no_time() {
        let (goes_on, stalled) = mpsc::channel::<()>();
        let (written, lines) = mpsc::channel();
        let queue = started(move |line| {
            let _ = stalled.recv();
            let _ = written.send(line.len());
            Ok(())
        });
        let line = "x".repeat(1_000);
        (0..2_000).for_each(|_| queue.push(line.clone()));
        let lost = queue.lock().lost;
        assert!((900..1_100).contains(&lost), "{lost} of 2,000 lines of 1,000 bytes were lost");
        assert!(queue.lock().bytes <= MAX_WAITING_BYTES);
        drop(goes_on);
        let all = (0..2_000 - lost).map(|_| lines.recv().unwrap()).sum::<usize>();
        assert_eq!(all as u64, (2_000 - lost) * 1_000);
    }

    #[test]
    fn the_end_waits_for_the_last_line_but_not_for_one_that_is_refused() {
        let (written, lines) = mpsc::channel();
        let queue = started(move |line| {
            let _ = written.send(line.to_owned());
            Err(io::ErrorKind::BrokenPipe.into())
        });
        queue.push("a\n".into());
        queue.push("b\n".into());
        queue.flush(Duration::from_secs(60));
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["a\n", "b\n"]);
        assert_eq!(queue.lock().lost, 2);
    }
}
