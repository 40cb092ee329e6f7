//! Sessions, connections and requests of hosts whose policies differ.

use super::*;

/// A session of one host is not gone on with for another: its client may have shown another certificate, or none.
#[test]
fn no_session_crosses_hosts_whose_policies_differ() {
    for (kind, tickets) in [("ids", false), ("tickets", true)] {
        pass(&format!("mtls-sessions-{kind}"), |directory| {
            let hosts = ["a.test", "same.test", "b.test", "open.test"];
            let more = format!("ssl_session_tickets {};", if tickets { "on" } else { "off" });
            let place = Place::start(directory, &hosts, &more)?;
            let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
            let client = ours.issue("client", VALID)?;
            place.put(
                json!({"a.test": on(&ours)?, "same.test": on(&ours)?, "b.test": on(&other)?}),
            )?;
            for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
                let mut caller = Caller::with_tickets(place.site.https_port, "a.test", tickets)?;
                caller.version = version;
                let known = caller.showing(&client);
                for (name, resumes, status) in [
                    ("a.test", true, 200),
                    // Whoever may come to the one may come to the other.
                    ("same.test", true, 200),
                    ("b.test", false, 400),
                    ("open.test", false, 200),
                ] {
                    expect("first", known.status("a.test")?, 200)?;
                    let mut call = caller.name(Some(name)).resuming()?.call()?;
                    let is_resumed = call.is_resumed();
                    ensure!(is_resumed == resumes, "{version:?} to {name}: resumed {is_resumed}");
                    expect(&format!("{version:?} to {name}"), call.get(name, "/")?.status, status)?;
                }
                // The other way: a session of a host that asks for nothing.
                expect("open", caller.name(Some("open.test")).status("open.test")?, 200)?;
                let mut call = caller.name(Some("a.test")).resuming()?.call()?;
                ensure!(!call.is_resumed(), "{version:?}: resumed from an open host");
                expect("from an open host", call.get("a.test", "/")?.status, 400)?;
                // A failed one does not stick to the client.
                let mut call = known.name(Some("a.test")).call()?;
                expect("with it", call.get("a.test", "/")?.status, 200)?;
            }
            place.site.nginx.check_error_log()
        });
    }
}

/// The name of the handshake and that of the request need not be one.
#[test]
fn a_request_for_another_host_than_the_handshakes_is_misdirected() {
    pass("mtls-misdirected", |directory| {
        let hosts = ["a.test", "same.test", "b.test", "open.test", "*.wild.test"];
        let place = Place::start(directory, &hosts, "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        place.put(json!({"a.test": on(&ours)?, "same.test": on(&ours)?, "b.test": on(&other)?,
            "*.wild.test": on(&ours)?}))?;
        let caller = place.caller("a.test")?.showing(&client);
        let cases: [(Option<&str>, &str, u16); 22] = [
            (Some("a.test"), "a.test", 200),
            (Some("a.test"), "same.test", 200),
            (Some("a.test"), "b.test", 421),
            (Some("a.test"), "open.test", 421),
            (Some("a.test"), "none.test", 421),
            (Some("open.test"), "open.test", 200),
            (Some("open.test"), "a.test", 421),
            (Some("open.test"), "A.Test", 421),
            (Some("open.test"), "a.test.", 421),
            (Some("open.test"), "a.test:443", 421),
            (Some("open.test"), "A.TEST.:443", 421),
            (Some("none.test"), "a.test", 421),
            (Some("none.test"), "x.wild.test", 421),
            (None, "a.test", 421),
            (None, "open.test", 200),
            (Some("A.TEST"), "a.test", 200),
            (Some("a.test."), "a.test", 200),
            (Some("a.test"), "a.test:443", 200),
            (Some("a.test"), "A.Test.", 200),
            (Some("x.wild.test"), "y.wild.test", 200),
            (Some("x.y.wild.test"), "y.wild.test", 421),
            (Some("wild.test"), "y.wild.test", 421),
        ];
        for (name, host, expected) in cases {
            let what = format!("{name:?} then {host}");
            let status = caller.name(name).status(host).with_context(|| what.clone())?;
            expect(&what, status, expected)?;
        }
        // An authority in the request line goes before Host.
        let mut call = caller.name(Some("open.test")).call()?;
        let odd = "GET https://a.test/ HTTP/1.1\r\nHost: open.test\r\n\r\n";
        expect("absolute target", call.send(odd)?.status, 421)?;
        // No request of another host on a connection that has shown its certificate.
        let mut call = caller.call()?;
        expect("first", call.get("a.test", "/")?.status, 200)?;
        expect("second", call.get("same.test", "/")?.status, 200)?;
        expect("third", call.get("b.test", "/")?.status, 421)?;
        ensure!(call.is_closed()?, "the connection is kept");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn requests_that_share_an_http2_connection_are_misdirected_too() {
    pass("mtls-h2", |directory| {
        let place = Place::start(directory, &["a.test", "b.test", "open.test"], "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        place.put(json!({"a.test": on(&ours)?, "b.test": on(&other)?}))?;
        let mut caller = place.caller("open.test")?.showing(&client);
        caller.is_h2 = true;
        let open = caller.call()?.h2_statuses(&["open.test", "a.test", "A.Test", "open.test"])?;
        ensure!(open == [200, 421, 421, 200], "{open:?}");
        let known = caller.name(Some("a.test"));
        let known = known.call()?.h2_statuses(&["a.test", "b.test", "open.test", "a.test"])?;
        ensure!(known == [200, 421, 421, 200], "{known:?}");
        place.site.nginx.check_error_log()
    });
}

/// A connection that lives through a change has not shown what is asked for now.
#[test]
fn a_kept_connection_does_not_outlive_its_policy() {
    pass("mtls-change", |directory| {
        let mut place = Place::start(directory, &["a.test"], "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        let revoking = json!({"client": {"authorities": ours.pem()?, "verify": "on", "depth": 1,
            "revoked": ours.revoke(&[&client])?}});
        let caller = place.caller("a.test")?.showing(&client);
        for (what, next, kept, anew) in [
            ("another authority", on(&other)?, 421, 400),
            ("revoked", revoking, 421, 400),
            ("no policy", json!({}), 421, 200),
        ] {
            place.put(json!({"a.test": on(&ours)?}))?;
            let mut call = caller.call()?;
            expect("before", call.get("a.test", "/")?.status, 200)?;
            place.put(json!({"a.test": next}))?;
            expect(&format!("{what}, kept"), call.get("a.test", "/")?.status, kept)?;
            ensure!(call.is_closed()?, "{what}: the connection is kept");
            // Nor is its session gone on with.
            let mut call = caller.resuming()?.call()?;
            ensure!(!call.is_resumed(), "{what}: resumed");
            expect(&format!("{what}, anew"), call.get("a.test", "/")?.status, anew)?;
        }
        // A policy that appears.
        let mut call = caller.call()?;
        expect("open", call.get("a.test", "/")?.status, 200)?;
        place.put(json!({"a.test": on(&ours)?}))?;
        expect("then not", call.get("a.test", "/")?.status, 421)?;
        // Sessions that outlive a reload are of the same policy.
        expect("before the reload", caller.status("a.test")?, 200)?;
        place.site.nginx.reload()?;
        let mut call = caller.resuming()?.call()?;
        ensure!(call.is_resumed(), "nginx keeps sessions over a reload");
        expect("after the reload", call.get("a.test", "/")?.status, 200)?;
        expect("nothing shown", caller.anonymous().status("a.test")?, 400)?;
        place.site.nginx.check_error_log()
    });
}
