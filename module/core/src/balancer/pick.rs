//! Choosing an endpoint where neither a cookie nor a hash decides.
//!
//! Shape:   the caller shows its endpoints as [`Candidates`]; an answer is an index or, if all are closed,
//!          `None`. Nothing is stored here: the caller keeps turns and requests in flight.
//! Cost:    constant while nothing is closed, [`least_conn`] excepted; linear where something is closed or,
//!          unless [`Candidates::at_weight`] is better than its default, where weights differ.
//! Weights: [`round_robin`] gives each endpoint exactly its weight in turns. The others approach the
//!          weights when endpoints are equally busy and fast: they draw, or break ties, by weight, and compare
//!          requests in flight per weight.
//! Rejected: `(in_flight + 1) / weight` for [`least_conn`] and [`p2c`]. With one request at a time all would
//!          go to the heaviest endpoint.

/// Draws before the open endpoints are counted. With half of them closed, 1 choice in 256 counts.
const DRAWS: u32 = 8;

/// Latencies below this are one: nginx's clock counts milliseconds, so an endpoint that always answers in
/// "0" is not endlessly better than one that needed 1 once.
const CLOCK_SECONDS: f32 = 0.001;

/// The endpoints of a backend as they are for one attempt.
pub trait Candidates {
    /// How many there are, closed ones included.
    fn count(&self) -> usize;
    /// May be chosen in this attempt: not tried, not ejected, below its limit.
    fn is_open(&self, index: usize) -> bool;
    /// The weight of an endpoint, from 1 to 1,000.
    fn weight(&self, index: usize) -> u32;
    /// The number of requests that an endpoint has in flight.
    fn in_flight(&self, index: usize) -> u32;
    /// Moving average in seconds, decayed to now; 0: unknown.
    fn latency(&self, index: usize) -> f32;
    /// Sum of all weights; equal to the count when all are 1.
    fn total_weight(&self) -> u64;

    /// The endpoint at `position` on a line on which each endpoint is as long as its weight.
    fn at_weight(&self, position: u64) -> Option<usize> {
        at_weight_of(self, position, |_| true)
    }
}

/// Each in turn: exactly its weight of every [`Candidates::total_weight`] turns.
///
/// A closed endpoint's turns are dealt to the open ones in turn, and not to its neighbour alone.
#[inline]
pub fn round_robin(c: &impl Candidates, turn: u64) -> Option<usize> {
    let count = c.count() as u64;
    if c.total_weight() != count {
        return weighted_round_robin(c, turn);
    }
    let index = turn.checked_rem(count)?;
    if c.is_open(index as usize) {
        return Some(index as usize);
    }
    let open = (0..c.count()).filter(|index| c.is_open(*index)).count() as u64;
    let place = (turn / count + index).checked_rem(open)?;
    (0..c.count()).filter(|index| c.is_open(*index)).nth(place as usize)
}

#[cold]
fn weighted_round_robin(c: &impl Candidates, turn: u64) -> Option<usize> {
    let total = c.total_weight();
    let position = interleaved(turn, total)?;
    if let Some(index) = c.at_weight(position)
        && c.is_open(index)
    {
        return Some(index);
    }
    let place = (turn / total).wrapping_add(position);
    at_open_weight(c, interleaved(place, open_weight(c))?)
}

