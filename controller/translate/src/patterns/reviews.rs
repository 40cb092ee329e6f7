//! How much admission reviews may ask for over time.
//!
//! Shape:   what came of a pattern is kept by its text, up to [`MAX_BYTES`], the oldest going first. What is new costs the
//!          namespace of the Ingress [`OF_MINUTE`] at most in a minute: dry runs leave nothing behind that a budget of
//!          the stock ([`super::budget`]) could count. All namespaces together have [`OF_ALL`]: whoever can reach the
//!          webhook may name any namespace.
//! Units:   nanoseconds, told from the objects; each replica counts the reviews that it answers.
//! Errors:  an Ingress over the budget is admitted with a warning, and only whose hosts it names is checked: a denial would
//!          let whoever names a namespace keep its Ingresses out. Translation has a budget of its own, which closes what is over it.

use crate::patterns::Meaning;
use oxigress_core::model::Invalid;
use oxigress_core::patterns::{Allowance, price_of, price_of_reading};
use oxigress_objects::bucket::{Bucket, Rate};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the reviews of a namespace may cost in a minute: all that it may serve, once.
const OF_MINUTE: u64 = crate::patterns::budget::OF_NAMESPACE;
const OF_NAMESPACE: Rate = Rate { full: OF_MINUTE, period: Duration::from_mins(1) };
/// What the reviews of all namespaces may cost in a minute: a sixth of the controller's time.
const OF_ALL: Rate = Rate { full: 10_000_000_000, period: Duration::from_mins(1) };
/// What is kept of patterns, their texts included.
const MAX_BYTES: usize = 4 << 20;
/// What a kept pattern takes beside its texts.
const OVERHEAD: usize = 256;
/// What telling one of several prices costs.
const TELLING: u64 = 5_000;
/// Namespaces that are counted. Beyond, those are forgotten that have all of their budget again, else the first by name:
/// all together are bounded anyway.
const MANY_NAMESPACES: usize = 1_000;

type Text = (Meaning, Arc<str>);

/// What a pattern costs, and whether it compiles, as an earlier review has found out.
struct ReviewedPattern {
    price: Result<u64, Invalid>,
    /// `None`: it was only read.
    compiled: Option<Result<(), Invalid>>,
}

/// The reviews until now, and the one under way.
#[derive(Default)]
pub struct Reviews {
    kept: HashMap<Text, ReviewedPattern>,
    oldest: VecDeque<Text>,
    bytes: usize,
    namespaces: BTreeMap<String, Bucket>,
    all: Option<Bucket>,
    /// The same for what is looked at of namespaces where objects of others are reviewed.
    all_beside: Option<Bucket>,
    namespace: String,
    /// When it began; `None`: none did.
    now: Option<Instant>,
    /// Whether a pattern of this review was not compiled, since the budget was spent.
    is_spent: bool,
}

impl Reviews {
    /// Begins the review of an Ingress or a route of a namespace.
    pub fn begin(&mut self, namespace: &str, now: Instant) {
        (self.namespace, self.now, self.is_spent) = (namespace.into(), Some(now), false);
    }

    /// What compiling a pattern costs.
    pub fn price(&mut self, meaning: Meaning, text: &str) -> Result<u64, Invalid> {
        let key = (meaning, Arc::from(text));
        if let Some(known) = self.kept.get(&key) {
            return known.price.clone();
        }
        self.spend(price_of_reading(text))?;
        let price = price_of(text);
        self.keep(key, ReviewedPattern { price: price.clone(), compiled: None });
        price
    }

    /// Compiles a pattern, whose reading [`Self::price`] has charged.
    pub fn compile(
        &mut self,
        meaning: Meaning,
        text: &str,
        allowance: Allowance,
    ) -> Result<(), Invalid> {
        let key = (meaning, Arc::from(text));
        if let Some(ReviewedPattern { compiled: Some(known), .. }) = self.kept.get(&key) {
            return known.clone();
        }
        self.spend(allowance.left().saturating_sub(price_of_reading(text)))?;
        let compiled = meaning.compile(text, allowance);
        if let Some(outcome) = self.kept.get_mut(&key) {
            outcome.compiled = Some(compiled.clone());
        }
        compiled
    }

    /// Charges the review under way for work beside patterns; whether its namespace has so much left.
    pub fn charge(&mut self, nanoseconds: u64) -> bool {
        self.spend(nanoseconds).is_ok()
    }

    /// Charges a namespace for what is looked at of its objects where those of others are reviewed; whether it has so much left.
    /// That is counted apart: whoever has objects reviewed spends nothing of what others have for their own.
    pub fn charge_beside(&mut self, namespace: &str, nanoseconds: u64, now: Instant) -> bool {
        let under_way = (std::mem::take(&mut self.namespace), self.now, self.is_spent);
        std::mem::swap(&mut self.all, &mut self.all_beside);
        // No namespace has such a name.
        self.begin(&format!("{namespace}/"), now);
        let is_paid = self.charge(nanoseconds);
        std::mem::swap(&mut self.all, &mut self.all_beside);
        (self.namespace, self.now, self.is_spent) = under_way;
        is_paid
    }

    /// Charges it for several things, of which each price is told when it is this one's turn; `None`: there is too little left.
    ///
    /// Telling is charged as well, and ends as soon as the sum is more than what is left.
    pub fn charge_all<T>(&mut self, priced: impl IntoIterator<Item = (T, u64)>) -> Option<Vec<T>> {
        let (mut all, mut sum) = (Vec::new(), 0_u64);
        for (one, price) in priced {
            sum = sum.saturating_add(price);
            if !self.charge(TELLING) || sum > self.left() {
                self.is_spent = true;
                return None;
            }
            all.push(one);
        }
        self.charge(sum).then_some(all)
    }

