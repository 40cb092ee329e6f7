//! The client's head, made to mean one thing before it is routed.

use crate::conf::Http;
use crate::conf::SrvConf;
use crate::request::Request;
use crate::system::log::Seldom;
use nginx::Header;
use oxigress_core::http::head::{self, Rules, Treatment};
use oxigress_core::http::paths::Refused;
use oxigress_core::http::{forwarded, header};
use std::borrow::Cow;

static NO_RULES: Rules = Rules::NONE;

/// Most headers that one request's `Connection` may name.
const MAX_NAMED: usize = 64;

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// `Connection` names too many headers, or memory is out.
    Refused,
    /// The request has passed through here too often.
    Loop,
}

impl<'r> Request<'r> {
    fn server_conf(&self) -> &'r SrvConf {
        self.nginx().server_conf::<Http>()
    }

    /// The paths that the server refuses: `ingress_refuse_paths`.
    pub fn refused_paths(&self) -> Refused {
        self.server_conf().refused_paths
    }

    /// Makes the header that nginx's realip looks at (`ingress_proxied_client`) from what a proxy in front says of its
    /// client, followed by the address in the PROXY header, as if that proxy had been the last to add itself. The
    /// client's own header of that name goes.
    pub fn tell_proxied_client(&self) {
        let [name, from] = &self.server_conf().proxied_client;
        if name.is_empty() {
            return;
        }
        let (name, from) = (name.bytes(), from.bytes());
        let proxy = self.proxied_address();
        let told = self.all_headers(from).chain(proxy.as_deref());
        let told = told.collect::<Vec<_>>().join(&b", "[..]);
        self.set_header(name, &told);
    }

    /// How many of its headers [`Request::tell_proxied_client`] has added.
    pub fn own_headers(&self) -> usize {
        usize::from(!self.server_conf().proxied_client[0].is_empty())
    }

    /// Removes what clients may not say, and makes `Host` say what the request is routed by. Nothing changes when it
    /// is done again.
    pub fn clean_head(&self) -> Result<(), BadHead> {
        let rules = self.server_conf().head_rules().unwrap_or(&NO_RULES);
        let (mut passes, mut is_clean) = (0, true);
        for (name, value) in self.headers() {
            match rules.treatment(name) {
                Treatment::Pass => {}
                Treatment::Connection if head::is_plain_connection(value) => {}
                Treatment::Loop => passes += head::passes(value),
                _ => is_clean = false,
            }
        }
        if passes >= head::MAX_PASSES {
            return Err(BadHead::Loop);
        }
        if !is_clean {
            self.clean_closely(rules)?;
        }
        self.tell_routed_host()
    }

    #[cold]
    fn clean_closely(&self, rules: &Rules) -> Result<(), BadHead> {
        let is_trusted = self.has_trusted_peer();
        let mut named = Vec::new();
        for value in self.all_headers(b"connection") {
            named.extend(head::named_by_connection(value).map(<[u8]>::to_vec).take(MAX_NAMED + 1));
            if named.len() > MAX_NAMED {
                return Err(BadHead::Refused);
            }
        }
        let is_removed = |name: &[u8]| match rules.treatment(name) {
            Treatment::Remove => true,
            Treatment::RemoveUntrusted => !is_trusted,
            _ => named.iter().any(|named| header::is_alike(name, named)),
        };
        self.nginx().remove_headers(|name, _| is_removed(name));
        self.limit_upgrade()
    }

    /// Removes the protocols from `Upgrade` that would carry requests nobody has judged.
    fn limit_upgrade(&self) -> Result<(), BadHead> {
        let is_upgrade = |name: &[u8]| name.eq_ignore_ascii_case(b"upgrade");
        let mut is_empty = false;
        for header in self.nginx().headers().filter(|header| is_upgrade(header.name())) {
            if let Some(left) = head::upgrade(header.value()) {
                is_empty |= left.is_empty();
                self.set_value(header, &left)?;
            }
        }
        if is_empty {
            self.nginx().remove_headers(|name, value| is_upgrade(name) && value.is_empty());
        }
        Ok(())
    }

    /// RFC 9112 §3.2.2: the host of an absolute target replaces `Host`. What else differs from the host that nginx has
    /// read out of the header (`shop.test:@admin.test`) is replaced too.
    #[inline]
    fn tell_routed_host(&self) -> Result<(), BadHead> {
        let Some(header) = self.nginx().host_header() else { return Ok(()) };
        let (value, target) = (header.value(), self.nginx().target_host());
        if target.is_none() && value == self.host() {
            return Ok(());
        }
        // In HTTP/2 and 3 nginx finds it in the header that it makes of `:authority`.
        let target = target.filter(|host| host.as_ptr() != value.as_ptr());
        let said = target.map_or(value, |host| self.authority(host));
        let authority = forwarded::authority(self.host(), Some(said));
        match authority == value {
            true => Ok(()),
            false => self.set_value(header, authority),
        }
    }

    /// Host and port of an absolute target, or `:authority`, whose host this is.
    #[cold]
    fn authority(&self, host: &'r [u8]) -> &'r [u8] {
        // HTTP/1.1 has the port behind; the host of HTTP/2 includes it.
        let line = self.nginx().request_line();
        let start = host.as_ptr().addr().checked_sub(line.as_ptr().addr());
        let Some(rest) = start.and_then(|start| line.get(start..)) else { return host };
        let digits = match rest.get(host.len()..) {
            Some([b':', digits @ ..]) => digits.iter().take_while(|byte| byte.is_ascii_digit()),
            _ => return host,
        };
        rest.get(..host.len() + 1 + digits.count()).unwrap_or(host)
    }

    /// Puts another value in place of a header's.
    fn set_value(&self, header: &Header, value: &[u8]) -> Result<(), BadHead> {
        self.nginx().set_header_value(header, value).ok_or(BadHead::Refused)
    }

    /// The value of `CDN-Loop` for whoever gets the request: the client's, and behind it our `own`.
    pub fn loop_trace(&self, own: &'static [u8]) -> Cow<'static, [u8]> {
        let mut all = self.all_headers(b"cdn-loop").collect::<Vec<_>>();
        if all.is_empty() {
            return Cow::Borrowed(own);
        }
        all.push(own);
        Cow::Owned(all.join(&b", "[..]))
    }

    /// Whether it has passed through here before, by its `CDN-Loop`.
    pub fn has_passed_before(&self) -> bool {
        self.all_headers(b"cdn-loop").any(|value| head::passes(value) > 0)
    }

    /// Says that requests lead in a circle: every ten seconds at most.
    pub fn log_loop(&self) {
        static SELDOM: Seldom = Seldom::new();
        if !SELDOM.is_due() {
            return;
        }
        let host = self.host().escape_ascii();
        self.log_error(format_args!(
            "ingress: request loop: a request for \"{host}\" passed this gateway {} times (CDN-Loop), answered 508; a backend \
             of this host points back to this gateway",
            head::MAX_PASSES
        ));
    }
}
