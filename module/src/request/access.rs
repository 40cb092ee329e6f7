//! What the ACCESS phase keeps with a request.
#![allow(unsafe_code)]

use crate::access::phase::Progress;
use crate::access::question::Question;
use crate::request::Request;

impl<'r> Request<'r> {
    /// Takes the password from what the endpoint gets. nginx's `$remote_user` still has the name.
    pub fn hide_password(&self) {
        self.nginx().hide_authorization();
    }

    /// How far it has come in the ACCESS phase; `None`: it was not there.
    pub fn begun_progress(&self) -> Option<&'r Progress> {
        // SAFETY: null, or in the request's pool.
        unsafe { self.route()?.progress.as_ref() }
    }

    /// Keeps how far it has come; `false` when memory is out.
    pub(crate) fn set_progress(&self, progress: &'r Progress) -> bool {
        self.change_route_or_none(|route| route.progress = progress)
    }

    /// The question to an auth server that this subrequest is; `None`: it is none.
    pub fn question(&self) -> Option<&'r Question> {
        // SAFETY: in the request's pool.
        self.context()?.question.get().map(|question| unsafe { question.as_ref() })
    }

    /// Makes a question of a subrequest; `None` when memory is out.
    pub(crate) fn set_question(&self, question: &'r Question) -> Option<()> {
        self.context_or_new().map(|context| context.question.set(Some(question.into())))
    }
}
