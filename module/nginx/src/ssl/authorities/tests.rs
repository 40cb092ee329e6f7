//! Verdicts are those of a store with everything decoded, and few parts are decoded for them.

use super::{Authorities, crl};
use crate::ssl::Verifier;
use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::RsaPrivateKeyBuilder;
use openssl::stack::Stack;
use openssl::x509::extension::{BasicConstraints, KeyUsage};
use openssl::x509::store::{X509Store, X509StoreBuilder, X509StoreRef};
use openssl::x509::{X509, X509Crl, X509Name, X509StoreContext};
use openssl_sys as sys;
use oxigress_pki::{Certificates, MAX_DECODED, Revocations, der};
use std::rc::Rc;

mod stack;
mod work;

const YEAR: i64 = 365 * 86_400;

fn key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn name(common: &str) -> X509Name {
    let mut name = X509Name::builder().unwrap();
    name.append_entry_by_text("O", "A company").unwrap();
    name.append_entry_by_text("CN", common).unwrap();
    name.build()
}

/// Somebody who can sign.
struct Party {
    certificate: X509,
    key: PKey<Private>,
}

struct Plan<'p> {
    subject: &'p str,
    serial: u32,
    /// From the present time, in years.
    valid: [i64; 2],
    is_authority: bool,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan { subject: "root", serial: 1, valid: [-1, 1], is_authority: true }
    }
}

impl Plan<'_> {
    fn made(&self, key: PKey<Private>, issuer: Option<&Party>) -> Party {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let at = |years: i64| Asn1Time::from_unix(now.as_secs() as i64 + years * YEAR).unwrap();
        let mut builder = X509::builder().unwrap();
        let subject = name(self.subject);
        builder.set_version(2).unwrap();
        let serial = BigNum::from_u32(self.serial).unwrap().to_asn1_integer().unwrap();
        builder.set_serial_number(&serial).unwrap();
        builder.set_subject_name(&subject).unwrap();
        let by = issuer.map_or(&*subject, |issuer| issuer.certificate.subject_name());
        builder.set_issuer_name(by).unwrap();
        builder.set_not_before(&at(self.valid[0])).unwrap();
        builder.set_not_after(&at(self.valid[1])).unwrap();
        builder.set_pubkey(&key).unwrap();
        if self.is_authority {
            builder
                .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
                .unwrap();
            let usage = KeyUsage::new().key_cert_sign().crl_sign().build().unwrap();
            builder.append_extension(usage).unwrap();
        }
        let signer = issuer.map_or(&key, |issuer| &issuer.key);
        builder.sign(signer, MessageDigest::sha256()).unwrap();
        Party { certificate: builder.build(), key }
    }
}

fn root(subject: &str) -> Party {
    Plan { subject, ..Plan::default() }.made(key(), None)
}

fn leaf(serial: u32, issuer: &Party) -> X509 {
    let plan = Plan { subject: "client", serial, is_authority: false, ..Plan::default() };
    plan.made(key(), Some(issuer)).certificate
}

/// A list of these numbers, as PEM.
fn list(issuer: &Party, signer: &PKey<Private>, serials: &[u32]) -> Vec<u8> {
    // SAFETY: OpenSSL copies what it is given but for the entries, which it takes over.
    let list = unsafe {
        let list = X509Crl::from_ptr(sys::X509_CRL_new());
        let day = |n| Asn1Time::days_from_now(n).unwrap();
        sys::X509_CRL_set_version(list.as_ptr(), 1);
        sys::X509_CRL_set_issuer_name(list.as_ptr(), issuer.certificate.subject_name().as_ptr());
        sys::X509_CRL_set1_lastUpdate(list.as_ptr(), day(0).as_ptr());
        sys::X509_CRL_set1_nextUpdate(list.as_ptr(), day(1).as_ptr());
        for serial in serials {
            let entry = sys::X509_REVOKED_new();
            let serial = BigNum::from_u32(*serial).unwrap().to_asn1_integer().unwrap();
            sys::X509_REVOKED_set_serialNumber(entry, serial.as_ptr());
            sys::X509_REVOKED_set_revocationDate(entry, day(0).as_ptr());
            sys::X509_CRL_add0_revoked(list.as_ptr(), entry);
        }
        assert!(
            sys::X509_CRL_sign(list.as_ptr(), signer.as_ptr(), MessageDigest::sha256().as_ptr())
                > 0
        );
        list
    };
    list.to_pem().unwrap()
}

fn pem<'p>(all: impl IntoIterator<Item = &'p Party>) -> Vec<u8> {
    all.into_iter().flat_map(|party| party.certificate.to_pem().unwrap()).collect()
}

