//! Changes of the head of a response, before it is sent.

use crate::request::Request;
use oxigress_core::http::header;

impl Request<'_> {
    /// The response has this header and no other of the name. `false` for a header that is nginx's own, a value with
    /// a line break, and when memory is out.
    pub fn set_response_header(&self, name: &[u8], value: &[u8]) -> bool {
        !header::is_reserved(name)
            && header::is_value(value)
            && self.nginx().set_response_header(name, value).is_some()
    }

    /// The response has this header, whatever others of the name. `false` as for
    /// [`Request::set_response_header`], but for reserved names: the caller knows what it does.
    pub fn add_response_header(&self, name: &[u8], value: &[u8]) -> bool {
        header::is_value(value) && self.nginx().push_response_header(name, value).is_some()
    }

    /// The response has no header of this name.
    pub fn remove_response_header(&self, name: &[u8]) {
        self.nginx().remove_response_header(name);
    }

    /// One of the response's headers of this name says so.
    pub fn has_response_header(&self, name: &[u8], mut says: impl FnMut(&[u8]) -> bool) -> bool {
        let mut found = false;
        for header in self.nginx().response_headers().filter(|header| header.is_there()) {
            found |= header.name().eq_ignore_ascii_case(name) && says(header.value());
        }
        found
    }
}
