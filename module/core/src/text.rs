//! Text that users or clients wrote: templates with variables, and foreign text in log lines.

mod count;
pub mod hex;
pub mod invalid;
pub mod line;
pub mod log;
pub mod percent;
pub mod query;
pub mod template;

pub use count::count;
