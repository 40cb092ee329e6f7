//! What a verification costs is counted in steps, bytes and keys, not in time.

use super::*;
use oxigress_pki::der;

/// 20,000 numbers, the most that a Secret may have, in an order of their own.
fn many() -> Vec<u32> {
    (0..20_000_u32).map(|n| 100 + n * 7_919 % 20_000).collect()
}

#[test]
fn a_number_is_found_in_few_steps() {
    let ours = root("ours");
    let lists = Rc::new(Revocations::new(&list(&ours, &ours.key, &many())).unwrap());
    let certificates = Rc::new(Certificates::new(&pem([&ours])).unwrap());
    let made = Authorities::new(certificates, Some(lists.clone())).unwrap();
    for (serial, verdict) in [(100, 23), (99, 0), (20_099, 23), (20_100, 0), (7_777, 23)] {
        let before = lists.looks();
        assert_eq!(handshake(&made, &leaf(serial, &ours), &[]), (1, verdict), "{serial}");
        let looks = lists.looks() - before;
        // Two certificates are looked up, as the root has a number too.
        assert!((1..=34).contains(&looks), "{serial}: {looks} of 20,000 entries were looked at");
    }
}

/// A list is hashed once whoever is said to have signed it, and a key that has signed it is not tried again.
#[test]
fn forged_issuers_of_a_list_cost_one_signature_each() {
    let (ours, impostor) = (root("ours"), root("ours"));
    let middle = Plan { subject: "middle", serial: 7, ..Plan::default() };
    let signed = |text: &[u8]| {
        der::list(&X509Crl::from_pem(text).unwrap().to_der().unwrap()).unwrap().signed.len()
    };
    let honest = middle.made(key(), Some(&ours));
    let texts = [list(&honest, &honest.key, &many()), list(&ours, &ours.key, &[9])];
    let [long, short] = [signed(&texts[0]), signed(&texts[1])];
    let lists = Rc::new(Revocations::new(&texts.concat()).unwrap());
    let certificates = Rc::new(Certificates::new(&pem([&ours])).unwrap());
    let made = Authorities::new(certificates, Some(lists.clone())).unwrap();
    for tried in 1..=5 {
        let forged = middle.made(key(), Some(&impostor));
        // X509_V_ERR_CRL_SIGNATURE_FAILURE
        assert_eq!(handshake(&made, &leaf(5, &forged), &[&forged]), (1, 8));
        assert_eq!(lists.work(), (long, tried));
    }
    for _ in 0..3 {
        assert_eq!(handshake(&made, &leaf(5, &honest), &[&honest]), (1, 0));
        assert_eq!(lists.work(), (long + short, 7));
    }
}

fn key_of(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

/// A chain of authorities with keys of a curve, and a client of the last one.
fn chain(curve: Nid, length: usize) -> (Vec<Party>, X509) {
    let mut all: Vec<Party> = Vec::new();
    for number in 0..length {
        let subject = format!("authority {number}");
        let plan = Plan { subject: &subject, ..Plan::default() };
        all.push(plan.made(key_of(curve), all.last()));
    }
    let plan = Plan { subject: "client", serial: 5, is_authority: false, ..Plan::default() };
    let client = plan.made(key_of(curve), all.last()).certificate;
    (all, client)
}

#[test]
fn the_keys_of_a_chain_cost_a_bounded_time() {
    // The longest chains that are verified: sent but for the root, and all decoded from a bundle.
    let longest = [(Nid::X9_62_PRIME256V1, 9, 9), (Nid::SECP384R1, 6, 5), (Nid::SECP256K1, 5, 4)];
    for (curve, sent, known) in longest {
        for length in 2..=9 {
            let (all, client) = chain(curve, length);
            let made = authorities(&pem([&all[0]]), b"");
            let others: Vec<_> = all.iter().skip(1).rev().collect();
            let (_, found) = handshake(&made, &client, &others);
            assert_eq!(found == 0, length <= sent, "{curve:?}, {length} sent: {found}");
            let (_, found) = handshake(&authorities(&pem(&all), b""), &client, &[]);
            assert_eq!(found == 0, length <= known, "{curve:?}, {length} known: {found}");
        }
    }
}

/// Where lists are looked at, each key verifies twice as many signatures. A root that is sent besides is no harm.
#[test]
fn usual_chains_with_lists_are_within_the_budget() {
    for curve in [Nid::X9_62_PRIME256V1, Nid::SECP384R1] {
        let (all, client) = chain(curve, 2);
        let lists = all.iter().flat_map(|by| list(by, &by.key, &[9])).collect::<Vec<_>>();
        let known = authorities(&pem([&all[0]]), &lists);
        assert_eq!(handshake(&known, &client, &[&all[1], &all[0]]), (1, 0));
    }
}

/// The CPU time of this thread, in nanoseconds: other programs take the processor in between.
fn thread_time() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is alive.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// `cargo test -p oxigress-nginx --lib --release authorities -- --ignored --nocapture`: docs/benchmarks.md has the figures.
#[test]
#[ignore = "measures time"]
fn the_dearest_verifications() {
    let measure = |name: &str, times: usize, run: &mut dyn FnMut()| {
        let one = |_| {
            let begin = thread_time();
            run();
            thread_time() - begin
        };
        let longest = (0..times).map(one).max().unwrap_or_default();
        println!("{name}: {:.2} ms", longest as f64 / 1e6);
    };
    let (ours, impostor) = (root("ours"), root("ours"));
    let middle = Plan { subject: "middle", serial: 7, ..Plan::default() };
    let (honest, forged) = (middle.made(key(), Some(&ours)), middle.made(key(), Some(&impostor)));
    let (client, stranger) = (leaf(5, &honest), leaf(5, &forged));
    let lists = [list(&honest, &honest.key, &many()), list(&ours, &ours.key, &[9])].concat();
    let roots = pem([&ours]);
    measure("20,000 revoked: the lists are read", 10, &mut || {
        Revocations::new(&lists).unwrap();
    });
    let mut new: Vec<_> = (0..10).map(|_| authorities(&roots, &lists)).collect();
    let one = new.pop().unwrap();
    measure("20,000 revoked: the first handshake", 9, &mut || {
        assert_eq!(handshake(&new.pop().unwrap(), &client, &[&honest]), (1, 0));
    });
    measure("20,000 revoked: a later handshake", 10, &mut || {
        handshake(&one, &client, &[&honest]);
    });
    assert_eq!(handshake(&one, &stranger, &[&forged]), (1, 8));
    measure("20,000 revoked: a forged issuer", 10, &mut || {
        handshake(&one, &stranger, &[&forged]);
    });
    for (curve, length) in
        [(Nid::X9_62_PRIME256V1, 9), (Nid::SECP384R1, 6), (Nid::BRAINPOOL_P384R1, 5)]
    {
        let (all, client) = chain(curve, length);
        let sent: Vec<_> = all.iter().skip(1).rev().collect();
        let made = authorities(&pem([&all[0]]), b"");
        measure(&format!("{length} authorities, {}", curve.long_name().unwrap()), 10, &mut || {
            assert_eq!(handshake(&made, &client, &sent), (1, 0));
        });
    }
}
