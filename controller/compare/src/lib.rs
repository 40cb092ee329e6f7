//! Asks two gateways the same requests, and reports where their answers differ.
//!
//! Knows:     requests from a list, an access log or Ingress objects ([`requests`]), how an answer is read and compared
//!            ([`answer`]), and which differences are documented ([`known`]).
//! Does not:  follow redirects, verify certificates, or send a method that nobody named.
//! Errors:    a gateway that cannot be connected to at all ends the comparison. A single request without an answer is an
//!            answer of its own, which is compared.
#![forbid(unsafe_code)]

mod access_log;
pub mod answer;
mod gateway;
pub mod known;
mod report;
pub mod requests;
mod routes;
mod run;
mod spelling;

pub use gateway::{Gateway, GatewayError};
pub use report::{Group, Report};
pub use requests::{Request, Requests};
pub use routes::Routes;
pub use run::{CompareError, ComparedRequest, Options, Progress, ask_both, compare};
