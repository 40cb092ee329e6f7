//! Texts that cannot be served.

/// The error of a value that cannot be served: its message names the value and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    message: String,
}

impl Invalid {
    /// An error whose `message` is lower case and names the remedy.
    pub fn new(message: impl Into<String>) -> Self {
        Invalid { message: message.into() }
    }
}
