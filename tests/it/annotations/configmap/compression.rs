//! The keys of Brotli, and of requests to auth servers in the access log.

use super::*;
use oxigress_tests::endpoint::Endpoint;

/// How an answer of this kind is encoded for a client that takes both.
fn encoding(shop: &Shop, kind: &str) -> Result<Option<String>> {
    let request = Request::get("shop.test", "/")
        .header("Accept-Encoding", "gzip, br")
        .header("Answer-Content-Type", kind);
    let answer = get(shop, &request)?;
    ensure!(answer.status == 200, "{answer}");
    let encoding = answer.header("content-encoding");
    if encoding.as_deref() == Some("br") {
        let mut body = Vec::new();
        brotli::BrotliDecompress(&mut &answer.body[..], &mut body)?;
        let body = String::from_utf8(body)?;
        ensure!(body.starts_with("GET / HTTP/1.1\n"), "{body}");
        ensure!(answer.header("vary").as_deref() == Some("Accept-Encoding"), "{answer}");
    }
    Ok(encoding)
}

#[test]
fn brotli_is_as_its_keys_say_and_goes_before_gzip() {
    pass("configmap-brotli", |directory| {
        let mut shop = shop(directory)?;
        ensure!(encoding(&shop, "text/css")?.is_none(), "neither is on");
        let on = ("enable-brotli", "true");
        reload_with(&mut shop, &[on])?;
        // In the reference's list, always, and in no list.
        for (kind, is_in) in [("text/css", true), ("text/html", true), ("image/png", false)] {
            let found = encoding(&shop, kind)?;
            ensure!(found.as_deref() == Some("br").filter(|_| is_in), "{kind}: {found:?}");
        }
        reload_with(&mut shop, &[on, ("brotli-types", "image/png"), ("brotli-level", "9")])?;
        ensure!(encoding(&shop, "image/png")?.as_deref() == Some("br"), "the key's list");
        ensure!(encoding(&shop, "text/css")?.is_none(), "which replaces the default");
        let gzip = ("use-gzip", "true");
        reload_with(&mut shop, &[on, gzip, ("gzip-min-length", "1")])?;
        ensure!(encoding(&shop, "text/css")?.as_deref() == Some("br"), "the client takes both");
        let least = [on, gzip, ("gzip-min-length", "1"), ("brotli-min-length", "100000")];
        reload_with(&mut shop, &least)?;
        ensure!(encoding(&shop, "text/css")?.as_deref() == Some("gzip"), "too short for Brotli");
        reload_with(&mut shop, &[])?;
        ensure!(encoding(&shop, "text/css")?.is_none(), "off again");
        Ok(())
    });
}

#[test]
fn requests_to_auth_servers_are_logged_where_the_key_says_so() {
    pass("configmap-auth-log", |directory| {
        let mut shop = shop(directory)?;
        let auth = Endpoint::start("auth")?;
        let url = format!("http://127.0.0.1:{}/check", auth.address.port());
        let format = ("log-format-upstream", "asked $uri for $request_uri: $status");
        let url = ("global-auth-url", url.as_str());
        let ask = |shop: &Shop, path: &str| -> Result<()> {
            let answer = get(shop, &Request::get("shop.test", path))?;
            ensure!(answer.status == 200, "{answer}");
            until("a line of the access log", || {
                ensure!(logged(shop, &format!("asked {path} for {path}: 200")) == 1);
                Ok(())
            })
        };
        let told = |shop: &Shop| logged(shop, "asked ingress-auth-http for /check: 200");
        reload_with(&mut shop, &[format, url])?;
        ask(&shop, "/silent")?;
        ensure!(told(&shop) == 0, "{}", shop.controller.output_tail());
        reload_with(&mut shop, &[format, url, ("enable-auth-access-log", "true")])?;
        ask(&shop, "/told")?;
        // It ends before the request that it is for.
        ensure!(told(&shop) == 1, "{}", shop.controller.output_tail());
        ensure!(auth.requests() == 2, "{} requests", auth.requests());
        Ok(())
    });
}
