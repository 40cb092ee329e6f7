//! What a claim consists of, whoever makes it: its age, which decides between two of them, the port
//! of a Service that it leads to, and the policies that hold for it.

pub(super) mod age;
pub(super) mod backend_ref;
pub(super) mod policies;
pub(super) mod well_known;
