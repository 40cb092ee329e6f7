//! What becomes of an Ingress: the result of translation that status and Events are about.

/// What an Ingress of ours comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// Nothing of it is served.
    Refused,
    /// It is served, or a part of it.
    Served,
}
