//! The words for what an API server, or the way to it, answers.

/// What an API server or the way to it says, in one line.
pub fn explain(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => format!("{}: {}", status.code, status.message),
        error => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    };
    oxigress_core::text::line::one_line(&text)
}
