//! Headers of requests and responses.

use crate::basic::handle::{List, fields, handle};
use crate::sys::ngx_str_t;

handle! {
    /// A header: name and value.
    Header of ngx_table_elt_t
}

fields! { Header {
    /// Its name, as it was sent.
    text name = key;
    /// Its value.
    text value = value;
    /// What is 0 once it was taken out of its response.
    get hash: usize = hash;
    /// 0 takes it out of its response.
    set set_hash: usize = hash;
}}

impl Header {
    /// It is not taken out of its list: a response's header with a hash of 0 is not sent.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.hash() != 0
    }

    /// Takes it out of the response that it is of.
    #[inline]
    pub fn remove(&self) {
        self.set_hash(0);
    }

    /// Another value, in nginx's own memory: it stays as long as the request of the header.
    pub(crate) fn put_value(&self, value: ngx_str_t) {
        self.poke(|raw| raw.value = value);
    }
}

/// The headers of a list, in their order.
pub type Headers<'r> = List<'r, Header>;

/// Headers that nginx finds by pointers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of headers")]
pub enum Sole {
    Authorization,
    ForwardedFor,
    Referer,
    Upgrade,
    UserAgent,
}
