//! Log lines: one event, one line (security.md §10).

use tracing_subscriber::EnvFilter;

/// Longest text in a line that comes from users.
const MAX_BYTES: usize = 1_024;

/// Each of their warnings is an error to us, which is told once.
const OTHERS: &str = "kube_client=error,kube_runtime=error";

/// Control bytes escaped, cut where it gets too long.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if line.len() > MAX_BYTES {
            line.push('…');
            break;
        }
        match c {
            '\t' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// Starts logging to standard error. `verbosity` is klog's `-v`: 2 and more is debug, 5 and more trace.
pub fn start(verbosity: u8) {
    let level = match verbosity {
        0 | 1 => "info",
        2..=4 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("OXIGRESS_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,{OTHERS},oxigress={level}")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_in_user_text_stays_in_its_line() {
        assert_eq!(one_line("a\nb\u{7f}"), "a\\nb\\u{7f}");
        assert!(one_line(&"é".repeat(5_000)).len() < 1_100);
    }
}
