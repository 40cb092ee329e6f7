//! One request, while rules ask for its method, headers and parameters.
//!
//! Cost:   its headers and its query are read once, by the first rule that asks. Every value that is looked at is a step of
//!         [`MOST_STEPS`], whatever the number of rules, of paths below each other and of conditions, so that a request
//!         keeps a worker for some 2 milliseconds at most. The expressions of all rules have one budget.
//! Errors: a request that takes more steps has no rule ([`NoAnswer`]).

use crate::model::PATH;
use crate::patterns::{Budget, NoAnswer};
use crate::text::percent::unescape_form;
use std::borrow::Cow;
use std::cell::Cell;

/// A request, as far as rules may ask for something in it beside its path.
pub trait RequestParts {
    /// The method as it was sent.
    fn method(&self) -> &[u8];
    /// The query as it was sent, without its question mark.
    fn args(&self) -> &[u8];
    /// Calls the function with the name and the value of each header line.
    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8]));
    /// Returns another random number at each call; all 64 bits are random.
    fn random(&self) -> u64;
    /// What is left of [`Budget::OF_MOVED_PATHS`], if a script has given it its path: it was looked at before.
    fn moved_budget(&self) -> Option<&Cell<Budget>> {
        None
    }
}

/// A request that has nothing that could be asked for.
#[derive(Clone, Copy, Debug)]
pub struct NoParts;

impl RequestParts for NoParts {
    fn method(&self) -> &[u8] {
        b""
    }

    fn args(&self) -> &[u8] {
        b""
    }

    fn each_header(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}

    fn random(&self) -> u64 {
        u64::MAX
    }
}

/// What a key is taken from; part of its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Method = 1,
    Header = 2,
    Query = 3,
}

/// FNV-1a: short texts of configuration authors, who gain nothing by collisions in their own path.
pub(super) fn fnv(seed: u32, bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(seed, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

pub(super) fn name_hash(source: Source, name: &[u8]) -> u32 {
    let seed = 0x811c_9dc5 ^ source as u32;
    match source {
        Source::Header => fnv(seed, name.iter().map(u8::to_ascii_lowercase)),
        _ => fnv(seed, name.iter().copied()),
    }
}

/// Steps of one request. One of 100 headers and parameters takes as many for each path with conditions; each rule that is
/// compared takes one, and so does each of its conditions.
const MOST_STEPS: u32 = 20_000;
/// The same of a request that a script has given its path, which may happen ten times.
const MOST_STEPS_OF_MOVED: u32 = 2_000;

/// A header or a parameter of a request.
struct Value {
    source: Source,
    /// The [`name_hash`] of the header's or parameter's name.
    hash: u32,
    name: Box<[u8]>,
    value: Box<[u8]>,
}

/// What is known of a request since a rule has asked for something in it.
struct InspectedValues {
    /// Sorted by hash; of one name in the order of the request.
    values: Vec<Value>,
    steps: u32,
    budget: Budget,
}

/// A request as rules inspect it. Where none asks for anything this is a pointer and a word.
pub(super) struct Inspection<'r, R> {
    path: &'r [u8],
    pub request: &'r R,
    asked: Option<Box<InspectedValues>>,
}

impl<'r, R: RequestParts> Inspection<'r, R> {
    pub fn new(path: &'r [u8], request: &'r R) -> Self {
        Inspection { path, request, asked: None }
    }

    /// Takes steps, as long as there are any.
    pub fn step(&mut self, count: usize) -> Result<(), NoAnswer> {
        self.asked().step(count)
    }

    /// Calls the function with the hash of each name and the value.
    pub fn each_value(&mut self, mut visit: impl FnMut(u32, &[u8])) -> Result<(), NoAnswer> {
        let asked = self.asked();
        asked.step(asked.values.len())?;
        asked.values.iter().for_each(|one| visit(one.hash, &one.value));
        Ok(())
    }

    /// Whether one of the values of a name is as `is_wanted` says.
    pub fn has(
        &mut self,
        source: Source,
        name: &[u8],
        mut is_wanted: impl FnMut(&[u8], &mut Budget) -> Result<bool, NoAnswer>,
    ) -> Result<bool, NoAnswer> {
        let hash = name_hash(source, name);
        let asked = self.asked();
        let from = asked.values.partition_point(|one| one.hash < hash);
        let count = asked.values.iter().skip(from).take_while(|one| one.hash == hash).count();
        asked.step(1 + count)?;
        for one in asked.values.iter().skip(from).take(count) {
            let is_named = match source {
                Source::Header => one.name.eq_ignore_ascii_case(name),
                Source::Method | Source::Query => *one.name == *name,
            };
            if one.source == source && is_named && is_wanted(&one.value, &mut asked.budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn asked(&mut self) -> &mut InspectedValues {
        let (path, request) = (self.path, self.request);
        self.asked.get_or_insert_with(|| {
            let (steps, budget) = match request.moved_budget() {
                None => (MOST_STEPS, Budget::OF_VALUES),
                Some(_) => (MOST_STEPS_OF_MOVED, Budget::OF_MOVED_VALUES),
            };
            let values = values_of(path, request);
            Box::new(InspectedValues { values, steps, budget })
        })
    }
}

impl InspectedValues {
    fn step(&mut self, count: usize) -> Result<(), NoAnswer> {
        let count = u32::try_from(count).map_err(|_| NoAnswer)?;
        self.steps = self.steps.checked_sub(count).ok_or(NoAnswer)?;
        Ok(())
    }
}

fn values_of(path: &[u8], request: &impl RequestParts) -> Vec<Value> {
    let mut all = Vec::new();
    let mut put = |source, name: &[u8], value: &[u8]| {
        let (hash, name, value) = (name_hash(source, name), name.into(), value.into());
        all.push(Value { source, hash, name, value });
    };
    put(Source::Header, PATH.as_bytes(), path);
    request.each_header(&mut |name, value| put(Source::Header, name, value));
    parameters(request.args()).for_each(|(name, value)| put(Source::Query, &name, &value));
    all.sort_by_key(|one| one.hash);
    all
}

/// The names and values of a query, decoded.
fn parameters(args: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    args.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(at);
        (unescape_form(name), unescape_form(value.get(1..).unwrap_or_default()))
    })
}