    /// What can be charged to the review under way.
    fn left(&self) -> u64 {
        let Some(at) = self.now.filter(|_| !self.is_spent) else { return 0 };
        let of_one = self.namespaces.get(&self.namespace);
        let of_one = of_one.map_or(OF_NAMESPACE.full, |bucket| bucket.left(at));
        of_one.min(self.all.map_or(OF_ALL.full, |bucket| bucket.left(at)))
    }

    /// Why the Ingress cannot be judged now.
    pub fn refusal(&self) -> Option<String> {
        self.is_spent.then(|| {
            let seconds = Duration::from_mins(1).as_secs();
            format!(
                "regular expressions and routes that namespace {} had reviewed in the last minute took more than {} ms, or \
                 those of all namespaces more than {} ms, so this Ingress was not checked but for whose its hosts are: read its Events, or \
                 send it again in {seconds} s, and use fewer or simpler ones, or Prefix paths",
                self.namespace,
                OF_MINUTE / 1_000_000,
                OF_ALL.full / 1_000_000
            )
        })
    }

    fn spend(&mut self, nanoseconds: u64) -> Result<(), Invalid> {
        let unchecked = || Invalid::new("it was not checked");
        let at = self.now.ok_or_else(unchecked)?;
        let all = &mut self.namespaces;
        if all.len() >= MANY_NAMESPACES && !all.contains_key(&self.namespace) {
            all.retain(|_, bucket| !bucket.is_full(at));
            if all.len() >= MANY_NAMESPACES {
                all.pop_first();
            }
        }
        let known = all.get(&self.namespace).copied();
        let mut of_one = known.unwrap_or_else(|| Bucket::full(OF_NAMESPACE, at));
        let mut of_all = self.all.unwrap_or_else(|| Bucket::full(OF_ALL, at));
        if self.is_spent || !of_one.draw(nanoseconds, at) || !of_all.draw(nanoseconds, at) {
            self.is_spent = true;
            return Err(unchecked());
        }
        all.insert(self.namespace.clone(), of_one);
        self.all = Some(of_all);
        Ok(())
    }

    fn keep(&mut self, text: Text, outcome: ReviewedPattern) {
        self.bytes += bytes_of(&text);
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.oldest.pop_front() else { break };
            self.kept.remove(&oldest);
            self.bytes -= bytes_of(&oldest);
        }
        self.oldest.push_back(text.clone());
        self.kept.insert(text, outcome);
    }
}

/// With what is said about it, which names a beginning of the text.
fn bytes_of((_, text): &Text) -> usize {
    OVERHEAD + 2 * text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles so many new patterns, each of some 0.4 milliseconds; how many were.
    fn compiled(reviews: &mut Reviews, namespace: &str, now: Instant, from: u32, to: u32) -> usize {
        reviews.begin(namespace, now);
        let fits = |n: &u32| {
            let text = format!("/{n}/\\p{{L}}");
            let price = reviews.price(Meaning::Path, &text);
            let allowance = price.map(Allowance::of);
            allowance.is_ok_and(|part| reviews.compile(Meaning::Path, &text, part).is_ok())
        };
        let count = (from..to).filter(fits).count();
        assert_eq!(reviews.refusal().is_some(), count < (to - from) as usize);
        count
    }

    #[test]
    fn a_namespace_may_have_so_much_compiled_in_a_minute() {
        let (mut reviews, start) = (Reviews::default(), Instant::now());
        let first = compiled(&mut reviews, "a", start, 0, 6_000);
        assert!((4_000..5_500).contains(&first), "{first} of 0.4 milliseconds in two seconds");
        assert_eq!(compiled(&mut reviews, "a", start, 9_000, 9_001), 0);
        assert_eq!(compiled(&mut reviews, "b", start, 9_100, 9_101), 1, "another namespace");
        assert_eq!(
            compiled(&mut reviews, "a", start, first as u32 - 100, first as u32),
            100,
            "known"
        );
        let later = start + Duration::from_secs(15);
        let again = compiled(&mut reviews, "a", later, 10_000, 16_000);
        assert!((first / 5..first / 3).contains(&again), "{again} in a quarter of the time");
    }

    /// Whoever can reach the webhook may name as many namespaces as they like.
    #[test]
    fn all_namespaces_together_have_a_budget() {
        let (mut reviews, start) = (Reviews::default(), Instant::now());
        let mut spent = 0;
        for n in 0..8 {
            reviews.begin(&format!("n{n}"), start);
            spent += (0..20).filter(|_| reviews.spend(OF_MINUTE / 20).is_ok()).count() as u64;
        }
        assert_eq!(spent * (OF_MINUTE / 20), OF_ALL.full);
        assert!(reviews.refusal().is_some_and(|told| told.contains("10000 ms")));
        reviews.begin("n9", start + Duration::from_secs(30));
        assert!(reviews.spend(OF_MINUTE).is_ok(), "half a minute later");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut reviews, start) = (Reviews::default(), Instant::now());
        for n in 0..10_000 {
            reviews.begin("a", start + Duration::from_secs(n * 60));
            let text = format!("/{n}({}", "a".repeat(1_000));
            let _ = reviews.price(Meaning::Path, &text);
            assert_eq!(reviews.refusal(), None);
        }
        assert!(reviews.bytes <= MAX_BYTES && reviews.kept.len() > 1_000);
        assert_eq!(reviews.kept.len(), reviews.oldest.len());
        for n in 0..3_000 {
            reviews.begin(&format!("n{n}"), start + Duration::from_secs(n * 60));
            let _ = reviews.price(Meaning::Value, &format!("{n}+"));
        }
        assert!(reviews.namespaces.len() <= MANY_NAMESPACES);
    }
}
