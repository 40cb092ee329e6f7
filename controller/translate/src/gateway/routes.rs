//! What one route means: to which listeners it attaches, which requests its rules match, and to which backends they lead.
//!
//! ReferenceGrants, Policies, BackendTLSPolicies and the limits of namespaces are read here, since they decide about that.

pub(super) mod attach;
pub(super) mod charge;
pub(super) mod filter;
pub(super) mod grants;
pub(super) mod policies;
pub(super) mod room;
pub(super) mod route;
pub(super) mod target;
pub(super) mod tls_policy;
