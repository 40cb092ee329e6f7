//! nginx module.
