//! What policies say about requests, as endpoints see them.

use crate::request::Request;
use oxigress_core::http::reverse;
use oxigress_core::model::policy::script::VARIABLES;
use oxigress_core::model::policy::{ConnectionHeader, Policies, ProxyRedirect};
use oxigress_core::text::template;
use oxigress_core::text::template::Values;
use std::borrow::Cow;

/// Writes the policies' headers into a request that is about to be passed on.
pub fn prepare(request: &Request<'_>, policies: &Policies) {
    for header in &policies.request_headers {
        // One that turns out to have a line break is not sent, and the client's own is gone.
        let value = template::expand(header.value.parts(), request).unwrap_or_default();
        request.set_header(header.name.as_str().as_bytes(), &value);
    }
    for header in &policies.added_request_headers {
        let value = template::expand(header.value.parts(), request).unwrap_or_default();
        // A value whose variables are empty is not sent.
        if !value.is_empty() || header.value.as_str().is_empty() {
            request.add_header(header.name.as_str().as_bytes(), &value);
        }
    }
}

/// Parameters that policies have for FastCGI beside nginx.conf's.
pub fn fastcgi_parameters<'p>(
    request: &Request<'_>,
    policies: &'p Policies,
) -> Vec<(&'p [u8], Vec<u8>)> {
    let Some(proxy) = &policies.proxy else { return Vec::new() };
    let mut script_name = request.path().to_vec();
    if let Some(index) = proxy.fastcgi_index.as_ref().filter(|_| script_name.ends_with(b"/")) {
        script_name.extend_from_slice(index.as_str().as_bytes());
    }
    let values = FastcgiValues { request, script_name };
    let expanded = proxy.fastcgi_params.iter().map(|parameter| {
        // One that turns out to have a line break is not sent, and nginx.conf's or the client's own is gone.
        let value = template::expand(parameter.value.parts(), &values).unwrap_or_default();
        (parameter.name.as_str().as_bytes(), value)
    });
    expanded.collect()
}

/// nginx lets its own configuration alone ask for `$fastcgi_script_name`: nobody finds it by its name.
struct FastcgiValues<'a, 'r> {
    request: &'a Request<'r>,
    script_name: Vec<u8>,
}

impl Values for FastcgiValues<'_, '_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match name {
            b"fastcgi_script_name" => Some(Cow::Borrowed(&self.script_name)),
            name => Values::variable(self.request, name),
        }
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.request.capture(number)
    }

    fn spend(&self, bytes: usize) -> bool {
        self.request.spend(bytes)
    }
}

/// `Host` as the endpoint sees it; `None`: as the client said.
pub fn host(request: &Request<'_>) -> Option<Vec<u8>> {
    let host = request.policies()?.source.upstream_host.as_ref()?;
    let has_own = host.as_str().contains(VARIABLES);
    // Of a snippet's variable that is empty the client's is no substitute: nginx sends none.
    template::expand(host.parts(), request).filter(|host| has_own || !host.is_empty())
}

/// `Connection` as the endpoint sees it; empty: no such header, so that connections are kept.
pub fn connection(request: &Request<'_>) -> &'static [u8] {
    let policies = request.policies();
    match policies.and_then(|policies| policies.source.proxy.as_ref()?.connection) {
        Some(ConnectionHeader::Close) => b"close",
        Some(ConnectionHeader::KeepAlive) => b"keep-alive",
        None if request.has_upgrade() => b"upgrade",
        None => b"",
    }
}

/// What becomes of a cookie of an endpoint; `None`: nothing.
pub fn cookie(policies: &Policies, value: &[u8]) -> Option<Vec<u8>> {
    let proxy = policies.proxy.as_ref()?;
    let flags = proxy.cookie_flags.as_deref().unwrap_or_default();
    reverse::cookie(value, proxy.cookie_domain.as_ref(), proxy.cookie_path.as_ref(), flags)
}

/// What becomes of a URL that an endpoint sends the client to; `None`: nothing.
pub fn location(
    request: &Request<'_>,
    policies: &Policies,
    url: &[u8],
    endpoint: &[u8],
) -> Option<Vec<u8>> {
    match policies.proxy.as_ref()?.redirect.as_ref()? {
        ProxyRedirect::Off => None,
        ProxyRedirect::Default => {
            let host = host(request).unwrap_or_default();
            reverse::own_path(url, &[endpoint, &host]).map(<[u8]>::to_vec)
        }
        ProxyRedirect::Replace(replacement) => reverse::location(url, replacement),
    }
}
