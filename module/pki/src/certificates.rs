//! The certificates of a bundle.

use crate::budget::Budget;
use crate::names::Names;
use crate::{DECODED_FACTOR, MAX_CERTIFICATE_BYTES, der, pem};
use openssl::stack::StackRef;
use openssl::x509::{X509, X509Name, X509NameRef};
use std::cell::OnceCell;
use std::ops::Range;

const LABELS: [&str; 2] = ["CERTIFICATE", "X509 CERTIFICATE"];

/// The certificates of a bundle, each decoded when it is asked for.
pub struct Certificates {
    der: Vec<u8>,
    slots: Vec<Slot>,
    names: Names,
}

struct Slot {
    place: Range<usize>,
    /// `None` within: it cannot be decoded.
    decoded: OnceCell<Option<X509>>,
}

impl Certificates {
    /// Reads PEM as far as the subjects. Refuses text without certificates and what exceeds the bounds of this crate.
    pub fn new(pem: &[u8]) -> Result<Self, String> {
        let unreadable = "a certificate cannot be read: send PEM";
        let (der, places) = pem::read(pem, &LABELS).ok_or(unreadable)?;
        if places.is_empty() {
            return Err("there is no certificate that can be read: send PEM".into());
        }
        if let Some(large) = places.iter().find(|place| place.len() > MAX_CERTIFICATE_BYTES) {
            return Err(format!(
                "a certificate of {} bytes, at most {MAX_CERTIFICATE_BYTES} are accepted: remove it",
                large.len()
            ));
        }
        let subjects = places.iter().map(|place| der::subject(der.get(place.clone())?));
        let names = Names::new(subjects, "certificate")?;
        let slot = |place| Slot { place, decoded: OnceCell::new() };
        Ok(Certificates { slots: places.into_iter().map(slot).collect(), names, der })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// How many of them were decoded so far.
    pub fn decoded(&self) -> usize {
        self.slots.iter().filter(|slot| slot.decoded.get().is_some()).count()
    }

    /// Their subjects, told to clients so that they know what to show.
    pub fn subjects(&self) -> &StackRef<X509Name> {
        self.names.stack()
    }

    /// The bytes that they take when all are decoded, about.
    pub fn weight(&self) -> usize {
        (1 + DECODED_FACTOR) * self.der.len()
    }

    /// Those of a subject that can be decoded, until the budget is used up.
    pub fn of_subject(
        &self,
        subject: &X509NameRef,
        budget: &Budget,
    ) -> impl Iterator<Item = &X509> {
        let slots = self.names.places(subject).filter_map(|place| self.slots.get(place));
        slots.filter_map(move |slot| {
            if slot.decoded.get().is_none() && !budget.decode_certificate() {
                return None;
            }
            let decode = || X509::from_der(self.der.get(slot.place.clone())?).ok();
            slot.decoded.get_or_init(decode).as_ref()
        })
    }
}
