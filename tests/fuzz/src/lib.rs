//! Properties of parsers, tried on inputs that are made from valid ones.
//!
//! Shape:   a target is a test that calls [`check`] with seeds and a property, which panics where it does not hold. As
//!          a plain test the inputs are made by chance, always the same ones; with the feature `coverage`
//!          (`nginx-build/checks/fuzz`, `make soak`) libFuzzer makes them and keeps those that reach new code.
//! Units:   `OXIGRESS_FUZZ_RUNS` inputs, or `OXIGRESS_FUZZ_SECONDS`; `OXIGRESS_FUZZ_SEED` chooses others.
//! Errors:  an input without the property is kept in `target/fuzz/NAME.input` and told, with the command that tries it
//!          again (`OXIGRESS_FUZZ_INPUT`).
//! Rejected: cargo-fuzz, which wants a nightly compiler: what it needs of it (`sancov`) stable has too, but for
//!          AddressSanitizer, and the parsers forbid unsafe code. bolero and proptest see no coverage on stable.

#[cfg(feature = "coverage")]
mod coverage;
mod mutation;
pub mod seeds;

pub use mutation::{Random, of as mutation};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The folder where inputs without their property are kept.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/fuzz");
/// Without other words: some seconds for all targets together, unoptimised.
const RUNS: u64 = 3_000;
/// The longest input that is made, in bytes.
const MAX_BYTES: usize = 16 * 1024;
/// As much of an input as is told.
const TOLD_BYTES: usize = 400;

/// Tries `property` on all seeds, and on what is made of them. A property panics where it does not hold.
pub fn check(name: &'static str, seeds: &[Vec<u8>], property: fn(&[u8])) {
    assert!(!seeds.is_empty(), "{name} has no seeds");
    if let Ok(path) = std::env::var("OXIGRESS_FUZZ_INPUT") {
        let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        println!("fuzz {name}: {} bytes of {path}", input.len());
        return property(&input);
    }
    seeds.iter().for_each(|seed| try_one(name, "a seed", seed, property));
    #[cfg(feature = "coverage")]
    coverage::run(name, seeds, property);
    #[cfg(not(feature = "coverage"))]
    by_chance(name, seeds, property);
}

#[cfg_attr(feature = "coverage", allow(dead_code, reason = "libFuzzer makes the inputs"))]
fn by_chance(name: &'static str, seeds: &[Vec<u8>], property: fn(&[u8])) {
    let seed = number("OXIGRESS_FUZZ_SEED").unwrap_or(1);
    let time = number("OXIGRESS_FUZZ_SECONDS").map(Duration::from_secs);
    let runs = number("OXIGRESS_FUZZ_RUNS").unwrap_or(if time.is_some() { u64::MAX } else { RUNS });
    let (mut random, start, mut run) = (Random::new(seed), Instant::now(), 0);
    while run < runs && time.is_none_or(|time| start.elapsed() < time) {
        let input = mutation::of(&mut random, seeds);
        try_one(name, &format!("OXIGRESS_FUZZ_SEED={seed}, input {run}"), &input, property);
        run += 1;
    }
    println!("fuzz {name}: {run} inputs of {} seeds, OXIGRESS_FUZZ_SEED={seed}", seeds.len());
}

/// Keeps and tells an input that does not have the property.
fn try_one(name: &str, from: &str, input: &[u8], property: fn(&[u8])) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(input))) else { return };
    let path = folder().join(format!("{name}.input"));
    std::fs::write(&path, input).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let told = input.get(..TOLD_BYTES).unwrap_or(input).escape_ascii();
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    eprintln!("fuzz {name}: {from}, {} bytes: {told}", input.len());
    eprintln!("again: OXIGRESS_FUZZ_INPUT={} cargo test -p {package} fuzz_{name}", path.display());
    resume_unwind(panic)
}

fn folder() -> PathBuf {
    std::fs::create_dir_all(FOLDER).unwrap_or_else(|error| panic!("{FOLDER}: {error}"));
    PathBuf::from(FOLDER).canonicalize().unwrap_or_else(|error| panic!("{FOLDER}: {error}"))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// What separates the fields of an input: a byte that no text has.
pub const SEPARATOR: u8 = 0xff;

/// The fields of an input; those that are not there are empty.
pub fn fields<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut all = input.splitn(N, |byte| *byte == SEPARATOR);
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

/// An input of these fields.
pub fn joined(fields: &[&str]) -> Vec<u8> {
    fields.iter().map(|field| field.as_bytes()).collect::<Vec<_>>().join(&SEPARATOR)
}
