//! The variables of a script, which later texts of its policies have.

use crate::request::Request;
use oxigress_core::decision::Variable;

/// Kept in the pool of a request.
struct Kept {
    request: *const nginx::Request,
    all: Vec<Variable>,
}

impl<'r> Request<'r> {
    /// Keeps them in place of those that a script of another rule had; `false` when memory is out.
    pub fn keep_variables(&self, all: Vec<Variable>) -> bool {
        let kept = Kept { request: std::ptr::from_ref(self.nginx()), all };
        self.nginx().pool().keep(kept).is_some()
    }

    /// The value of one, by its whole name.
    pub fn script_variable(&self, name: &[u8]) -> Option<&'r [u8]> {
        let found = self.script_variables().iter().find(|(known, _)| known.as_bytes() == name)?;
        Some(&found.1)
    }

    /// All of them.
    pub fn script_variables(&self) -> &'r [Variable] {
        // A subrequest has the pool of its main request. The newest come first.
        let mut all = self.nginx().pool().kept::<Kept>();
        let kept = all.find(|kept| std::ptr::eq(kept.request, self.nginx()));
        kept.map_or(&[], |kept| &kept.all)
    }
}
