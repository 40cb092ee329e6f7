//! The revocation lists of a bundle.

use crate::names::Names;
use crate::store::crl;
use crate::{der, pem};
use openssl::x509::{X509Crl, X509NameRef};
use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

const LABELS: [&str; 1] = ["X509 CRL"];

/// The revocation lists of a bundle; a handshake decodes the heads of those that its chain asks for.
pub struct Revocations {
    der: Rc<[u8]>,
    slots: Vec<Slot>,
    issuers: Names,
}

struct Slot {
    place: Range<usize>,
    /// `None` within: it cannot be decoded.
    decoded: OnceCell<Option<X509Crl>>,
}

impl Revocations {
    /// Reads PEM as far as the issuers. Refuses text without lists and what exceeds the bounds of this crate.
    pub fn new(pem: &[u8]) -> Result<Self, String> {
        let (der, places) =
            pem::read(pem, &LABELS).ok_or("a revocation list cannot be read: send PEM")?;
        if places.is_empty() {
            return Err("there is no revocation list that can be read: send PEM".into());
        }
        let issuer = |place: &Range<usize>| {
            let list = der.get(place.clone())?;
            list.get(der::list(list)?.issuer)
        };
        let issuers = Names::new(places.iter().map(issuer), "revocation list")?;
        let slot = |place| Slot { place, decoded: OnceCell::new() };
        let slots = places.into_iter().map(slot).collect();
        Ok(Revocations { der: der.into(), slots, issuers })
    }

    /// Whether every entry can be read without understanding more than serial numbers; the error names the remedy.
    pub fn check_entries(&self) -> Result<(), String> {
        for slot in &self.slots {
            let list = self.der.get(slot.place.clone()).unwrap_or_default();
            let entries = der::list(list).and_then(|parts| list.get(parts.entries));
            check(entries.unwrap_or_default())?;
        }
        Ok(())
    }

    /// The bytes that they take, about.
    pub fn weight(&self) -> usize {
        2 * self.der.len()
    }

    /// Those of an issuer; `None`: one of them cannot be read. A certificate that the missing one revokes would pass, so
    /// there is none then. They have no budget: a Secret has at most 200, with 20,000 entries.
    pub(crate) fn of_issuer(&self, issuer: &X509NameRef) -> Option<Vec<&X509Crl>> {
        let slots = self.issuers.places(issuer).filter_map(|place| self.slots.get(place));
        let decoded = slots.map(|slot| {
            let decode = || crl::head(&self.der, slot.place.clone());
            slot.decoded.get_or_init(decode).as_ref()
        });
        decoded.collect()
    }
}

/// An entry with a critical extension may be about another issuer's certificates (RFC 5280 §5.3.3), or mean something
/// that nobody here knows.
pub fn check(mut entries: &[u8]) -> Result<(), String> {
    while !entries.is_empty() {
        match der::entry(&mut entries) {
            None => return Err("an entry of a revocation list cannot be read: send PEM".into()),
            Some(entry) if entry.is_critical => {
                return Err(
                    "an entry of a revocation list has a critical extension, as indirect lists have: send a list of \
                     its issuer's own certificates"
                        .into(),
                );
            }
            Some(_) => {}
        }
    }
    Ok(())
}
