//! This process and others: signals, the time before its end, the table of all processes.

pub mod drain;
pub mod signals;
pub mod table;
