//! Changes of what a client's head says, before an endpoint sees it.

use crate::request::Request;
use oxigress_core::http::header;

impl<'r> Request<'r> {
    /// Gives the endpoint this header, in place of all that the client sent alike: `-` and `_` are one, since some
    /// endpoints read them so. An empty value takes the client's away. `false`, and the client's are gone
    /// as well, for what no header may be: one that says how long a message is or where it goes, a value with a line
    /// break; and when memory is out.
    pub fn set_header(&self, name: &[u8], value: &[u8]) -> bool {
        if header::is_reserved(name) {
            return false;
        }
        self.remove_header(name);
        if value.is_empty() {
            return true;
        }
        header::is_value(value) && self.nginx().push_header(name, value).is_some()
    }

    /// Gives the endpoint this header beside those that the client sent. `false` for what no header may be, and when memory
    /// is out.
    pub fn add_header(&self, name: &[u8], value: &[u8]) -> bool {
        !header::is_reserved(name)
            && header::is_value(value)
            && self.nginx().push_header(name, value).is_some()
    }

    /// Takes all headers away that are alike: `-` and `_` are one.
    pub fn remove_header(&self, name: &[u8]) {
        if header::is_reserved(name) {
            return;
        }
        self.nginx().remove_headers(|key, _| header::is_alike(key, name));
    }
}
