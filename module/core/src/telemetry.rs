//! What is known of requests that have ended: counters for Prometheus, and spans for a collector.

pub mod metrics;
pub mod span;
