//! The words for what an API server, or the way to it, answers.

use oxigress_core::text::line::{one_line, with_causes};

/// What an API server or the way to it says, in one line.
pub fn explain(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => format!("{}: {}", status.code, status.message),
        error => with_causes(error),
    };
    one_line(&text)
}
