//! Bundles that are missing, large or invalid.

use super::*;

/// What a policy names and is not there, or is no bundle of that kind, closes the host; what comes again opens it.
#[test]
fn a_host_whose_bundle_is_missing_is_closed() {
    pass("mtls-bundles", |directory| {
        let place = Place::start(directory, &["a.test", "open.test"], "")?;
        let (ours, client) = (Identity::root("ours")?, Identity::root("ours")?);
        let client = (ours.issue("client", VALID)?, client);
        let list = ours.revoke(&[])?;
        let mut tls = json!({"a.test": on(&ours)?});
        tls["a.test"]["client"]["revoked"] = json!(list);
        let whole = take_bundles(&mut tls, &BUNDLES);
        let without = |pem: &str| {
            let mut bundles = whole.clone();
            bundles.as_object_mut().and_then(|all| all.remove(&bundle_id(pem)));
            bundles
        };
        let caller = place.caller("a.test")?.showing(&client.0);
        // The parsed policy is kept by the worker, and that must not hide that a bundle has gone.
        for (what, bundles, expected) in [
            ("both", whole.clone(), 200),
            ("no authorities", without(&ours.pem()?), 503),
            ("both again", whole.clone(), 200),
            ("no revocations", without(&list), 503),
            ("none", json!({}), 503),
            ("both at last", whole.clone(), 200),
        ] {
            let (status, text) = place.write_with(&tls, &bundles)?;
            ensure!(status == 200, "{what}: {status} {text}");
            expect(what, caller.status("a.test")?, expected)?;
            expect("nothing shown", caller.anonymous().status("a.test")?, expected.max(400))?;
            expect("another host", place.caller("open.test")?.status("open.test")?, 200)?;
        }
        let mut crossed = json!({"a.test": on(&ours)?});
        crossed["a.test"]["client"]["revoked"] = json!(client.1.pem()?);
        place.put(crossed)?;
        expect("authorities as revocations", caller.status("a.test")?, 503)?;
        place.site.nginx.check_error_log()
    });
}

/// CPU that nginx's only worker has taken so far (`schedstat`, whose first field has nanoseconds).
fn worker_time(place: &Place) -> Result<Duration> {
    let pids = place.site.nginx.worker_pids();
    let text = fs::read_to_string(format!("/proc/{}/schedstat", pids[0]))?;
    let time = text.split_whitespace().next().context("schedstat")?;
    Ok(Duration::from_nanos(time.parse()?))
}

/// A bundle is read once beside any number of others, and as far as a handshake needs it; also where it cannot be used.
/// `oxigress-pki` counts what is decoded; here the worker's CPU is compared with that of handshakes for one authority.
#[test]
fn a_worker_reads_a_bundle_once_and_no_more_of_it_than_it_needs() {
    pass("mtls-parsed-once", |directory| {
        const HOSTS: u32 = 30;
        let hosts: Vec<_> = (0..HOSTS).map(|number| format!("h{number}.test")).collect();
        let names: Vec<_> = hosts.iter().map(String::as_str).collect();
        let place = Place::start(directory, &names, "")?;
        let ours = Identity::root("ours")?;
        let mut bundle = ours.pem()?;
        for number in 1..199 {
            bundle += &Identity::root(&format!("another authority {number}"))?.pem()?;
        }
        let client = ours.issue("client", VALID)?;
        let ask = |host: &str, expected: u16| -> Result<Duration> {
            let before = worker_time(&place)?;
            expect(host, place.caller(host)?.showing(&client).status(host)?, expected)?;
            Ok(worker_time(&place)? - before)
        };
        let policies = |bundle: &str| -> Result<Value> {
            let mut policies = serde_json::Map::new();
            for host in &hosts {
                let client = json!({"authorities": bundle, "revoked": ours.revoke(&[])?, "verify": "on", "depth": 1});
                policies.insert(host.clone(), json!({ "client": client }));
            }
            Ok(Value::Object(policies))
        };
        let all = || hosts.iter().map(|host| ask(host, 200)).collect::<Result<Vec<_>>>();
        place.put(policies(&ours.pem()?)?)?;
        let small = all()?.into_iter().sum::<Duration>() / HOSTS;
        place.put(policies(&bundle)?)?;
        let large = all()?;
        let (first, later) = (large[0], large[1..].iter().sum::<Duration>() / (HOSTS - 1));
        println!(
            "a handshake for 1 authority: {small:?}; for 199, the first: {first:?}, later: {later:?}"
        );
        ensure!(first < 8 * small && later < 4 * small, "{small:?} for 1, {first:?}, {later:?}");

        // Another one than the hosts share: good authorities, and no revocation lists.
        let crossed = ours.pem()? + &bundle;
        let unusable =
            json!({"authorities": crossed, "revoked": crossed, "verify": "on", "depth": 1});
        place.put(json!({"h0.test": {"client": unusable}}))?;
        ask("h0.test", 503)?;
        let again = (0..20).map(|_| ask("h0.test", 503)).sum::<Result<Duration>>()? / 20;
        ensure!(again < 4 * small, "{again:?} for a bundle that cannot be used, {small:?} for 1");
        Ok(())
    });
}

#[test]
fn what_could_not_be_served_is_refused_with_its_place() {
    pass("mtls-checks", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let ours = Identity::root("ours")?;
        let good = asks(&ours, "on")?;
        place.put(json!({"a.test": {"client": good}}))?;
        let damaged = ours.pem()?.replacen("MII", "MIX", 1);
        for (field, value) in [
            ("/client/authorities", json!("hello")),
            ("/client/authorities", json!("")),
            ("/client/authorities", json!(damaged)),
            ("/client/authorities", json!(ours.pem()? + &damaged)),
            ("/client/authorities", json!("#".repeat(1024 * 1024 + 1))),
            ("/client/authorities", json!(ours.pem()?.repeat(201))),
            ("/client/revoked", json!("hello")),
            ("/client/subject", json!("CN=(")),
            ("/ciphers", json!("NONE-SUCH")),
        ] {
            let mut policy = json!({"client": good});
            let mut pointer = format!("/snapshot/tls/a.test{field}");
            if BUNDLES.contains(&field) {
                pointer = format!("/snapshot/bundles/{}", bundle_id(value.as_str().unwrap_or("")));
            }
            if let Some(name) = field.strip_prefix("/client/") {
                policy["client"][name] = value;
            } else {
                policy["ciphers"] = value;
            }
            let (status, text) = place.write(&json!({"a.test": policy}))?;
            ensure!(status == 400 && text.contains(&pointer), "{field}: {status} {text}");
        }
        let id = bundle_id("another text");
        let (status, text) = place.write_with(&json!({}), &json!({&id: ours.pem()?}))?;
        ensure!(status == 400 && text.contains("SHA-256"), "not its digest: {status} {text}");
        // What was good stays.
        expect("nothing shown", place.caller("a.test")?.status("a.test")?, 400)?;
        place.site.nginx.check_error_log()
    });
}
