//! The path and query of a request: what a pattern's groups matched, and another path in place of the client's.

use crate::request::Request;
use crate::system::log::Seldom;
use oxigress_core::model::policy::script::VARIABLES;
use oxigress_core::text::query;
use oxigress_core::text::template::{MAX_BYTES_OF_REQUEST, Values};
use std::borrow::Cow;

impl<'r> Request<'r> {
    /// The query, without the question mark.
    pub fn args(&self) -> &'r [u8] {
        self.nginx().args()
    }

    /// `scheme://` and the `Host` header as it was sent; `None` without one.
    pub fn origin(&self) -> Option<Vec<u8>> {
        let scheme: &[u8] = if self.is_https() { b"https://" } else { b"http://" };
        let host = self.host_header().unwrap_or(self.host());
        (!host.is_empty()).then(|| [scheme, host].concat())
    }

    /// Puts a path, decoded, and a query in place of the client's, as `rewrite` does; `false` when memory is out.
    pub fn set_uri(&self, path: &[u8], args: &[u8]) -> bool {
        // The endpoint gets what stands there now, with all escaped that has to be.
        self.nginx().set_path(path, args).is_some()
    }

    /// Says that a pattern of this host had no answer: every ten seconds at most, since each request may.
    pub fn log_no_answer(&self) {
        static SELDOM: Seldom = Seldom::new();
        if SELDOM.is_due() {
            self.log_error(format_args!(
                "ingress: a regular-expression path of this host exceeded the matching limit, answered 500; simplify it"
            ));
        }
    }
}

impl Values for Request<'_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match name {
            // nginx has it, but does not let it be looked up by its name.
            b"proxy_add_x_forwarded_for" => {
                let mut all: Vec<_> = self.all_headers(b"x-forwarded-for").collect();
                all.push(Request::variable(self, b"remote_addr").unwrap_or_default());
                Some(Cow::Owned(all.join(&b", "[..])))
            }
            name => match name.strip_prefix(b"arg_") {
                Some(name) => query::parameter(self.args(), name).map(Cow::Borrowed),
                None => match Request::variable(self, name) {
                    // A script's, which nginx does not know.
                    None if name.starts_with(VARIABLES.as_bytes()) => {
                        self.script_variable(name).map(Cow::Borrowed)
                    }
                    value => value.map(Cow::Borrowed),
                },
            },
        }
    }

    fn spend(&self, bytes: usize) -> bool {
        self.count_expanded(bytes).is_some_and(|all| all <= MAX_BYTES_OF_REQUEST)
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.captured(number)
    }
}
