//! What nginx reads of the library: its tables, and what the directives set up.

pub mod directives;
pub mod features;
pub mod process;
pub mod table;
