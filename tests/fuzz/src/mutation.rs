//! Inputs made by chance: damaged texts, and JSON whose values are exchanged.

use crate::MAX_BYTES;
use serde_json::Value;

/// A generator of pseudo-random numbers: xorshift64*, Vigna 2016.
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, of all 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.number() >> 11) % limit.max(1) as u64) as usize
    }

    /// One of them, of which there is one at least.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// All of them in another order: Fisher and Yates.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }
}

/// What grammars are made of, and what none should take.
#[rustfmt::skip]
pub const PIECES: &[&str] = &[
    "\r\n", "\0", "\r", "\n", "\t", " ", "\u{7f}", "\u{e4}", "\\", "\"", "'", "#", "?", "&", "=", ";", ":", ",", "|",
    "/", "//", "/./", "/../", "..", ".", "%2e%2e", "%2f", "%00", "%0a", "%25", "+", "*", "*.", "~", "~*", "^", "{", "}",
    "$", "$1", "$9", "$10", "${1}", "$uri", "${host}", "$http_x", "$arg_", "$request_uri", "$scheme", "$pid", "${",
    "(", ")", "(?i)", "(?:", "(?!a)", "(?=b)", "\\1", "[a-z]", "[^/]*", ".*", "a|b", "{2,9}", "(a+)+", "\\d", "\\A",
    "http://", "https://", "HTTPS://", "null", "[::1]", "::ffff:10.0.0.1", "0.0.0.0/0", "::/0", "10.0.0.0/8", "/33",
    "$apr1$", "$2y$10$", "$2y$99$", "$6$rounds=", "$5$", "$y$j9T$", "{SHA}", "{PLAIN}", "{SSHA}", "#a:b", "a:",
    "0", "1", "-1", "65536", "18446744073709551616", "1e999", "true", "off", "10m", "60s",
    "domain=", "Path=", "Secure", "localhost", "a.test", "xn--a",
];

/// An input, never empty of sense: one to five places of a seed are changed.
pub fn of(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = random.of(seeds).as_slice();
    let mut input = match random.below(2) {
        0 => exchanged(random, seed, seeds).unwrap_or_else(|| seed.to_vec()),
        _ => seed.to_vec(),
    };
    if random.below(8) > 0 {
        for _ in 0..=random.below(5) {
            damage(random, &mut input, seeds);
        }
    }
    input.truncate(MAX_BYTES);
    input
}

fn damage(random: &mut Random, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = random.below(input.len() + 1);
    let end = (at + 1 + random.below(16)).min(input.len());
    match random.below(8) {
        0 if random.below(4) == 0 => input.truncate(at),
        0 | 1 => drop(input.drain(at..end)),
        2 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        3 if at < input.len() => input[at] = random.number() as u8,
        3 => input.push(random.number() as u8),
        4 => {
            let other = random.of(seeds).as_slice();
            let from = random.below(other.len() + 1);
            let to = (from + random.below(40)).min(other.len());
            input.splice(at..end, other[from..to].iter().copied());
        }
        5 => drop(input.splice(at..end, random.of(PIECES).bytes())),
        _ => drop(input.splice(at..at, random.of(PIECES).bytes())),
    }
}

/// A value of a document exchanged for one of another document, or for something else.
fn exchanged(random: &mut Random, seed: &[u8], seeds: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(seed).ok()?;
    let other = serde_json::from_slice(random.of(seeds).as_slice()).unwrap_or(Value::Null);
    for _ in 0..=random.below(3) {
        *place(random, &mut value) = match random.below(3) {
            0 => {
                let mut other = other.clone();
                place(random, &mut other).take()
            }
            _ => odd(random),
        };
    }
    serde_json::to_vec(&value).ok()
}

/// Chooses a value somewhere within `value`.
fn place<'v>(random: &mut Random, value: &'v mut Value) -> &'v mut Value {
    let children = match value {
        Value::Object(object) => object.len(),
        Value::Array(array) => array.len(),
        _ => 0,
    };
    if children == 0 || random.below(6) == 0 {
        return value;
    }
    let at = random.below(children);
    let child = match value {
        Value::Object(object) => object.values_mut().nth(at),
        Value::Array(array) => array.get_mut(at),
        _ => None,
    };
    match child {
        Some(child) => place(random, child),
        None => unreachable!("{at} is below {children}"),
    }
}

fn odd(random: &mut Random) -> Value {
    let piece = *random.of(PIECES);
    match random.below(9) {
        0 => Value::Null,
        1 => true.into(),
        2 => random.number().into(),
        3 => (random.below(700) as i64 - 1).into(),
        4 => Value::Array(vec![piece.into()]),
        5 => Value::Object([(piece.to_owned(), piece.into())].into_iter().collect()),
        6 => "a".repeat(random.below(9_000)).into(),
        _ => [piece, *random.of(PIECES), *random.of(PIECES)].concat().into(),
    }
}
