//! The copy of a request.
#![allow(unsafe_code)]

use crate::request::Request;
use crate::route::mirror::Copied;
use oxigress_core::model::policy::Mirror;
use std::ptr::NonNull;

impl<'r> Request<'r> {
    /// How far its copy has come.
    pub(crate) fn copied(&self) -> Copied {
        self.route().map_or(Copied::Not, |route| match route.copied {
            0 => Copied::Not,
            1 => Copied::Reading,
            _ => Copied::Done,
        })
    }

    /// Notes how far its copy has come.
    pub(crate) fn set_copied(&self, copied: Copied) {
        self.change_route(|route| route.copied = copied as u8);
    }

    /// What this subrequest is a copy for; `None`: it is none.
    pub fn mirror(&self) -> Option<&'r Mirror> {
        // SAFETY: of the policies that the main request holds until its pool goes.
        self.context()?.mirror.get().map(|mirror| unsafe { mirror.as_ref() })
    }

    /// Makes a copy of a subrequest, for what its main request's policies say; `None` when memory is out.
    pub(crate) fn set_mirror(&self, mirror: &'r Mirror) -> Option<()> {
        self.context_or_new().map(|context| context.mirror.set(Some(NonNull::from(mirror))))
    }
}
