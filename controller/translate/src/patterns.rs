//! Compiles the patterns of one Ingress, within what it may ask for.
//!
//! Shape:   a [`Compiler`] is made for each reading of an Ingress. Nothing else in the translation compiles what a user
//!          wrote: `oxigress_core::patterns` takes an [`Allowance`] for that, and those for users are split off here.
//! Units:   nanoseconds, told from the texts (`oxigress_core::patterns::price_of`).

pub mod budget;
pub mod reviews;
pub mod snippets;

use crate::patterns::budget::{OF_INGRESS, OF_NAMESPACE};
use oxigress_core::model::{Invalid, PathPattern};
use oxigress_core::patterns::{
    Allowance, check_length, is_plain, path_is_valid, pattern_is_valid, price_of, price_of_reading,
};
use reviews::Reviews;
use std::collections::BTreeSet;

/// An annotation whose value is a pattern: it is charged as paths are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// For subjects of client certificates.
    Subject,
    /// For the value of a canary's header.
    CanaryHeader,
}

impl Searched {
    /// All annotations whose values are searched for in texts.
    pub const ALL: [Searched; 2] = [Searched::Subject, Searched::CanaryHeader];

    /// The name of the annotation without its prefix.
    pub fn annotation(self) -> &'static str {
        match self {
            Searched::Subject => "auth-tls-match-cn",
            Searched::CanaryHeader => "canary-by-header-pattern",
        }
    }
}

/// How a pattern is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meaning {
    /// The pattern is compared with paths.
    Path,
    /// The pattern is searched for in values.
    Value,
}

impl Meaning {
    /// Compiles a pattern to see that it can be served.
    pub fn compile(self, text: &str, allowance: Allowance) -> Result<(), Invalid> {
        match self {
            Meaning::Path => path_is_valid(text, allowance),
            Meaning::Value => pattern_is_valid(text, allowance),
        }
    }
}

/// What compiles the patterns of one Ingress.
pub struct Compiler<'c> {
    left: Allowance,
    is_over: bool,
    /// Paths that were compiled before.
    known: BTreeSet<&'c str>,
    reviews: Option<&'c mut Reviews>,
}

impl<'c> Compiler<'c> {
    /// Compiles what is not among `known`, the expressions of the Ingress until now.
    pub fn new(known: impl IntoIterator<Item = &'c str>) -> Self {
        let (left, known) = (Allowance::of(OF_INGRESS), known.into_iter().collect());
        Compiler { left, is_over: false, known, reviews: None }
    }

    /// Compiles nothing: the patterns of the namespace cost more than its budget.
    pub fn over_budget() -> Self {
        Compiler { is_over: true, ..Self::new([]) }
    }

    /// Compiles for the admission webhook, which is charged to the namespace over time.
    pub fn reviewing(self, reviews: &'c mut Reviews) -> Self {
        Compiler { reviews: Some(reviews), ..self }
    }

    /// Reads a path's regular expression.
    pub fn path(&mut self, written: &str) -> Result<PathPattern, Invalid> {
        let pattern = PathPattern::uncompiled(written)?;
        if !is_plain(written) {
            self.compile(Meaning::Path, written)?;
        }
        Ok(pattern)
    }

    /// Reads the pattern of an annotation; that it is one of [`Searched::ALL`] means that its price is counted.
    pub fn value(&mut self, _: Searched, text: &str) -> Result<(), Invalid> {
        self.compile(Meaning::Value, text)
    }

    /// Reads a pattern of a snippet: [`budget::patterns`] finds it there.
    pub fn snippet(&mut self, text: &str) -> Result<(), Invalid> {
        self.compile(Meaning::Value, text)
    }

    fn compile(&mut self, meaning: Meaning, text: &str) -> Result<(), Invalid> {
        check_length(text)?;
        if self.is_over {
            return Err(Invalid::new(format!(
                "the regular expressions of this namespace take more than {} ms to compile, and this Ingress is \
                 one of the newest: use fewer or simpler ones, or Prefix paths",
                OF_NAMESPACE / 1_000_000
            )));
        }
        let reading = price_of_reading(text);
        // What is refused was read all the same.
        if self.left.left() < reading {
            return Err(over_ingress());
        }
        let price = match &mut self.reviews {
            Some(reviews) => reviews.price(meaning, text),
            None => price_of(text),
        };
        let price = price.inspect_err(|_| _ = self.left.split(reading))?;
        let Some(allowance) = self.left.split(price) else {
            self.left.split(reading);
            return Err(over_ingress());
        };
        if meaning == Meaning::Path && self.known.contains(text) {
            return Ok(());
        }
        match &mut self.reviews {
            Some(reviews) => reviews.compile(meaning, text, allowance),
            None => meaning.compile(text, allowance),
        }
    }
}

fn over_ingress() -> Invalid {
    Invalid::new(format!(
        "the regular expressions of this Ingress take more than {} ms to compile: use fewer or simpler ones, or Prefix \
         paths",
        OF_INGRESS / 1_000_000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_of_annotations_and_those_that_are_refused_are_charged() {
        let mut compiler = Compiler::new([]);
        let served = (0..1_000)
            .take_while(|n| compiler.value(Searched::Subject, &format!("CN={n}\\p{{L}}")).is_ok());
        assert!((150..250).contains(&served.count()), "100 milliseconds");
        let refused = compiler.path("/(a|b)\\p{L}").unwrap_err().to_string();
        assert!(refused.contains("this Ingress take more than 100 ms"), "{refused}");
        let mut compiler = Compiler::new([]);
        let refused = format!("/({}", "a".repeat(1_000));
        let read = (0..1_000).filter(|_| {
            let why = compiler.path(&refused).unwrap_err().to_string();
            !why.contains("this Ingress")
        });
        assert!((200..400).contains(&read.count()), "what is no pattern is read, and charged");
        let mut compiler = Compiler::over_budget();
        let refused = compiler.value(Searched::CanaryHeader, "a").unwrap_err().to_string();
        assert!(refused.contains("of this namespace"), "{refused}");
    }
}
