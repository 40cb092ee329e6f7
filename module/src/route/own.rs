//! The server of a URL that a policy names: the backend that the controller fills, or where a request names the host, one
//! of this gateway's own.

use crate::request::Request;
use crate::route::{Live, RequestFacts};
use crate::system::log::Seldom;
use oxigress_core::model::policy::AuthHost;
use oxigress_core::model::shorten;
use oxigress_core::own_server::{self, OwnServer, Reach, Url};
use oxigress_core::text::template;

/// Finds the server; `None`, said in the error log: there is none for this request.
pub fn server(request: &Request<'_>, to: &AuthHost, target: Vec<u8>) -> Option<OwnServer> {
    let Some(host) = &to.variable_host else {
        let host = to.host.as_str().as_bytes().to_vec();
        let backend = to.backend.as_str().as_bytes().to_vec();
        return Some(OwnServer { backend, host, https: to.https, target });
    };
    // The controller refuses a host that the client could choose at will.
    let reach = Reach::of(host.parts())?;
    let authority = template::expand(host.parts(), request).unwrap_or_default();
    let namespace = request.route_names().map_or(&b""[..], |names| names.namespace());
    let (is_https, asked) = (to.https, &target[..]);
    let url = Url { is_https, authority: &authority, target: asked, reach, namespace };
    let guard = request.worker().reader().read();
    let live = Live::new(request.worker(), &guard);
    let facts = RequestFacts::of(request);
    match own_server::find(&live, &facts, &url) {
        Ok(server) => Some(server),
        Err(why) => {
            static SELDOM: Seldom = Seldom::new();
            if SELDOM.is_due() {
                // A query may have secrets of the user.
                let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
                let url = String::from_utf8_lossy(&[&authority[..], path].concat()).into_owned();
                let url = shorten(&url).to_owned();
                request.log_error(format_args!(
                    "ingress: {url:?}, which {:?} names, {why}",
                    host.as_str()
                ));
            }
            None
        }
    }
}