fn authorities(certificates: &[u8], lists: &[u8]) -> Authorities {
    let lists = (!lists.is_empty()).then(|| Rc::new(Revocations::new(lists).unwrap()));
    Authorities::new(Rc::new(Certificates::new(certificates).unwrap()), lists).unwrap()
}

/// The same, all decoded.
fn plain(certificates: &[u8], lists: &[u8]) -> X509Store {
    let mut builder = X509StoreBuilder::new().unwrap();
    for certificate in X509::stack_from_pem(certificates).unwrap() {
        builder.add_cert(certificate).unwrap();
    }
    let store = builder.build();
    let text = String::from_utf8(lists.into()).unwrap();
    let _alone = crl::alone();
    for block in text.split_inclusive("-----END X509 CRL-----\n") {
        let list = X509Crl::from_pem(block.as_bytes()).unwrap();
        // SAFETY: both are alive; the store counts the list.
        unsafe {
            X509_STORE_add_crl(store.as_ptr(), list.as_ptr());
            sys::X509_STORE_set_flags(store.as_ptr(), 0x4 | 0x8);
        }
    }
    store
}

unsafe extern "C" {
    fn X509_STORE_add_crl(store: *mut sys::X509_STORE, list: *mut sys::X509_CRL) -> libc::c_int;
}

fn verdict(store: &X509StoreRef, certificate: &X509, sent: &[&Party]) -> i32 {
    let mut chain = Stack::new().unwrap();
    for party in sent {
        chain.push(party.certificate.clone()).unwrap();
    }
    let mut context = X509StoreContext::new().unwrap();
    let error = context.init(store, certificate, &chain, |context| {
        context.verify_cert()?;
        Ok(context.error())
    });
    error.unwrap().as_raw()
}

#[test]
fn a_handshake_decodes_what_its_chain_asks_for() {
    let all: Vec<_> = (0..200).map(|n| root(&format!("root {n}"))).collect();
    let made = authorities(&pem(&all), &[]);
    assert_eq!((made.certificates().count(), made.certificates().decoded()), (200, 0));
    for (number, place) in [17, 150, 17].into_iter().enumerate() {
        assert_eq!(verdict(made.store(), &leaf(1, &all[place]), &[]), 0);
        assert_eq!(made.certificates().decoded(), (number + 1).min(2));
    }
    let stranger = root("a stranger");
    assert_eq!(verdict(made.store(), &leaf(1, &stranger), &[&stranger]), 19);
    assert_eq!(made.certificates().decoded(), 2);
}

#[test]
fn a_verification_decodes_no_more_than_its_budget() {
    let all: Vec<_> = (0..60).map(|_| root("the same name")).collect();
    let made = authorities(&pem(&all), &[]);
    let client = leaf(1, &all[59]);
    // Without key identifiers the first of that name is the issuer, and its key is not the right one.
    let first = verdict(made.store(), &client, &[]);
    assert_eq!(first, verdict(&plain(&pem(&all), &[]), &client, &[]));
    assert_eq!(made.certificates().decoded(), 1);
    // Those that have expired are all looked at.
    let old: Vec<_> =
        (0..60).map(|_| Plan { valid: [-3, -2], ..Plan::default() }.made(key(), None)).collect();
    let made = authorities(&pem(&old), &[]);
    for decoded in [MAX_DECODED, 2 * MAX_DECODED, 60, 60] {
        assert_ne!(verdict(made.store(), &leaf(1, &old[0]), &[]), 0);
        assert_eq!(made.certificates().decoded(), decoded);
    }
}

