//! A client's headers, as policies change them before an endpoint or an auth server sees them.

use crate::request::Request;
use oxigress_core::http::input::is_about;
use oxigress_core::model::policy::InputEdit;
use oxigress_core::text::template;

impl Request<'_> {
    /// Carries out the changes, in their order.
    pub fn change_headers(&self, edits: &[InputEdit]) {
        for edit in edits {
            if edit.prefix().is_some() {
                self.nginx().remove_headers(|name, _| is_about(edit, name));
            } else if !edit.replaces_only || self.has_input(edit) {
                self.set_header(edit.name.as_str().as_bytes(), &self.input(edit));
            }
        }
    }

    /// The headers that the changes make, for an auth server: it is asked before they are carried out. Empty: there is none.
    pub fn changed_headers<'e>(&self, edits: &'e [InputEdit]) -> Vec<(&'e [u8], Vec<u8>)> {
        let mut all: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for edit in edits {
            let known = all.iter().find(|(name, _)| is_about(edit, name));
            let is_there =
                known.map_or_else(|| self.has_input(edit), |(_, value)| !value.is_empty());
            if edit.replaces_only && !is_there {
                continue;
            }
            all.retain(|(name, _)| !is_about(edit, name));
            if edit.prefix().is_none() {
                all.push((edit.name.as_str().as_bytes(), self.input(edit)));
            }
        }
        all
    }

    fn has_input(&self, edit: &InputEdit) -> bool {
        self.nginx().headers().any(|header| is_about(edit, header.name()))
    }

    /// One that turns out to have a line break is not sent, and the client's own is gone.
    fn input(&self, edit: &InputEdit) -> Vec<u8> {
        template::expand(edit.value.parts(), self).unwrap_or_default()
    }
}
