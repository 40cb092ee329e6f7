//! What a script leaves to later phases: its variables, which texts of its policies have, and the location of an `if`.

use crate::request::Request;
use oxigress_core::decision::Variable;
use oxigress_core::model::policy::script::{IfLocation, SharedIfLocation};

/// Kept in the pool of a request.
struct Kept {
    request: *const nginx::Request,
    all: Vec<Variable>,
}

/// Kept in the pool of a request.
struct KeptIf {
    request: *const nginx::Request,
    location: SharedIfLocation,
}

impl<'r> Request<'r> {
    /// Has it stay in the location of an `if` as long as its route holds; `false` when memory is out.
    pub fn keep_if_location(&self, location: SharedIfLocation) -> bool {
        let kept = KeptIf { request: std::ptr::from_ref(self.nginx()), location };
        self.nginx().pool().keep(kept).is_some()
            && self.change_route_or_none(|route| route.is_of_if = true)
    }

    /// The location of an `if` in which it is, within that of its policies.
    #[inline]
    pub fn if_location(&self) -> Option<&'r IfLocation> {
        match self.route()?.is_of_if {
            true => self.kept_if_location(),
            false => None,
        }
    }

    #[cold]
    fn kept_if_location(&self) -> Option<&'r IfLocation> {
        // The newest come first.
        let mut all = self.nginx().pool().kept::<KeptIf>();
        Some(&*all.find(|kept| std::ptr::eq(kept.request, self.nginx()))?.location)
    }

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
