//! What an Ingress may not say about hosts that belong to other namespaces.

use super::Merged;
use crate::Translator;
use crate::claim::age::Age;
use crate::host::alias::Alias;
use crate::host::aliases;
use crate::host::owner::{self, HostOwnership, HostView, OwnerDecision, ServedFrom};
use crate::ingress::Claims;
use oxigress_core::model::HostPattern;
use oxigress_objects::Kind;
use oxigress_objects::verdict::Note;
use std::collections::{BTreeMap, BTreeSet};

/// The aliases that an Ingress writes, each with the host that it follows, and whether it would hold: others may give that host
/// other ones, or more paths than leave it room.
type Aliases = BTreeMap<(Alias, HostPattern), bool>;

impl Translator {
    /// The claims on a host if it had these, which may stand in the place of its own.
    pub(super) fn claims_among<'c>(
        &'c self,
        host: &HostPattern,
        claims: &'c Claims,
    ) -> Vec<&'c Claims> {
        let mut all = self.claims_on(host);
        all.retain(|other| other.key != claims.key);
        if claims.hosts.contains_key(host) {
            let at = all.partition_point(|other| other.age() < claims.age());
            all.insert(at, claims);
        }
        all
    }

    /// What of it has no effect, or may not have one, since hosts belong to other namespaces. What its hosts come to, too, if they
    /// are merged: without that nothing is said about settings.
    pub(super) fn check_ownership(&self, claims: &Claims, merges: bool) -> (Vec<Note>, Merged) {
        let mode = self.options.host_ownership;
        let (mut notes, mut merged) = (Vec::new(), Merged::new());
        if mode == HostOwnership::Shared {
            return (notes, merged);
        }
        let own = self.aliases_of(claims);
        let names = claims.hosts.keys().chain(own.keys().map(|(alias, _)| &alias.host));
        for host in names.collect::<BTreeSet<_>>() {
            let decided = self.decide_with(host, claims, &own, false);
            // What keeps an alias from holding now may be removed, which nobody is asked about.
            let lost = self.take_over(host, &self.decide_with(host, claims, &own, true), claims);
            notes.extend(lost.or_else(|| self.take_unwritten(host, claims)));
            notes.extend(self.take_hosts_below(host, claims));
            let mut refusals = decided.notes;
            if let ServedFrom::Claims(view) = &decided.served_from
                && claims.hosts.contains_key(host)
            {
                let of_host = merges.then(|| self.merge_one(host, view));
                notes.extend(self.take_rules(host, claims, of_host.as_ref()));
                if let Some(of_host) = of_host {
                    refusals.extend(of_host.refusals);
                    merged.insert(host.clone(), of_host.notes);
                }
            }
            let about = refusals.into_iter().filter(|(key, _)| *key == claims.key);
            notes.extend(about.map(|(_, note)| note));
        }
        (notes, merged)
    }

    fn aliases_of(&self, claims: &Claims) -> Aliases {
        let mode = self.options.host_ownership;
        let of_host = |host: &HostPattern| {
            let all = self.claims_among(host, claims);
            let view = HostView::of_claims(mode, &all, self.gateway_claims.get(host));
            let held = aliases::of(host, &view.owner);
            let written = self.written_by(claims, host).into_iter();
            let entry = |alias: Alias| {
                let holds = held.contains(&alias);
                ((alias, host.clone()), holds)
            };
            written.map(entry).collect::<Vec<_>>()
        };
        claims.hosts.keys().flat_map(of_host).collect()
    }

    /// Whether the stored form of an Ingress has written an alias: nobody is kept from changing it by what came since.
    fn has_written(&self, claims: &Claims, alias: &Alias, source: &HostPattern) -> bool {
        let stored = self.claims.get(&claims.key);
        let stored = stored.filter(|old| old.created == claims.created && old.canary().is_none());
        stored.is_some_and(|old| {
            old.hosts.contains_key(source) && self.written_by(old, source).contains(alias)
        })
    }

    /// The aliases that an Ingress would give a host if it were the only one there.
    fn written_by(&self, claims: &Claims, host: &HostPattern) -> BTreeSet<Alias> {
        let alone = HostView::of_claims(self.options.host_ownership, &[claims], None);
        aliases::written(host, &alone.owner)
    }

    /// Who would own a host if an Ingress had these claims and aliases: those that hold, or all that it writes newly, too.
    fn decide_with<'c>(
        &'c self,
        host: &HostPattern,
        claims: &'c Claims,
        own: &'c Aliases,
        is_written: bool,
    ) -> OwnerDecision<'c> {
        let mut aliases = self.aliases_onto(host);
        aliases.retain(|(alias, _)| alias.age.key != claims.key);
        let first = (Alias::first_of(host), HostPattern::default_host());
        let onto = own.range(first..).take_while(|((alias, _), _)| alias.host == *host);
        let is_new = |alias, source| is_written && !self.has_written(claims, alias, source);
        let onto = onto.filter(|((alias, source), holds)| **holds || is_new(alias, source));
        aliases.extend(onto.map(|((alias, source), _)| (alias, source)));
        aliases.sort();
        let (mode, by_gateway) = (self.options.host_ownership, self.gateway_claims.get(host));
        owner::decide(mode, host, &self.claims_among(host, claims), &aliases, by_gateway)
    }

    /// An old Ingress that names a new host would be its oldest, or the one that a listener leaves it to.
    fn take_over(
        &self,
        host: &HostPattern,
        decided: &OwnerDecision<'_>,
        claims: &Claims,
    ) -> Option<Note> {
        let is_oldest = || decided.by.as_ref().is_some_and(|by| by.key == claims.key);
        let before = match decided.kind {
            Kind::Gateway => self.successor(host, decided.kind).filter(|(age, _)| {
                claims.canary().is_none() && claims.age().borrowed() < age.borrowed()
            }),
            _ if is_oldest() => {
                let OwnerDecision { by, kind, .. } = self.decide_owner(host);
                by.map(|by| (by, kind))
            }
            _ => None,
        };
        let is_foreign = |(owner, _): &(Age, Kind)| owner.key.namespace != claims.key.namespace;
        // A listener leaves the host to it.
        let is_heir = || {
            let heir = self.successor(host, decided.kind);
            decided.kind == Kind::Gateway
                && claims.canary().is_none()
                && heir.is_none_or(|(age, _)| claims.age() <= age)
        };
        let of_set = || self.set_over(host, &claims.age()).filter(|_| is_oldest() || is_heir());
        let (Age { key: owner, .. }, kind) = before.filter(is_foreign).or_else(of_set)?;
        Some(Note::rejected(format!(
            "{} belongs to namespace {}, whose {kind} {owner} names it; this Ingress is older and would take it over: name the \
             host in a new Ingress",
            owner::words_of(host),
            owner.namespace
        )))
    }
}
