//! nginx's error log.

use crate::basic::event_loop::EventLoop;
use crate::basic::handle::fields;
use crate::sys::{NGX_MAX_ERROR_STR, global, ngx_log_error_core, ngx_log_t, ngx_uint_t};
use std::fmt::{Arguments, Write};
use std::os::fd::BorrowedFd;
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// How much a line matters; nginx drops lines that matter less than `error_log` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// nginx cannot start.
    Emerg = crate::sys::NGX_LOG_EMERG as u8,
    /// Somebody has to look at it now.
    Alert = crate::sys::NGX_LOG_ALERT as u8,
    /// A request failed.
    Error = crate::sys::NGX_LOG_ERR as u8,
    /// Something is not as it should be.
    Warn = crate::sys::NGX_LOG_WARN as u8,
    /// A change of state.
    Notice = crate::sys::NGX_LOG_NOTICE as u8,
    /// All else.
    Info = crate::sys::NGX_LOG_INFO as u8,
}

crate::basic::handle::handle! {
    /// A log of nginx's: of the cycle, of a connection, of a thread.
    Log of ngx_log_t
}

fields! { Log {
    /// The log that gets the same lines, as far as its level asks for them.
    option next: Log = next;
}}

/// Makes something else of a line, which comes without its end; `None`: it is fine as it is. Any thread calls it.
pub type Rewrite = fn(&[u8]) -> Option<String>;

static REWRITE: OnceLock<Rewrite> = OnceLock::new();

/// What is left of a line of nginx's after what it writes in front.
const LINE_BYTES: usize = NGX_MAX_ERROR_STR as usize - b"1970/01/01 00:00:00 [info] 1#1: ".len();

/// Writes a line to the log of the running cycle, as [`Log::write`]: what belongs to no connection. Any thread calls it.
pub fn write(level: Level, line: Arguments<'_>) {
    Log::of_cycle().write(level, line);
}

impl Log {
    /// The log of the running cycle, which nobody keeps for longer than a callback.
    #[inline]
    pub(crate) fn of_cycle<'c>() -> &'c Log {
        // SAFETY: nginx sets `ngx_cycle` before it loads a module, and a cycle has a log. It goes after the next one has come,
        // between two callbacks; threads end with their process before.
        unsafe { Log::from_ptr((*global!(ngx_cycle)).log) }
    }

    /// Whether lines of that level are written.
    #[inline]
    pub fn takes(&self, level: Level) -> bool {
        self.peek(|log| log.log_level >= level as ngx_uint_t)
    }

    /// Passes lines through `rewrite` before they are written, those of nginx itself among them: of this log, of all that get
    /// the same lines, and of connections that begin later. Logs that are no files are left alone. A process has one `rewrite`.
    pub fn rewrite_lines(&self, _: EventLoop, rewrite: Rewrite) {
        REWRITE.get_or_init(|| rewrite);
        let mut log = Some(self);
        while let Some(this) = log {
            this.poke(|raw| raw.writer = raw.writer.or(Some(write_line)));
            log = this.next();
        }
    }

    /// nginx writes the lines itself again, as before [`Log::rewrite_lines`]: this library is about to be unloaded, and nginx
    /// may have lines to write after that.
    pub fn leave_lines(&self, _: EventLoop) {
        let mut log = Some(self);
        while let Some(this) = log {
            let is_ours = |writer: &Writer| std::ptr::fn_addr_eq(*writer, write_line as Writer);
            this.poke(|raw| raw.writer = raw.writer.filter(|writer| !is_ours(writer)));
            log = this.next();
        }
    }

    /// Writes a line, cut to nginx's length, if its level asks for it. nginx adds what it knows of the connection.
    ///
    /// The line is written as it is: a caller that shows what others sent escapes it.
    pub fn write(&self, level: Level, line: Arguments<'_>) {
        if !self.takes(level) {
            return;
        }
        let mut text = Line { bytes: [0; LINE_BYTES], length: 0 };
        // Nothing can be done about a value that does not let itself be shown.
        let _ = text.write_fmt(line);
        let (level, log) = (level as ngx_uint_t, self.as_ptr());
        // SAFETY: `%*s` takes a length and a pointer to so many bytes, which the buffer has.
        unsafe {
            ngx_log_error_core(level, log, 0, c"%*s".as_ptr(), text.length, text.bytes.as_ptr());
        }
    }
}

type Writer = unsafe extern "C" fn(*mut ngx_log_t, ngx_uint_t, *mut u8, usize);

/// nginx's callback for a line that is complete.
unsafe extern "C" fn write_line(log: *mut ngx_log_t, _: ngx_uint_t, line: *mut u8, length: usize) {
    // SAFETY: nginx gives a log that has a file, which it keeps open if it has opened it, and a line of so many bytes.
    let (file, line) = unsafe {
        let descriptor = (*(*log).file).fd;
        if descriptor < 0 {
            return;
        }
        (BorrowedFd::borrow_raw(descriptor), std::slice::from_raw_parts(line, length))
    };
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    // Nobody can be told of a panic here: the line would come by here again.
    let rewritten = catch_unwind(|| REWRITE.get().and_then(|rewrite| rewrite(text)));
    // As nginx has it, a line that cannot be written is lost.
    let _ = match rewritten.ok().flatten() {
        None => rustix::io::write(file, line),
        Some(mut text) => {
            text.push('\n');
            rustix::io::write(file, text.as_bytes())
        }
    };
}

/// Text of limited length; what is beyond is dropped.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let taken = text.len().min(room.len());
        if let (Some(room), Some(text)) = (room.get_mut(..taken), text.as_bytes().get(..taken)) {
            room.copy_from_slice(text);
        }
        self.length += taken;
        Ok(())
    }
}
