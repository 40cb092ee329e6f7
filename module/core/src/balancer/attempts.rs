//! How many attempts a request may still make.
//!
//! A request goes to each endpoint once. A route may ask for more (`retry` of the Gateway API): when all endpoints have been
//! tried, they are tried again, at most [`MAX_REPEATED`] times in all.
//! Units:   attempts at endpoints.

use crate::http::head::ATTEMPTS_AGAIN;

/// The most attempts of a request at endpoints that it has tried before. A route may ask for thousands, and each of them is a
/// request to somebody, made at once.
pub const MAX_REPEATED: usize = 10;
/// The most attempts of a request, whoever asks for more. Each looks for an endpoint among all, and those that fail at once keep the
/// worker from all others: a thousand would take a second.
pub const MAX_ATTEMPTS: usize = 100;
/// The most attempts of a request that fail in one millisecond, which is the least time between two turns of the event loop:
/// connections for which there is no route fail in the turn in which they are made.
const MAX_IN_TURN: usize = 20;

/// The attempts of a request that have failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    failed: usize,
    /// How many had failed when all endpoints had been tried; `None`: there are others.
    first_round: Option<usize>,
    /// The time at which the last one failed, in milliseconds, and how many failed then.
    turn: u64,
    in_turn: usize,
}

/// What bounds the attempts of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// `proxy_next_upstream_tries`: the most attempts, the first one included; 0: [`MAX_ATTEMPTS`].
    pub limit: usize,
    /// The request has passed through this gateway before.
    pub has_passed_before: bool,
    /// Endpoints that were tried may be tried again.
    pub may_repeat: bool,
}

impl Attempts {
    /// How many have failed.
    #[inline]
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// One more has failed, at this time of the event loop in milliseconds.
    pub fn fail(&mut self, turn: u64) {
        self.failed = self.failed.saturating_add(1);
        self.in_turn = if self.turn == turn { self.in_turn.saturating_add(1) } else { 1 };
        self.turn = turn;
    }

    /// All endpoints have been tried: whatever follows is repeated.
    pub fn begin_round(&mut self) {
        self.first_round.get_or_insert(self.failed);
    }

    /// How many more may be made, when `untried` endpoints are left; one that is under way counts among both.
    #[inline]
    pub fn left(&self, untried: usize, bounds: &Bounds) -> usize {
        if self.in_turn >= MAX_IN_TURN {
            return 0;
        }
        let limit = match bounds.limit {
            // Asked after a failure alone: the first attempt is every request's.
            0 | ATTEMPTS_AGAIN.. if self.failed > 0 && bounds.has_passed_before => ATTEMPTS_AGAIN,
            0 => MAX_ATTEMPTS,
            limit => limit.min(MAX_ATTEMPTS),
        };
        let reachable = match (bounds.may_repeat, self.first_round) {
            (false, _) => untried,
            (true, None) => untried.saturating_add(MAX_REPEATED),
            (true, Some(first)) => (first + MAX_REPEATED).saturating_sub(self.failed),
        };
        reachable.min(limit.saturating_sub(self.failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attempts that a request makes at so many endpoints, all of which fail.
    fn made(endpoints: usize, bounds: &Bounds) -> usize {
        let (mut attempts, mut tried) = (Attempts::default(), 0);
        for turn in 0.. {
            if tried == endpoints {
                if !bounds.may_repeat || attempts.left(0, bounds) == 0 {
                    return attempts.failed();
                }
                attempts.begin_round();
                tried = 0;
            }
            let untried = endpoints - tried;
            assert!(attempts.left(untried, bounds) > 0, "{attempts:?}");
            attempts.fail(turn);
            tried += 1;
            if attempts.left(untried - 1, bounds) == 0 {
                return attempts.failed();
            }
        }
        unreachable!("they end")
    }

    #[test]
    fn attempts_that_fail_at_once_keep_the_event_loop_for_twenty_of_them() {
        let (mut attempts, bounds) = (Attempts::default(), Bounds::default());
        for turn in [1, 2] {
            for _ in 0..19 {
                attempts.fail(turn);
                assert!(attempts.left(1_000, &bounds) > 0, "{attempts:?}");
            }
        }
        attempts.fail(2);
        assert_eq!(attempts.left(1_000, &bounds), 0);
    }

    #[test]
    fn each_endpoint_is_tried_once() {
        for (limit, expected) in [(0, 5), (1, 1), (3, 3), (9, 5)] {
            assert_eq!(made(5, &Bounds { limit, ..Bounds::default() }), expected, "{limit}");
        }
    }

    #[test]
    fn endpoints_are_tried_again_while_the_limit_leaves_attempts_and_ten_times_at_most() {
        for (endpoints, limit, expected) in [
            (1, 4, 4),
            (2, 3, 3),
            (2, 7, 7),
            (5, 3, 3),
            (1, 65_536, 11),
            (3, 0, 13),
            (20, 0, 30),
            (99, 0, 100),
            (1_000, 65_536, 100),
        ] {
            let bounds = Bounds { limit, may_repeat: true, has_passed_before: false };
            assert_eq!(made(endpoints, &bounds), expected, "{endpoints} endpoints, {limit}");
        }
    }

    #[test]
    fn a_request_that_has_passed_before_has_three_attempts_whatever_is_repeated() {
        for may_repeat in [false, true] {
            for (limit, expected) in [(0, 3), (2, 2), (100, 3)] {
                let bounds = Bounds { limit, may_repeat, has_passed_before: true };
                assert_eq!(made(5, &bounds), expected, "{limit}");
            }
        }
        let bounds = Bounds { limit: 100, may_repeat: true, has_passed_before: true };
        assert_eq!(made(1, &bounds), 3);
    }
}
