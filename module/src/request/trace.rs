//! Whether a request is traced.

use super::Request;

impl Request<'_> {
    /// Whether the request is traced, sampled or not: its pool has its trace then. A subrequest never is.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.context().is_some_and(|context| context.is_traced.get())
    }

    /// Notes that its pool has its trace.
    pub fn set_traced(&self) {
        if let Some(context) = self.context_or_new() {
            context.is_traced.set(true);
        }
    }
}