/// A position below `total`, each once in `total` turns, neighbours in time far apart in place: steps of
/// the golden section, rounded to a number without a common factor.
fn interleaved(turn: u64, total: u64) -> Option<u64> {
    let turn = turn.checked_rem(total)?;
    let golden = (total as f64 * 0.618_033_988_749_895) as u64;
    let step = (golden.max(1)..total).find(|step| gcd(*step, total) == 1).unwrap_or(1);
    // Below 10,000 endpoints of weight 1,000 nothing overflows.
    Some(turn.checked_mul(step).unwrap_or(turn) % total)
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The fewest requests in flight for its weight; equals in turn.
pub fn least_conn(c: &impl Candidates, turn: u64) -> Option<usize> {
    let mut best: Option<(u32, u32)> = None;
    let mut first = None;
    let mut equals = 0u64;
    for index in (0..c.count()).filter(|index| c.is_open(*index)) {
        let load = (c.in_flight(index), c.weight(index));
        let order = best.map_or(std::cmp::Ordering::Less, |best| compare(load, best));
        if order.is_lt() {
            (best, first) = (Some(load), Some(index));
            equals = 0;
        }
        if order.is_le() {
            equals += u64::from(load.1);
        }
    }
    let best = best?;
    let is_best =
        |index| c.is_open(index) && compare((c.in_flight(index), c.weight(index)), best).is_eq();
    // Other workers count too: what was best may be so no more.
    at_weight_of(c, turn.checked_rem(equals)?, is_best).or(first)
}

/// Orders `in_flight / weight` without dividing.
fn compare(a: (u32, u32), b: (u32, u32)) -> std::cmp::Ordering {
    (u64::from(a.0) * u64::from(b.1)).cmp(&(u64::from(b.0) * u64::from(a.1)))
}

/// The faster of two drawn at random; the first drawn if they are equal. An unknown latency counts as 0,
/// as in the reference: the caller seeds new endpoints ([`super::latency::seed`]).
pub fn ewma(c: &impl Candidates, random: &mut impl FnMut() -> u64) -> Option<usize> {
    let (first, second) = draw_two(c, random)?;
    match second {
        Some(second) if c.latency(second) < c.latency(first) => Some(second),
        _ => Some(first),
    }
}

/// Of two endpoints drawn at random, the one whose next request should end sooner: requests in flight (for its
/// weight) and this one, times latency.
///
/// Latency counts only if it is known for both. Taken as 0 it would flood a new endpoint until its first answer, and
/// forever one that accepts and never answers; a guess would starve or flood an endpoint that is slower or faster. So
/// a new endpoint receives requests by its requests in flight: no more than others have.
pub fn p2c(c: &impl Candidates, random: &mut impl FnMut() -> u64) -> Option<usize> {
    let (first, second) = draw_two(c, random)?;
    let Some(second) = second else { return Some(first) };
    let mean = c.total_weight() as f32 / c.count().max(1) as f32;
    let requests = |index| c.in_flight(index) as f32 * mean / c.weight(index).max(1) as f32 + 1.0;
    let (mut a, mut b) = (requests(first), requests(second));
    let latencies = (c.latency(first), c.latency(second));
    if latencies.0 > 0.0 && latencies.1 > 0.0 {
        a *= latencies.0.max(CLOCK_SECONDS);
        b *= latencies.1.max(CLOCK_SECONDS);
    }
    Some(if b < a { second } else { first })
}

/// An open endpoint drawn by weight, and another one if there is one.
fn draw_two(
    c: &impl Candidates,
    random: &mut impl FnMut() -> u64,
) -> Option<(usize, Option<usize>)> {
    let first = draw(c, random, None)?;
    let second = if c.count() > 1 { draw(c, random, Some(first)) } else { None };
    Some((first, second))
}

/// An open endpoint other than `except`, drawn by weight.
fn draw(
    c: &impl Candidates,
    random: &mut impl FnMut() -> u64,
    except: Option<usize>,
) -> Option<usize> {
    let (count, total) = (c.count() as u64, c.total_weight());
    let is_open = |index: usize| Some(index) != except && index < c.count() && c.is_open(index);
    for _ in 0..DRAWS {
        let position = below(total, random());
        let index = if total == count { Some(position as usize) } else { c.at_weight(position) };
        // Drawing again until one is open is as fair as drawing among the open ones.
        if let Some(index) = index.filter(|index| is_open(*index)) {
            return Some(index);
        }
    }
    let open: u64 =
        (0..c.count()).filter(|index| is_open(*index)).map(|index| weight(c, index)).sum();
    if open == 0 {
        return None;
    }
    at_weight_of(c, below(open, random()), is_open)
}

/// A number below `bound`, from 64 random bits; its bias is below `bound` / 2⁶⁴.
#[inline]
pub fn below(bound: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

fn weight(c: &(impl Candidates + ?Sized), index: usize) -> u64 {
    u64::from(c.weight(index).max(1))
}

fn open_weight(c: &impl Candidates) -> u64 {
    (0..c.count()).filter(|index| c.is_open(*index)).map(|index| weight(c, index)).sum()
}

fn at_open_weight(c: &impl Candidates, position: u64) -> Option<usize> {
    at_weight_of(c, position, |index| c.is_open(index))
}

fn at_weight_of(
    c: &(impl Candidates + ?Sized),
    position: u64,
    counts: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut left = position;
    (0..c.count()).filter(|index| counts(*index)).find(|index| {
        let weight = weight(c, *index);
        let is_here = left < weight;
        left = left.saturating_sub(weight);
        is_here
    })
}

#[cfg(test)]
mod tests;
