//! How long a change takes from the moment the source told it until nginx has answered that it is live.
//!
//! Shape:   batches wait until they are under way in a request; what a refused or lost request carried waits again.
//! Units:   seconds, as Prometheus wants them.

use oxigress_core::telemetry::metrics::number;
use oxigress_dashboard::LiveChange;
use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::Instant;

/// Upper bounds, in seconds: around the budget of 20 ms, and up to an outage.
const BOUNDS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// Batches that are told apart while nothing becomes live; the oldest count.
const MOST: usize = 10_000;

/// So many of the last changes are told one by one.
const RECENT: usize = 60;

/// The histogram, and what is on its way into it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeToLive {
    waiting: Vec<Instant>,
    under_way: Vec<Instant>,
    /// By bound, each by itself; the last is what is longer than all.
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
    /// When the last ones became live, and how long they took; the newest last.
    recent: VecDeque<(Instant, Duration)>,
}

impl ChangeToLive {
    /// The source told something then, and nginx is to be told of it.
    pub fn saw(&mut self, at: Instant) {
        if self.waiting.len() < MOST {
            self.waiting.push(at);
        }
    }

    /// All of it is sent now.
    pub fn sent(&mut self) {
        self.under_way.append(&mut self.waiting);
    }

    /// What was sent is live, or has to be sent again.
    pub fn answered(&mut self, is_live: bool, now: Instant) {
        if !is_live {
            self.waiting.append(&mut self.under_way);
            return;
        }
        for at in std::mem::take(&mut self.under_way) {
            self.count(now, now.saturating_duration_since(at));
        }
    }

    fn count(&mut self, now: Instant, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.sum += seconds;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((now, took));
    }

    /// The last changes as they are now, the newest last.
    pub fn recent(&self, now: Instant) -> Vec<LiveChange> {
        let change = |(at, took): &(Instant, Duration)| LiveChange {
            ago_seconds: now.saturating_duration_since(*at).as_secs_f64(),
            seconds: took.as_secs_f64(),
        };
        self.recent.iter().map(change).collect()
    }

    /// The lines of `/metrics`.
    pub fn text(&self, constant: &str) -> String {
        const NAME: &str = "oxigress_change_to_live_seconds";
        let mut out = format!(
            "# HELP {NAME} Time from a change that the source told to its being live in nginx\n\
             # TYPE {NAME} histogram\n"
        );
        let comma = if constant.is_empty() { "" } else { "," };
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(|bound| number(*bound)).chain(["+Inf".into()]);
        for (bound, count) in bounds.zip(self.counts) {
            sum += count;
            let _ = writeln!(out, "{NAME}_bucket{{{constant}{comma}le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(out, "{NAME}_sum{{{constant}}} {}", number(self.sum));
        let _ = writeln!(out, "{NAME}_count{{{constant}}} {sum}");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_when_it_is_live_from_when_it_was_seen() {
        let mut live = ChangeToLive::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        live.saw(start);
        live.sent();
        live.saw(after(30));
        // The request was lost: both go out together.
        live.answered(false, after(31));
        live.sent();
        live.answered(true, after(38));
        live.answered(true, after(39));
        let text = live.text("a=\"b\"");
        for line in [
            "oxigress_change_to_live_seconds_bucket{a=\"b\",le=\"0.005\"} 0",
            "oxigress_change_to_live_seconds_bucket{a=\"b\",le=\"0.01\"} 1",
            "oxigress_change_to_live_seconds_bucket{a=\"b\",le=\"0.05\"} 2",
            "oxigress_change_to_live_seconds_bucket{a=\"b\",le=\"+Inf\"} 2",
            "oxigress_change_to_live_seconds_count{a=\"b\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let sum = text
            .lines()
            .find_map(|line| line.strip_prefix("oxigress_change_to_live_seconds_sum{a=\"b\"} "));
        assert!((sum.unwrap().parse::<f64>().unwrap() - 0.046).abs() < 1e-9, "{text}");
        let recent = live.recent(after(1_038));
        let expected = LiveChange { ago_seconds: 1.0, seconds: 0.008 };
        assert_eq!((recent.len(), recent.first()), (2, Some(&expected)));
    }
}
