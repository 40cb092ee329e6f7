//! The trace that a request belongs to.

use super::Request;
use crate::logging::spans::Traced;

impl<'r> Request<'r> {
    /// Whether the request is traced, sampled or not. Of a subrequest: never.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.context().is_some_and(|context| context.is_traced.get())
    }

    /// Its trace; `None`: it is not traced.
    pub fn trace(&self) -> Option<&'r Traced> {
        self.is_traced().then(|| self.nginx().pool().kept().next()).flatten()
    }

    /// Gives it a trace, for as long as it lives; `None` when memory is out.
    pub fn set_trace(&self, trace: Traced) -> Option<()> {
        let context = self.context_or_new()?;
        self.nginx().pool().keep(trace)?;
        context.is_traced.set(true);
        Some(())
    }
}
