//! What nginx reads of the library: its tables, and what the directives set up.

pub mod directives;
pub mod table;
