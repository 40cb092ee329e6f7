//! Canaries: weights, headers, cookies, paths.

use super::*;

const CANARY: (&str, &str) = ("canary", "true");

/// A main Service with endpoint `main` and one for the canary on the same host.
fn with_canary(place: &mut Place, rules: &[(&str, &str)]) -> Result<()> {
    let text = ingress("canary", &[("shop.test", "/", "next")], &[&[CANARY], rules].concat());
    place.write("canary.yaml", &text)
}

fn canary_place(directory: &Directory) -> Result<Place> {
    let mut place = Place::new(directory, &ok(&["main", "next", "third"]), &[])?;
    place.write(
        "services.yaml",
        "$SERVICE(main: main)\n$SERVICE(next: next)\n$SERVICE(third: third)",
    )?;
    place.ingress("shop.test", "main", &[])?;
    Ok(place)
}

#[test]
fn a_canary_takes_its_weight() {
    pass("annotations-canary-weight", |directory| {
        let mut place = canary_place(directory)?;
        is(&place, "main=20", "shop.test", &[])?;
        with_canary(&mut place, &[])?;
        is(&place, "main=20", "shop.test", &[])?;
        place.warns(&["Ingress default/canary", "a canary without a rule"])?;
        for (weight, total, expected) in [
            ("0", "100", "main=20"),
            ("100", "100", "next=20"),
            ("100", "50", "next=20"),
            ("1000", "1000", "next=20"),
            ("20%", "100", "main=20"),
        ] {
            let total = ("canary-weight-total", total);
            with_canary(&mut place, &[("canary-weight", weight), total])?;
            is(&place, expected, "shop.test", &[]).with_context(|| weight.to_owned())?;
        }
        place.warns(&["Ingress default/canary", "annotation canary-weight", "20%"])?;
        with_canary(&mut place, &[("canary-weight", "100"), ("canary-weight-total", "lots")])?;
        is(&place, "next=20", "shop.test", &[])?;
        place.warns(&["Ingress default/canary", "annotation canary-weight-total", "lots"])?;

        // 400 draws of one half are within 120 and 280 but for once in 10^15.
        with_canary(&mut place, &[("canary-weight", "50")])?;
        let spread = place.spread(400, "shop.test", "/", &[])?;
        ensure!(spread.values().all(|count| (120..=280).contains(count)), "{}", text(&spread));

        // Weights of several canaries add up.
        let third =
            ingress("third", &[("shop.test", "/", "third")], &[CANARY, ("canary-weight", "50")]);
        place.write("third.yaml", &third)?;
        let spread = place.spread(400, "shop.test", "/", &[])?;
        ensure!(!spread.contains_key("main") && spread.len() == 2, "{}", text(&spread));
        ensure!(spread.values().all(|count| (120..=280).contains(count)), "{}", text(&spread));

        place.controller.remove("third.yaml")?;
        place.controller.remove("canary.yaml")?;
        is(&place, "main=20", "shop.test", &[])
    });
}

#[test]
fn a_canary_is_asked_for_by_header_and_cookie() {
    pass("annotations-canary-rules", |directory| {
        let mut place = canary_place(directory)?;
        let by_header = ("canary-by-header", "X-Next");
        let full = ("canary-weight", "100");
        with_canary(&mut place, &[by_header, ("canary-by-cookie", "next")])?;
        for (name, value, expected) in [
            ("X-Next", "always", "next=3"),
            ("X-Next", "never", "main=3"),
            ("X-Next", "other", "main=3"),
            ("X-Other", "always", "main=3"),
            ("Cookie", "next=always", "next=3"),
            ("Cookie", "next=never", "main=3"),
            ("Cookie", "other=always", "main=3"),
        ] {
            is(&place, expected, "shop.test", &[(name, value)])?;
        }
        with_canary(&mut place, &[by_header, full])?;
        is(&place, "main=3", "shop.test", &[("X-Next", "never")])?;
        is(&place, "next=3", "shop.test", &[("X-Next", "other")])?;

        with_canary(&mut place, &[by_header, ("canary-by-header-value", "v 2")])?;
        is(&place, "next=3", "shop.test", &[("X-Next", "v 2")])?;
        is(&place, "main=3", "shop.test", &[("X-Next", "always")])?;
        with_canary(&mut place, &[by_header, ("canary-by-header-pattern", "^v[23]$")])?;
        is(&place, "next=3", "shop.test", &[("X-Next", "v3")])?;
        is(&place, "main=3", "shop.test", &[("X-Next", "v4")])?;

        // What cannot be read is no rule at all.
        for (name, value) in [("canary-by-header-value", "a;b"), ("canary-by-header-pattern", "(")]
        {
            with_canary(&mut place, &[by_header, (name, value)])?;
            is(&place, "main=3", "shop.test", &[("X-Next", "always")])?;
            is(&place, "main=3", "shop.test", &[("X-Next", value)])?;
            place.warns(&["Ingress default/canary", &format!("annotation {name}")])?;
        }
        let odd = [("canary-by-header", "X Next"), ("canary-by-cookie", "a b")];
        with_canary(&mut place, &odd)?;
        is(&place, "main=3", "shop.test", &[("Cookie", "a b=always")])?;
        for (name, _) in odd {
            place.warns(&["Ingress default/canary", &format!("annotation {name}")])?;
        }
        Ok(())
    });
}

