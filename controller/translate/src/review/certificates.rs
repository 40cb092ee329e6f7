//! What becomes of hosts below a wildcard for which an object newly shows a certificate.
//!
//! Order:   as where certificates are chosen: one of another namespace counts for the younger hosts below, which then redirect to HTTPS.
//!          The age is that of the object, so an old one shows none newly where others would lose by it.

use crate::Translator;
use crate::age::Age;
use crate::host::certificate;
use crate::host::owner::{self, OwnerDecision, ServedFrom};
use crate::ingress::Claims;
use oxigress_core::model::HostPattern;
use oxigress_objects::Kind;
use oxigress_objects::verdict::Note;

/// Hosts below a wildcard that are looked at. It takes some microseconds each.
const MOST_BELOW: usize = 1_000;

impl Translator {
    /// Why an Ingress may not newly be the one whose certificate a wildcard has.
    pub(super) fn take_hosts_below(
        &self,
        wildcard: &HostPattern,
        decided: &OwnerDecision<'_>,
        claims: &Claims,
    ) -> Option<Note> {
        let ServedFrom::Claims(view) = &decided.served_from else { return None };
        let by = decided.by.as_ref().filter(|by| by.key == claims.key)?;
        let why = || self.certificate_over(wildcard, by, Kind::Ingress);
        view.owner.has_tls().then(why).flatten().map(Note::rejected)
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
        let lost = below.iter().take(MOST_BELOW).find_map(|host| {
            let owner = self.decide_owner(host).by?;
            let shown = self.snapshot.names.get(host);
            let has_none = shown.is_none_or(|shown| *shown == certificate::none());
            let is_foreign = owner.key.namespace != age.key.namespace;
            (has_none && is_foreign && *age <= owner).then_some((host, owner))
        });
        let other = format!("name the wildcard in a new {new}");
        match lost {
            Some((host, owner)) => Some(format!(
                "{} belongs to namespace {}; this {new} is older and would show its certificate there for {wildcard}: {other}",
                owner::words_of(host),
                owner.key.namespace
            )),
            None if below.len() > MOST_BELOW => Some(format!(
                "more than {MOST_BELOW} hosts would show the certificate for {wildcard}, too many to look whose they are: {other}"
            )),
            None => None,
        }
    }
}
