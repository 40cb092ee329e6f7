//! A request that another backend answers in the place of a status.

use crate::conf::Declared;
use crate::request::Request;

impl Request<'_> {
    /// The status for which nginx has sent the request to an error page, once: from then on the status is what the
    /// page says.
    pub fn take_error_status(&self) -> Option<u16> {
        let raw = self.nginx();
        let status = raw.error_status();
        raw.set_error_status(0);
        if !raw.has_read_body() && !raw.discards_body() {
            // nginx thinks that the body is of no use, so that a client who waits to be asked for it would wait.
            raw.set_expect_tested(false);
        } else if raw.reads_body() {
            // The endpoint answered before it had all: what it had is gone.
            raw.forget_body();
        }
        u16::try_from(status).ok().filter(|status| *status != 0).map(|status| {
            // Every endpoint was busy, which nginx calls a bad gateway.
            let mut was_busy = false;
            self.change_route(|route| was_busy = std::mem::take(&mut route.is_busy));
            if was_busy { 503 } else { status }
        })
    }

    /// Notes that ACCESS has let the request in.
    pub fn let_in(&self) {
        self.change_route(|route| route.is_let_in = true);
    }

    /// ACCESS has let the request in.
    pub fn is_let_in(&self) -> bool {
        self.route().is_some_and(|route| route.is_let_in)
    }

    /// The status that another backend answers.
    pub fn error_status(&self) -> Option<u16> {
        self.route().map(|route| route.error).filter(|status| *status != 0)
    }

    /// The request is in the `ingress_error` location.
    pub fn is_error(&self) -> bool {
        self.nginx().is_error_location()
    }

    /// What the client sent is there to be sent on.
    pub fn has_body(&self) -> bool {
        self.nginx().has_body()
    }
}