#[test]
fn a_canary_belongs_to_the_paths_that_it_claims() {
    pass("annotations-canary-paths", |directory| {
        let mut place = canary_place(directory)?;
        let full = ("canary-weight", "100");
        let paths = [
            ("shop.test", "/", "main"),
            ("shop.test", "/cart", "main"),
            ("next.test", "/", "next"),
        ];
        place.write("ingress-shop.test.yaml", &ingress("shop.test", &paths, &[]))?;
        let claims = [
            ("shop.test", "/cart", "next"),
            ("shop.test", "/none", "next"),
            ("other.test", "/", "next"),
        ];
        place.write("canary.yaml", &ingress("canary", &claims, &[CANARY, full]))?;
        for (host, target, endpoint) in [
            ("shop.test", "/", "main"),
            ("shop.test", "/cart", "next"),
            ("shop.test", "/none", "main"),
            ("next.test", "/", "next"),
        ] {
            let response = place.get(host, target, &[])?;
            ensure!(
                response.endpoint().as_deref() == Some(endpoint),
                "{host}{target}: {response:?}"
            );
        }
        ensure!(place.get("other.test", "/", &[])?.status == 404);
        place.warns(&["Ingress default/canary", "host other.test path /"])?;
        place.warns(&[
            "Ingress default/canary",
            "path / (Prefix) leads to Service default/main too",
        ])?;

        // Nobody knows what it is: it is neither.
        place.write("canary.yaml", &ingress("canary", &claims, &[("canary", "yes"), full]))?;
        ensure!(place.get("shop.test", "/cart", &[])?.endpoint().as_deref() == Some("main"));
        ensure!(place.get("other.test", "/", &[])?.status == 404);
        place.warns(&["Ingress default/canary", "annotation canary:"])?;
        // Without `canary` the rules say nothing.
        place.write("canary.yaml", &ingress("canary", &claims, &[full]))?;
        ensure!(place.get("other.test", "/", &[])?.endpoint().as_deref() == Some("next"));
        place.warns(&["Ingress default/canary", "canary-weight has no effect"])
    });
}

#[test]
fn sessions_stay_with_a_canary_unless_it_is_legacy() {
    pass("annotations-canary-affinity", |directory| {
        let mut place = canary_place(directory)?;
        place.ingress("shop.test", "main", &[COOKIE])?;
        let by_header = ("canary-by-header", "X-Next");
        // The last one is invalid, which is the default.
        let behaviors =
            [(None, true), (Some("sticky"), true), (Some("legacy"), false), (Some("odd"), true)];
        for (behavior, is_sticky) in behaviors {
            let behavior = behavior.map(|behavior| ("affinity-canary-behavior", behavior));
            let rules: Vec<_> = [by_header].into_iter().chain(behavior).collect();
            with_canary(&mut place, &rules)?;
            let first = place.get("shop.test", "/", &[("X-Next", "always")])?;
            ensure!(first.endpoint().as_deref() == Some("next"), "{first:?}");
            ensure!(first.header("set-cookie").is_some() == is_sticky, "{behavior:?}: {first:?}");
            if is_sticky {
                let (pair, _) = cookie(&first)?;
                is(&place, "next=5", "shop.test", &[("Cookie", &pair)])?;
            }
        }
        // Who is with the main Service stays there.
        let (pair, _) = cookie(&place.get("shop.test", "/", &[])?)?;
        is(&place, "main=5", "shop.test", &[("Cookie", &pair), ("X-Next", "always")])
    });
}
