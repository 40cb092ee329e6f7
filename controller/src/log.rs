//! Log lines: one event, one line, which never costs more than itself.
//!
//! Every line of this program passes [`Line`]: it escapes what could end or disguise the line, so that no call site
//! can forget to. A thread writes the lines ([`queue`]): a standard error that is gone, full or not read loses lines,
//! and nothing waits for it.

mod queue;

use oxigress_core::text::line::one_line_within;
use queue::Queue;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The longest line, but for what stands behind its cut: a pipe takes no more than 4,096 bytes as one (`PIPE_BUF`), so that no
/// line of nginx, which has the same pipe, gets into it.
const MAX_LINE_BYTES: usize = 4_096 - 64;
/// How long the end of the program waits for its last lines.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Warnings of these crates are failures that this program reports itself.
const OTHERS: &str = "kube_client=off,kube_runtime=error";

static QUEUE: Queue = Queue::new();

/// Who reads the lines on standard error, which decides whether they have the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The program runs for months: each line has the time.
    Log,
    /// A person waits for a command to end: no line has the time.
    Person,
}

/// Starts logging to standard error. `verbosity` is klog's `-v`: 2 and more is debug, 5 and more trace.
pub fn start(verbosity: u8, audience: Audience) {
    let level = match verbosity {
        0 | 1 => "info",
        2..=4 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("OXIGRESS_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,{OTHERS},oxigress={level}")));
    QUEUE.start();
    std::panic::set_hook(Box::new(panicked));
    let lines = Lines { queue: &QUEUE, has_colours: io::stderr().is_terminal() };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(lines);
    match audience {
        Audience::Log => subscriber.init(),
        Audience::Person => subscriber.without_time().init(),
    }
}

/// Waits until the last lines are written, but not for a standard error that takes none.
pub fn finish() {
    QUEUE.flush(LAST_LINES);
}

/// Reports a panic as one line of the log. The standard hook would wait for standard error.
fn panicked(info: &PanicHookInfo<'_>) {
    let why = info.payload_as_str().unwrap_or("without a message");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => {
            tracing::error!("panicked at {place}, which is a bug: {why}: {trace}")
        }
        _ => tracing::error!("panicked at {place}, which is a bug: {why}"),
    }
    finish();
}

/// Makes a [`Line`] for each event.
struct Lines<'q> {
    queue: &'q Queue,
    has_colours: bool,
}

impl<'w, 'q: 'w> MakeWriter<'w> for Lines<'q> {
    type Writer = Line<'q>;

    fn make_writer(&'w self) -> Line<'q> {
        Line { queue: self.queue, bytes: Vec::new(), level: None }
    }

    fn make_writer_for(&'w self, event: &Metadata<'_>) -> Line<'q> {
        let level = self.has_colours.then(|| *event.level());
        Line { queue: self.queue, bytes: Vec::new(), level }
    }
}

/// One line: what is written here before the value is dropped.
struct Line<'q> {
    queue: &'q Queue,
    bytes: Vec<u8>,
    /// The level whose name is coloured, on a terminal.
    level: Option<Level>,
}

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut line = one_line_within(text, MAX_LINE_BYTES);
        if let Some(level) = self.level {
            // The time before it holds no such word.
            line = line.replacen(level.as_str(), coloured(level), 1);
        }
        line.push('\n');
        self.queue.push(line);
    }
}

/// The name of a level in the colours of `tracing-subscriber`.
fn coloured(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31mERROR\u{1b}[0m",
        Level::WARN => "\u{1b}[33mWARN\u{1b}[0m",
        Level::INFO => "\u{1b}[32mINFO\u{1b}[0m",
        Level::DEBUG => "\u{1b}[34mDEBUG\u{1b}[0m",
        Level::TRACE => "\u{1b}[35mTRACE\u{1b}[0m",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::text::line::is_special;
    use proptest::prelude::*;

    /// What is logged while `act` runs.
    fn logged(has_colours: bool, act: impl FnOnce()) -> String {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .with_writer(Lines { queue, has_colours })
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        queue.take().concat()
    }

    #[test]
    fn a_line_is_written_to_a_pipe_in_one_piece() {
        const PIPE_BUF: usize = 4_096;
        for text in ["x", "é", "\u{10ffff}", "\n", "\u{1f600}"] {
            let line = logged(true, || tracing::error!("{}", text.repeat(20_000)));
            assert!((3_900..=PIPE_BUF).contains(&line.len()), "{} bytes", line.len());
            assert!(line.ends_with("…\n"), "{line}");
        }
    }

    #[test]
    fn only_the_level_of_a_line_has_a_colour() {
        let line = logged(true, || tracing::warn!("WARN \u{1b}[2J"));
        assert!(line.contains("\u{1b}[33mWARN\u{1b}[0m"), "{line:?}");
        assert_eq!(line.matches('\u{1b}').count(), 2, "{line:?}");
    }

    proptest! {
        #[test]
        fn an_event_is_one_line_wherever_the_text_stands(
            middle in "[\\n\\r\u{1b}\u{85}\u{2028}\u{202e}\u{2066}\u{200f}a]{1,9}", end: String
        ) {
            let text = format!("{middle}{end}");
            let path = std::path::Path::new(&text);
            let log = logged(false, || {
                let span = tracing::error_span!("span", field = %text);
                let _inside = span.enter();
                tracing::error!("message {text}");
                tracing::error!(field = %text, other = ?text, "message");
                tracing::error!("{}", path.display());
                tracing::error!("{:#}", anyhow::anyhow!("{text}").context(text.clone()));
            });
            prop_assert_eq!(log.lines().count(), 4, "{:?}", log);
            prop_assert!(!log.replace('\n', "").contains(is_special), "{:?}", log);
        }
    }
}
