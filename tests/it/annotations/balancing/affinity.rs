//! Cookies that keep a client with its endpoint.

use super::*;

#[test]
fn affinity_keeps_a_client_with_its_endpoint() {
    pass("annotations-affinity", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b", "c"]), &[])?;
        place.write(
            "services.yaml",
            "$SERVICE(plain: a b c)\n$SERVICE(shop: a b c)\n$SERVICE(kept: a b c)",
        )?;
        place.ingress("plain.test", "plain", &[("affinity", "ip")])?;
        is(&place, "a=2 b=2 c=2", "plain.test", &[])?;
        place.warns(&["Ingress default/plain.test", "annotation affinity", "ip"])?;

        let paths = [("shop.test", "/", "shop"), ("shop.test", "/cart", "shop")];
        place.write("shop.yaml", &ingress("shop", &paths, &[COOKIE]))?;
        // Says nothing about balancing: the cookie counts, and none is given out.
        place.ingress("silent.test", "shop", &[])?;
        place.ingress("kept.test", "kept", &[COOKIE, ("affinity-mode", "persistent")])?;
        for (host, target, path) in [
            ("shop.test", "/", "path=/;"),
            ("shop.test", "/cart/1", "path=/cart;"),
            ("kept.test", "/", "path=/;"),
        ] {
            let first = place.get(host, target, &[])?;
            let (pair, attributes) = cookie(&first)?;
            ensure!(pair.starts_with("INGRESSCOOKIE="), "{pair}");
            ensure!(attributes.contains(path), "{attributes}");
            ensure!(attributes.contains("httponly"), "{attributes}");
            for absent in ["expires", "max-age", "domain", "secure", "samesite"] {
                ensure!(!attributes.contains(absent), "{attributes}");
            }
            let endpoint = first.endpoint().context("an endpoint")?;
            is(&place, &format!("{endpoint}=12"), host, &[("Cookie", &pair)])?;
            ensure!(place.get(host, target, &[("Cookie", &pair)])?.header("set-cookie").is_none());
            if host == "shop.test" {
                is(&place, &format!("{endpoint}=12"), "silent.test", &[("Cookie", &pair)])?;
            }
        }
        ensure!(place.get("silent.test", "/", &[])?.header("set-cookie").is_none());
        Ok(())
    });
}

#[test]
fn session_cookie_annotations_are_its_attributes() {
    pass("annotations-session-cookie", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b"]), &[])?;
        place.write("services.yaml", "$SERVICE(shop: a b)\n$SERVICE(odd: a b)")?;
        let all = [
            COOKIE,
            ("session-cookie-name", "route"),
            ("session-cookie-path", "/shop"),
            ("session-cookie-domain", "shop.test"),
            ("session-cookie-expires", "172800"),
            ("session-cookie-max-age", "172801"),
            ("session-cookie-samesite", "none"),
            ("session-cookie-conditional-samesite-none", "true"),
            ("session-cookie-secure", "true"),
        ];
        place.ingress("shop.test", "shop", &all)?;
        let modern = "Mozilla/5.0 Firefox/140.0";
        let (pair, attributes) =
            cookie(&place.get("shop.test", "/", &[("User-Agent", modern)])?)?;
        ensure!(pair.starts_with("route="), "{pair}");
        for part in [
            "path=/shop",
            "domain=shop.test",
            "max-age=172801",
            "secure",
            "httponly",
            "samesite=none",
            "expires=",
        ] {
            ensure!(attributes.contains(part), "{part} is not in {attributes}");
        }
        let old = "Mozilla/5.0 Chrome/55.0";
        let (_, attributes) = cookie(&place.get("shop.test", "/", &[("User-Agent", old)])?)?;
        ensure!(!attributes.contains("samesite"), "{attributes}");

        let odd = [
            COOKIE,
            ("affinity-mode", "sticky"),
            ("session-cookie-name", "a=b"),
            ("session-cookie-path", "/;x"),
            ("session-cookie-domain", "x;y"),
            ("session-cookie-expires", "abc5"),
            ("session-cookie-max-age", "5s"),
            ("session-cookie-samesite", "both"),
            ("session-cookie-conditional-samesite-none", "yes"),
            ("session-cookie-secure", "yes"),
            ("session-cookie-change-on-failure", "yes"),
        ];
        place.ingress("odd.test", "odd", &odd)?;
        let (pair, attributes) = cookie(&place.get("odd.test", "/", &[])?)?;
        ensure!(pair.starts_with("INGRESSCOOKIE="), "{pair}");
        ensure!(attributes.trim() == "path=/; httponly", "{attributes}");
        for (name, _) in &odd[1..] {
            place.warns(&["Ingress default/odd.test", &format!("annotation {name}:")])?;
        }
        Ok(())
    });
}

#[test]
fn change_on_failure_gives_a_client_another_endpoint_for_good() {
    pass("annotations-change-on-failure", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b", "c"]), &[])?;
        place.write("services.yaml", "$SERVICE(change: a b c)\n$SERVICE(stay: a b c)")?;
        place.ingress("stay.test", "stay", &[COOKIE])?;
        place.ingress(
            "change.test",
            "change",
            &[COOKIE, ("session-cookie-change-on-failure", "true")],
        )?;
        for (host, changes) in [("stay.test", false), ("change.test", true)] {
            let first = place.get(host, "/", &[])?;
            let (pair, _) = cookie(&first)?;
            let endpoint = first.endpoint().context("an endpoint")?;
            place.endpoint(&endpoint)?.change(Behaviour::Close);
            let next = place.get(host, "/", &[("Cookie", &pair)])?;
            ensure!(next.endpoint().as_ref() != Some(&endpoint), "{next:?}");
            let is_given = next.header("set-cookie").is_some();
            ensure!(is_given == changes, "{host}: {:?}", next.header("set-cookie"));
            place.endpoint(&endpoint)?.change(Behaviour::Ok);
        }
        Ok(())
    });
}
