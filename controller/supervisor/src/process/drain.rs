//! The time between the wish that this program ends and its end: everything is served as before, and whoever looks at
//! its health sends new clients elsewhere.
//!
//! Each role waits by itself: as two containers both get SIGTERM from the kubelet, as children of one process from it.

use super::signals::{SAME, Signals};
use std::future::pending;
use std::time::Duration;
use tokio::time::Instant;

/// The wait for an end.
pub struct Drain {
    period: Duration,
    asked_at: Option<Instant>,
}

/// What becomes of a wish for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownRequest {
    /// A signal asks for the end, and the grace period begins.
    Heard,
    /// It is the one that was heard just now, told twice: by a terminal and by the script in it.
    Same,
    /// Nothing is waited for, or no more.
    EndNow,
}

impl Drain {
    /// As `--shutdown-grace-period` says.
    pub fn of(period: Duration) -> Self {
        Drain { period, asked_at: None }
    }

    /// A signal asks for the end.
    pub fn ask(&mut self, now: Instant) -> ShutdownRequest {
        match self.asked_at {
            _ if self.period.is_zero() => ShutdownRequest::EndNow,
            Some(first) if now < first + SAME => ShutdownRequest::Same,
            Some(_) => ShutdownRequest::EndNow,
            None => {
                let seconds = self.period.as_secs();
                tracing::info!(
                    "shutdown requested: reporting not ready and serving for {seconds} s"
                );
                self.asked_at = Some(now);
                ShutdownRequest::Heard
            }
        }
    }

    /// Waits until the period is over, for ever before it has begun.
    pub async fn over(&self) {
        match self.end() {
            Some(end) => tokio::time::sleep_until(end).await,
            None => pending().await,
        }
    }

    /// A period that no clock can hold has none.
    fn end(&self) -> Option<Instant> {
        self.asked_at?.checked_add(self.period)
    }
}

/// Waits for the end: of the signal, and of the period after it. `begin` is called between the two.
pub async fn until_end(period: Duration, signals: &mut Signals, begin: impl Fn()) {
    let mut drain = Drain::of(period);
    loop {
        tokio::select! {
            () = signals.stop() => match drain.ask(Instant::now()) {
                ShutdownRequest::EndNow => return begin(),
                ShutdownRequest::Heard => begin(),
                ShutdownRequest::Same => {}
            },
            () = drain.over() => return,
        }
    }
}

/// Stays for that long after the end of nginx, or until a signal.
pub async fn linger(period: Duration, signals: &mut Signals) {
    if period.is_zero() {
        return;
    }
    let seconds = period.as_secs();
    tracing::info!("nginx has stopped; exiting in {seconds} s (--post-shutdown-grace-period)");
    tokio::select! {
        () = tokio::time::sleep(period) => {}
        () = signals.stop_again() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_is_told_twice_is_one_and_the_next_one_ends_the_wait() {
        let mut drain = Drain::of(Duration::from_secs(30));
        let start = Instant::now();
        assert_eq!(
            [drain.ask(start), drain.ask(start)],
            [ShutdownRequest::Heard, ShutdownRequest::Same]
        );
        assert_eq!(drain.end(), Some(start + Duration::from_secs(30)));
        assert_eq!(drain.ask(start + SAME), ShutdownRequest::EndNow);
    }

    #[test]
    fn without_a_period_there_is_no_wait() {
        let mut drain = Drain::of(Duration::ZERO);
        assert_eq!((drain.ask(Instant::now()), drain.end()), (ShutdownRequest::EndNow, None));
        let mut longer_than_clocks = Drain::of(Duration::MAX);
        assert_eq!(longer_than_clocks.ask(Instant::now()), ShutdownRequest::Heard);
        assert_eq!(longer_than_clocks.end(), None);
    }
}
