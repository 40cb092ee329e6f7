//! The rows of the keys, a file for each group of docs/configmap.md.

pub mod access;
pub mod listening;
pub mod logging;
pub mod others;
pub mod process;
pub mod proxying;
pub mod streams;
#[cfg(test)]
mod table;
pub mod tls;
