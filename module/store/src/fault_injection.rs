//! Fault injection: places where a test ends the process, and faults that a checker must find.

pub(super) mod failpoint;
pub(super) mod planted;
