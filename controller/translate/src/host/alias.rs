//! Hosts that follow another: aliases, and names with and without `www.`.
//!
//! Source:  ingress-nginx's annotations: server-alias of the oldest Ingress that has any; from-to-www-redirect of any.
//!          The owner of a host gives its aliases (`aliases.rs`); whether one holds is decided by `owner::decide`.

use crate::claim::age::Age;
use oxigress_core::model::HostPattern;
use oxigress_objects::Key;

/// A host that follows another. The order puts those of one name together, oldest first, and aliases before redirects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// The host that the alias stands for.
    pub host: HostPattern,
    /// The Ingress that says so.
    pub age: Age,
    /// It sends its clients there; else it has the same rules.
    pub is_redirected: bool,
}

impl Alias {
    /// What comes before every other alias of this name.
    pub fn first_of(host: &HostPattern) -> Self {
        let age = Age { created: i64::MIN, key: Key::new("", "") };
        Alias { host: host.clone(), age, is_redirected: false }
    }

    /// The annotation that says so.
    pub fn annotation(&self) -> &'static str {
        if self.is_redirected { "from-to-www-redirect" } else { "server-alias" }
    }
}
