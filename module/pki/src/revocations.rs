//! The revocation lists of a bundle.

pub mod list;

use crate::budget::Budget;
use crate::entries::Entries;
use crate::names::Names;
use crate::{der, pem};
use list::List;
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
    /// `None`: an entry cannot be read or means something that is not understood.
    entries: Option<Rc<Entries>>,
    /// `None` within: it cannot be decoded.
    decoded: OnceCell<Option<Decoded>>,
}

struct Decoded {
    list: Rc<List>,
    /// OpenSSL's form of the list's head, which may keep `list`.
    head: X509Crl,
}

impl Revocations {
    /// Reads PEM as far as the issuers and where the entries stand. Refuses text without lists and what exceeds the bounds of
    /// this crate.
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
        let slot = |place: Range<usize>| {
            let entries = Entries::new(&der, place.clone()).ok().map(Rc::new);
            Slot { place, entries, decoded: OnceCell::new() }
        };
        let slots = places.into_iter().map(slot).collect();
        Ok(Revocations { der: der.into(), slots, issuers })
    }

    /// Whether every entry can be read without understanding more than serial numbers; the error names the remedy.
    pub fn check_entries(&self) -> Result<(), String> {
        let unread = self.slots.iter().find(|slot| slot.entries.is_none());
        if let Some(slot) = unread {
            Entries::new(&self.der, slot.place.clone())?;
        }
        Ok(())
    }

    /// The bytes that they take, about.
    pub fn weight(&self) -> usize {
        2 * self.der.len()
    }

    /// How many entries were looked at so far.
    pub fn looks(&self) -> usize {
        self.slots.iter().flat_map(|slot| &slot.entries).map(|all| all.looks()).sum()
    }

    /// How many bytes were hashed for their signatures so far, and how many keys tried.
    pub fn work(&self) -> (usize, usize) {
        let all = self.slots.iter().filter_map(|slot| slot.decoded.get()?.as_ref());
        let works = all.map(|decoded| decoded.list.work());
        works.fold((0, 0), |(bytes, keys), work| (bytes + work.0, keys + work.1))
    }

    /// Those of an issuer; `None`: one of them cannot be read, or `budget` does not suffice for them. A certificate that the
    /// missing one revokes would pass, so there is none then.
    ///
    /// `decode` makes OpenSSL's form of a list's head, which is asked for once.
    pub fn of_issuer(
        &self,
        issuer: &X509NameRef,
        budget: &Budget,
        decode: impl Fn(&[u8], Rc<List>) -> Option<X509Crl>,
    ) -> Option<Vec<&X509Crl>> {
        let slots = self.issuers.places(issuer).filter_map(|place| self.slots.get(place));
        let decoded = slots.map(|slot| {
            let entries = slot.entries.as_ref()?;
            if slot.decoded.get().is_none() && !budget.decode_list() {
                return None;
            }
            let new = || {
                let (head, list) = List::new(&self.der, slot.place.clone(), entries.clone())?;
                let list = Rc::new(list);
                Some(Decoded { head: decode(&head, list.clone())?, list })
            };
            let Decoded { list, head } = slot.decoded.get_or_init(new).as_ref()?;
            budget.spend(list.microseconds()).then_some(head)
        });
        decoded.collect()
    }
}