#[test]
fn verdicts_are_those_of_a_store_with_everything_decoded() {
    let (ours, other) = (root("ours"), root("other"));
    let middle = Plan { subject: "middle", serial: 7, ..Plan::default() }.made(key(), Some(&ours));
    // The same authority before its renewal, and somebody with its name.
    let old = Plan { subject: "ours", valid: [-3, -2], ..Plan::default() };
    let old = old.made(ours.key.clone(), None);
    let impostor = root("ours");
    let expired = Plan { subject: "late", valid: [-3, -2], is_authority: false, ..Plan::default() };
    let expired = expired.made(key(), Some(&ours)).certificate;
    let bundles: [(&str, Vec<&Party>); 7] = [
        ("ours", vec![&ours]),
        ("other", vec![&other]),
        ("renewed", vec![&old, &ours]),
        ("old", vec![&old]),
        ("impostor first", vec![&impostor, &ours]),
        ("middle only", vec![&middle]),
        ("all", vec![&other, &old, &middle, &impostor, &ours]),
    ];
    let many: Vec<u32> = (100..5_000).collect();
    let lists: [(&str, Vec<u8>); 7] = [
        ("none", Vec::new()),
        ("empty", list(&ours, &ours.key, &[])),
        ("2 revoked", list(&ours, &ours.key, &[1, 2, 3])),
        ("many", [list(&ours, &ours.key, &many), list(&middle, &middle.key, &[2])].concat()),
        (
            "middle revoked",
            [list(&ours, &ours.key, &[7]), list(&middle, &middle.key, &[])].concat(),
        ),
        ("wrong key", list(&ours, &other.key, &[9])),
        ("of another", list(&other, &other.key, &[2])),
    ];
    let clients: [(&str, X509, Vec<&Party>); 7] = [
        ("2", leaf(2, &ours), vec![]),
        ("4", leaf(4, &ours), vec![]),
        ("4,000", leaf(4_000, &ours), vec![]),
        ("of middle", leaf(2, &middle), vec![&middle]),
        ("of middle, unsent", leaf(5, &middle), vec![]),
        ("expired", expired, vec![]),
        ("self-signed", root("nobody").certificate, vec![]),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (bundle, parties) in &bundles {
        for (revoked, lists) in &lists {
            let parties = pem(parties.iter().copied());
            let (made, plain) = (authorities(&parties, lists), plain(&parties, lists));
            for (client, certificate, sent) in &clients {
                let expected = verdict(&plain, certificate, sent);
                for _ in 0..2 {
                    let found = verdict(made.store(), certificate, sent);
                    assert_eq!(found, expected, "{bundle}, lists {revoked}, client {client}");
                }
                seen.insert(expected);
            }
        }
    }
    // Valid, no issuer, expired, revoked, no list, a list's signature.
    assert!([0, 20, 10, 23, 3, 8].iter().all(|code| seen.contains(code)), "{seen:?}");
}

/// OpenSSL's method for lists that it decodes is the whole program's.
#[test]
fn lists_are_decoded_on_several_threads() {
    let ours = root("ours");
    let (certificates, lists) = (pem([&ours]), list(&ours, &ours.key, &[7]));
    let client = leaf(7, &ours);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let made = authorities(&certificates, &lists);
                    assert_eq!(verdict(made.store(), &client, &[]), 23);
                    assert_eq!(verdict(&plain(&certificates, &lists), &client, &[]), 23);
                }
            });
        }
    });
}

/// A list of an issuer's numbers, whose bytes are changed before it is signed, as PEM.
fn damaged(ours: &Party, serials: &[u32], at: [u8; 3], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let list = list(ours, &ours.key, serials);
    let mut der = X509Crl::from_pem(&list).unwrap().to_der().unwrap();
    let at = der.windows(4).position(|bytes| bytes.starts_with(&at) && bytes[3] == 0x17).unwrap();
    change(&mut der[at..at + 4]);
    let signed = &der[der::list(&der).unwrap().signed];
    let mut rest = &der::next(&mut &der[..]).unwrap().content[signed.len()..];
    let algorithm = der::next(&mut rest).unwrap().whole;
    let mut signer = openssl::sign::Signer::new(MessageDigest::sha256(), &ours.key).unwrap();
    let signature = signer.sign_oneshot_to_vec(signed).unwrap();
    let signature = [&[3, signature.len() as u8 + 1, 0], &signature[..]].concat();
    let text = openssl::base64::encode_block(&der::wrap(&[signed, algorithm, &signature]));
    let lines = text.as_bytes().chunks(64).map(|line| [line, b"\n"].concat());
    let begin = b"-----BEGIN X509 CRL-----\n".to_vec();
    let end = b"-----END X509 CRL-----\n".to_vec();
    std::iter::once(begin).chain(lines).chain([end]).flatten().collect()
}

/// OpenSSL reads an entry only when its number is asked for; whether the number is revoked must not depend on that.
#[test]
fn a_number_is_revoked_though_the_rest_of_its_entry_cannot_be_read() {
    let ours = root("ours");
    // The date is none.
    let made =
        authorities(&pem([&ours]), &damaged(&ours, &[6, 7], [2, 1, 7], |entry| entry[3] = 4));
    // The second time the list's signature is known.
    for _ in 0..2 {
        let of = |serial| verdict(made.store(), &leaf(serial, &ours), &[]);
        assert_eq!((of(5), of(6), of(7)), (0, 23, 23));
    }
}

#[test]
fn beside_a_list_that_cannot_be_read_nobody_passes() {
    let ours = root("ours");
    // The number is none.
    let damaged = damaged(&ours, &[6, 7], [2, 1, 7], |entry| entry[0] = 4);
    for lists in [[&list(&ours, &ours.key, &[8])[..], &damaged], [&damaged, &damaged]] {
        let made = authorities(&pem([&ours]), &lists.concat());
        // X509_V_ERR_UNABLE_TO_GET_CRL
        assert_eq!(verdict(made.store(), &leaf(5, &ours), &[]), 3);
    }
}

