//! What becomes of hosts below a wildcard that an object newly names, or for which it newly shows a certificate.
//!
//! Order:   as where certificates are chosen: one of another namespace counts for the younger hosts below, which then redirect to HTTPS.
//!          The age is that of the object, so an old one shows none newly where others would lose by it.

use crate::Translator;
use crate::claim::age::Age;
use crate::host::certificate;
use crate::host::owner;
use crate::ingress::Claims;
use oxigress_core::model::HostPattern;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind};

/// Hosts below a wildcard that are looked at. It takes some microseconds each.
const MOST_BELOW: usize = 5_000;

impl Translator {
    /// Why an Ingress may not newly name a wildcard. With or without a certificate: another one of its namespace may bring that, and
    /// the oldest one's age counts for it.
    pub(super) fn take_hosts_below(&self, wildcard: &HostPattern, claims: &Claims) -> Option<Note> {
        let has_alias =
            || self.aliases_onto(wildcard).iter().any(|(of, _)| of.age.key == claims.key);
        let names = |of: &Claims| of.canary().is_none() && of.hosts.contains_key(wildcard);
        let named = self.claims.get(&claims.key).is_some_and(|of| names(of)) || has_alias();
        if !wildcard.is_wildcard() || claims.canary().is_some() || named {
            return None;
        }
        let age = claims.age();
        let is_its = |by: &Age| by.key.namespace == age.key.namespace && *by < age;
        let decided = self.decide_owner(wildcard);
        if decided.kind == Kind::Ingress && decided.by.as_ref().is_some_and(is_its) {
            return None;
        }
        self.certificate_over(wildcard, &age, Kind::Ingress).map(Note::rejected)
    }

    /// Why an object of this age may not newly show a certificate for a host.
    pub(super) fn certificate_over(
        &self,
        wildcard: &HostPattern,
        age: &Age,
        new: Kind,
    ) -> Option<String> {
        let has_it = self.above.get(wildcard).is_some_and(|above| above.is_by(age));
        let below = self.below.get(wildcard).filter(|_| !has_it)?;
        // Hosts that routes alone name lose nothing to a ListenerSet.
        let below = below.iter().filter(|h| new == Kind::Ingress || self.route_alone(h).is_none());
        let are_too_many = below.clone().nth(MOST_BELOW).is_some();
        let lost = below.take(MOST_BELOW).find_map(|host| {
            if let Some(route) = self.route_alone(host) {
                let is_lost = self.is_lost_below(host, route, age);
                return is_lost.then(|| (host, route.clone()));
            }
            let is_younger = |(created, key): &(i64, Key)| {
                key.namespace != age.key.namespace && age.borrowed() <= (*created, key)
            };
            // Whoever has the host is its oldest: nothing is decided where nobody younger could be.
            let mut claimants = self.claimants.get(host).into_iter().flatten();
            let has_others = self.gateway_claims.contains_key(host);
            if !claimants.any(is_younger) && !has_others && self.aliases_onto(host).is_empty() {
                return None;
            }
            let owner = self.decide_owner(host).by?;
            let is_foreign = owner.key.namespace != age.key.namespace;
            (self.shows_none(host) && is_foreign && *age <= owner).then_some((host, owner))
        });
        let other = format!("name the wildcard in a new {new}");
        match lost {
            Some((host, owner)) => Some(format!(
                "{} belongs to namespace {}; this {new} is older and would show its certificates there for {wildcard}: {other}",
                owner::words_of(host),
                owner.key.namespace
            )),
            None if are_too_many => Some(format!(
                "more than {MOST_BELOW} hosts would show the certificate for {wildcard}, too many to look whose they are: {other}"
            )),
            None => None,
        }
    }

    /// Whether a host that a route alone names would be shown the certificate of an Ingress of this age for a wildcard, or have its TLS
    /// passed through with that of the wildcard.
    fn is_lost_below(&self, host: &HostPattern, route: &Age, age: &Age) -> bool {
        age.takes_from(route) && (self.shows_none(host) || self.options.ssl_passthrough)
    }

    fn shows_none(&self, host: &HostPattern) -> bool {
        let shown = self.snapshot.names.get(host);
        shown.is_none_or(|shown| *shown == certificate::none())
    }
}
