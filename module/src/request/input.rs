//! A client's headers, as policies change them at the end of REWRITE, before anything else looks at them.

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

    fn has_input(&self, edit: &InputEdit) -> bool {
        self.nginx().headers().any(|header| is_about(edit, header.name()))
    }

    /// One that turns out to have a line break is not sent, and the client's own is gone.
    fn input(&self, edit: &InputEdit) -> Vec<u8> {
        template::expand(edit.value.parts(), self).unwrap_or_default()
    }
}
