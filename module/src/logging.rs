//! What is said about requests that have ended: metrics, spans, and the variables that access logs are made of.

pub mod lines;
pub mod observe;
pub mod texts;
pub mod variable;
pub mod variables;
