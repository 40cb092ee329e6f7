//! What the access log says about a request.

use crate::request::Request;
use nginx::{Header, VariableIndex, wall_clock, with_log_time};

pub use nginx::Sole;

/// A request's attempt at an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'r> {
    /// The address and port of the endpoint.
    pub address: &'r [u8],
    /// Bytes of the response's body.
    pub length: u64,
    /// Milliseconds until the response had been read; `None`: there was none.
    pub response_ms: Option<u64>,
    /// Status of the response; `None`: there was none.
    pub status: Option<u64>,
}

impl<'r> Request<'r> {
    /// The value of a header that the client sent at most once; `None`: it sent several.
    #[inline]
    pub fn sole_header(&self, header: Sole) -> Option<Option<&'r [u8]>> {
        Some(self.seen.sole_header(header)?.map(Header::value))
    }

    /// The value of nginx's variable with an index that was made when the configuration was read; `None`: it has none.
    pub fn variable_at(&self, index: VariableIndex) -> Option<&'r [u8]> {
        self.seen.current_variable(index)
    }

    /// The client's address in text.
    #[inline]
    pub fn client_text(&self) -> &'r [u8] {
        self.seen.connection().address_text()
    }

    /// Writes the time of day, as nginx's logs have it.
    #[inline]
    pub fn write_local_time(&self, out: &mut Vec<u8>) {
        with_log_time(self.seen.event_loop(), |time| out.extend_from_slice(time));
    }

    /// The request line; `None`: nginx has to make one up.
    #[inline]
    pub fn request_line(&self) -> Option<&'r [u8]> {
        Some(self.seen.request_line()).filter(|line| !line.is_empty())
    }

    /// The status that was answered; `None`: none was.
    #[inline]
    pub fn status(&self) -> Option<u16> {
        let status = match self.seen.error_status() {
            0 => self.seen.status(),
            status => status,
        };
        u16::try_from(status).ok().filter(|status| *status != 0)
    }

    /// Bytes that were sent behind the response's header.
    #[inline]
    pub fn sent_body(&self) -> u64 {
        let header = i64::try_from(self.seen.header_size()).unwrap_or(i64::MAX);
        let sent = self.seen.connection().sent();
        u64::try_from(sent.saturating_sub(header)).unwrap_or(0)
    }

    /// Bytes of the request, header and body.
    #[inline]
    pub fn length(&self) -> u64 {
        u64::try_from(self.seen.length()).unwrap_or(0)
    }

    /// Milliseconds since the request's first bytes were read.
    #[inline]
    pub fn elapsed_ms(&self) -> u64 {
        let (seconds, milliseconds) = wall_clock();
        let elapsed = (seconds - self.seen.start_seconds()) * 1_000 + milliseconds as i64
            - self.seen.start_milliseconds() as i64;
        u64::try_from(elapsed).unwrap_or(0)
    }

    /// The attempt at an endpoint; `None`: there was none, or more than one.
    #[inline]
    pub fn only_attempt(&self) -> Option<Attempt<'r>> {
        let mut states = self.seen.upstream_states();
        let (Some(state), None) = (states.next(), states.next()) else { return None };
        Some(Attempt {
            address: state.peer_name()?,
            length: u64::try_from(state.response_length()).ok()?,
            response_ms: state.response_milliseconds(),
            status: Some(state.status() as u64).filter(|status| *status != 0),
        })
    }
}
