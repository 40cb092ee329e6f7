//! What endpoints say of themselves, as clients are to see it.

use crate::headers::requests;
use crate::request::Request;
use nginx::{Rewriter, Rewritten};
use oxigress_core::model::policy::ProxyRedirect;

/// Puts the policies' replacements in the place of nginx.conf's, where the endpoint was not asked yet.
pub fn install(request: &Request<'_>) {
    let proxy = request.policies().and_then(|policies| policies.source.proxy.as_ref());
    let Some((proxy, upstream)) = proxy.zip(request.nginx().upstream()) else { return };
    let has_flags = proxy.cookie_flags.as_ref().is_some_and(|flags| !flags.is_empty());
    if has_flags || proxy.cookie_domain.is_some() || proxy.cookie_path.is_some() {
        upstream.rewrite_cookies::<Replacements>();
    }
    match proxy.redirect {
        None => {}
        Some(ProxyRedirect::Off) => upstream.keep_redirects(),
        Some(_) => upstream.rewrite_redirects::<Replacements>(),
    }
}

struct Replacements;

impl Rewriter for Replacements {
    fn cookie(request: &nginx::Request, value: &[u8]) -> Rewritten {
        let request = Request::of(request);
        let policies = request.as_ref().and_then(Request::policies);
        let cookie = policies.and_then(|policies| requests::cookie(&policies.source, value));
        cookie.map_or(Rewritten::Not, Rewritten::To)
    }

    fn redirect(raw: &nginx::Request, url: &[u8]) -> Rewritten {
        let Some(request) = Request::of(raw) else { return Rewritten::Not };
        let Some(policies) = request.policies() else { return Rewritten::Not };
        let endpoint = raw.upstream().map_or(&[][..], nginx::Upstream::peer_name);
        let url = requests::location(&request, &policies.source, url, endpoint);
        url.map_or(Rewritten::Not, Rewritten::To)
    }
}
