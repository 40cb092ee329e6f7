//! A FastCGI request that nginx has written, and the parameters that its route has for it.

use crate::headers::requests;
use crate::request::Request;
use oxigress_core::http::fastcgi;

/// Puts the route's parameters in, if this goes to a FastCGI endpoint and the route has any; nginx has written the request
/// and not begun to send it. `None`: it cannot be done, and the request must not be sent as it is.
#[inline]
pub fn complete(request: &Request<'_>) -> Option<()> {
    let Some(policies) = request.policies().map(|policies| &policies.source) else {
        return Some(());
    };
    if policies.proxy.as_ref().is_none_or(|proxy| proxy.fastcgi_params.is_empty()) {
        return Some(());
    }
    let upstream = request.nginx().upstream()?;
    // What nginx's module calls such a request.
    if upstream.schema() != b"fastcgi://" {
        return Some(());
    }
    // All of the parameters are in the first buffer, and the head of the body's first record.
    let added = requests::fastcgi_parameters(request, policies);
    let changed = upstream.look_at_request(|written| fastcgi::with_parameters(written, &added));
    request.nginx().replace_request(&changed??)
}