/// An extension of so many DNS names, as they are or as excluded ones.
fn names(count: usize, is_constraint: bool) -> Vec<u8> {
    let one = |n: usize| {
        let name = [&[0x82, 4][..], format!("a{:03}", n % 1_000).as_bytes()].concat();
        if is_constraint { der::wrap(&[&name]) } else { name }
    };
    let all: Vec<u8> = (0..count).flat_map(one).collect();
    if !is_constraint {
        return der::wrap(&[&all]);
    }
    let mut excluded = der::wrap(&[&all]);
    excluded[0] = 0xa1;
    der::wrap(&[&excluded])
}

fn with_names(subject: &str, by: Option<&Party>, count: usize, is_authority: bool) -> Party {
    let key = key();
    let plan = Plan { subject, is_authority, ..Plan::default() };
    let made = plan.made(key.clone(), by).certificate;
    let nid = if is_authority { Nid::NAME_CONSTRAINTS } else { Nid::SUBJECT_ALT_NAME };
    let der = openssl::asn1::Asn1OctetString::new_from_bytes(&names(count, is_authority)).unwrap();
    let object = openssl::asn1::Asn1Object::from_str(nid.short_name().unwrap()).unwrap();
    let extension = openssl::x509::X509Extension::new_from_der(&object, false, &der).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(made.serial_number()).unwrap();
    builder.set_subject_name(made.subject_name()).unwrap();
    builder.set_issuer_name(made.issuer_name()).unwrap();
    builder.set_not_before(made.not_before()).unwrap();
    builder.set_not_after(made.not_after()).unwrap();
    builder.set_pubkey(&key).unwrap();
    if is_authority {
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    }
    builder.append_extension(extension).unwrap();
    builder.sign(by.map_or(&key, |by| &by.key), MessageDigest::sha256()).unwrap();
    Party { certificate: builder.build(), key }
}

/// As a handshake verifies: the answer to OpenSSL, and the result.
fn handshake(made: &Authorities, certificate: &X509, sent: &[&Party]) -> (i32, i32) {
    let mut chain = Stack::new().unwrap();
    for party in sent {
        chain.push(party.certificate.clone()).unwrap();
    }
    let mut context = X509StoreContext::new().unwrap();
    let result = context.init(made.store(), certificate, &chain, |context| {
        Ok((i32::from(Authorities::verify(context)), context.error().as_raw()))
    });
    result.unwrap()
}

#[test]
fn what_a_peer_sends_is_verified_with_bounded_work() {
    let ours = root("ours");
    let made = authorities(&pem([&ours]), &[]);
    assert_eq!(handshake(&made, &leaf(1, &ours), &[]), (1, 0));
    let stranger = root("a stranger");
    assert_eq!(handshake(&made, &leaf(1, &stranger), &[]), (1, 21));
    let expired = Plan { valid: [-3, -2], is_authority: false, ..Plan::default() };
    assert_eq!(handshake(&made, &expired.made(key(), Some(&ours)).certificate, &[]), (1, 10));
    assert_eq!(handshake(&made, &expired.made(key(), Some(&stranger)).certificate, &[]), (1, 10));
    // Names and constraints of a stranger's, and of ours.
    for (by, unvouched) in [(&stranger, 21), (&ours, 0)] {
        for (constraints, names, is_refused) in
            [(10, 100, false), (300, 600, true), (600, 20, false)]
        {
            let middle = with_names("middle", Some(by), constraints, true);
            let client = with_names("client", Some(&middle), names, false).certificate;
            let expected = match (is_refused, unvouched) {
                (true, _) => 50,
                // The names are excluded.
                (false, 0) => 48,
                (false, unvouched) => unvouched,
            };
            let found = handshake(&made, &client, &[&middle]);
            let is_excluded = found == (1, 48);
            assert!(
                found == (1, expected) || !is_refused && is_excluded,
                "{constraints} {names}: {found:?}"
            );
        }
    }
    let many: Vec<_> = (0..12).map(|_| &stranger).collect();
    assert_eq!(handshake(&made, &leaf(1, &ours), &many), (1, 50));
}

/// Its own key would verify the handshake's signature.
#[test]
fn a_handshake_ends_where_the_clients_own_key_takes_long() {
    let ours = root("ours");
    let made = authorities(&pem([&ours]), b"");
    let [mut modulus, one] = [1, 3].map(|number| BigNum::from_u32(number).unwrap());
    modulus.set_bit(16_383).unwrap();
    let e = BigNum::from_u32(65_537).unwrap();
    let rsa = RsaPrivateKeyBuilder::new(modulus, e, one).unwrap().build();
    let slow = Plan::default().made(PKey::from_rsa(rsa).unwrap(), Some(&root("r"))).certificate;
    assert_eq!(handshake(&made, &slow, &[]), (0, 50));
    assert_eq!(handshake(&made, &leaf(1, &ours), &[]), (1, 0));
}
