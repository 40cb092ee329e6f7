//! The client's head, made to mean one thing before it is routed.

use super::Request;
use crate::ffi::directives::SrvConf;
use crate::ffi::log::Seldom;
use crate::ffi::memory;
use crate::ffi::table::http_index;
use nginx::sys::{ngx_str_t, ngx_table_elt_t};
use oxigress_core::http::head::{self, Rules, Treatment};
use oxigress_core::http::paths::Refused;
use oxigress_core::http::{forwarded, header};

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
    fn server_conf(&self) -> Option<&'r SrvConf> {
        // SAFETY: a request has one configuration a module of its server, which lives as long as the cycle.
        unsafe { (*self.raw().srv_conf.add(http_index())).cast::<SrvConf>().as_ref() }
    }

    /// The paths that the server refuses: `ingress_refuse_paths`.
    pub fn refused_paths(&self) -> Refused {
        self.server_conf().map(|conf| conf.refused_paths).unwrap_or_default()
    }

    /// Makes the header that nginx's realip looks at (`ingress_proxied_client`) from what a proxy in front says of its
    /// client, followed by the address in the PROXY header, as if that proxy had been the last to add itself. The
    /// client's own header of that name goes.
    pub fn tell_proxied_client(&self) {
        let Some([name, from]) = self.server_conf().map(|conf| conf.proxied_client) else { return };
        if name.len == 0 {
            return;
        }
        let (name, from) = (self.text(name), self.text(from));
        let proxy = self.proxied_address();
        let told = self.all_headers(from).chain(proxy.as_deref());
        let told = told.collect::<Vec<_>>().join(&b", "[..]);
        self.set_header(name, &told);
    }

    /// How many of its headers [`Request::tell_proxied_client`] has added.
    pub fn own_headers(&self) -> usize {
        self.server_conf().map_or(0, |conf| usize::from(conf.proxied_client[0].len > 0))
    }

    /// Removes what clients may not say, and makes `Host` say what the request is routed by. Nothing changes when it
    /// is done again.
    pub fn clean_head(&self) -> Result<(), BadHead> {
        let rules = self.server_conf().and_then(SrvConf::head_rules).unwrap_or(&NO_RULES);
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
        self.remove_headers(is_removed);
        self.limit_upgrade()
    }

    /// Removes the protocols from `Upgrade` that would carry requests nobody has judged.
    fn limit_upgrade(&self) -> Result<(), BadHead> {
        let mut at = self.raw().headers_in.upgrade;
        let mut is_empty = false;
        // SAFETY: null, or an element of the header list, chained to the next of its name.
        while let Some(element) = unsafe { at.as_ref() } {
            let (value, next) = (element.value, element.next);
            if let Some(left) = head::upgrade(self.text(value)) {
                is_empty |= left.is_empty();
                self.set_value(at, &left)?;
            }
            at = next;
        }
        if is_empty {
            let is_upgrade = |name: &[u8]| name.eq_ignore_ascii_case(b"upgrade");
            self.remove_headers_with(|name, value| is_upgrade(name) && value.is_empty());
        }
        Ok(())
    }

    /// RFC 9112 §3.2.2: the host of an absolute target replaces `Host`. What else differs from the host that nginx has
    /// read out of the header (`shop.test:@admin.test`) is replaced too.
    #[inline]
    fn tell_routed_host(&self) -> Result<(), BadHead> {
        let at = self.raw().headers_in.host;
        // SAFETY: null, or an element of the header list.
        let Some(element) = (unsafe { at.as_ref() }) else { return Ok(()) };
        let (value, start) = (self.text(element.value), self.raw().host_start);
        if start.is_null() && value == self.host() {
            return Ok(());
        }
        let target =
            if start.is_null() || start == element.value.data { None } else { self.authority() };
        let said = target.unwrap_or(value);
        let authority = forwarded::authority(self.host(), Some(said));
        match authority == value {
            true => Ok(()),
            false => self.set_value(at, authority),
        }
    }

    /// Host and port of an absolute target, or `:authority`.
    #[cold]
    fn authority(&self) -> Option<&'r [u8]> {
        let raw = self.raw();
        let length = (raw.host_end as usize).checked_sub(raw.host_start as usize)?;
        // SAFETY: nginx found both in one buffer, which lives as long as the request.
        let host = unsafe { std::slice::from_raw_parts(raw.host_start, length) };
        // HTTP/1.1 has the port behind; the host of HTTP/2 includes it.
        let line = self.text(raw.request_line);
        let end = (raw.host_end as usize).checked_sub(line.as_ptr() as usize);
        let Some(rest) =
            end.and_then(|end| line.get(end..)).filter(|rest| rest.first() == Some(&b':'))
        else {
            return Some(host);
        };
        let digits = rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        // SAFETY: as above; the port follows in the same line.
        Some(unsafe { std::slice::from_raw_parts(raw.host_start, length + 1 + digits) })
    }

    /// Puts another value in place of a header's.
    fn set_value(&self, at: *mut ngx_table_elt_t, value: &[u8]) -> Result<(), BadHead> {
        // nginx reads some values up to a NUL, as there is one behind each in its own buffers.
        // SAFETY: the request's pool is alive.
        let copy = unsafe { memory::concat(self.raw().pool, &[value, b"\0"]) };
        let copy = copy.ok_or(BadHead::Refused)?;
        // SAFETY: an element of this request's list, and no reference to it is held.
        unsafe { (*at).value = ngx_str_t { len: value.len(), data: copy.data } };
        Ok(())
    }

    /// The value of `CDN-Loop` for whoever gets the request: the client's, and that it passed through here.
    pub fn loop_trace(&self) -> Option<Vec<u8>> {
        let mut said = self.all_headers(b"cdn-loop").peekable();
        said.peek()?;
        let mut all = said.collect::<Vec<_>>();
        all.push(head::NAME);
        Some(all.join(&b", "[..]))
    }

    /// Says that requests lead in a circle: every ten seconds at most.
    pub fn log_loop(&self) {
        static SELDOM: Seldom = Seldom::new();
        if !SELDOM.is_due() {
            return;
        }
        let host = self.host().escape_ascii();
        self.log_error(format_args!(
            "ingress: a request for \"{host}\" has passed through here {} times (CDN-Loop): 508; an Ingress leads back \
             to this ingress",
            head::MAX_PASSES
        ));
    }
}
