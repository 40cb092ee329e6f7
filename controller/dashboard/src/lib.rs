//! The dashboard: a page about what is served, for people, and the JSON that it is made of.
//!
//! Shape:   [`Dashboard`] answers HTTP. What the controller knows it asks the controller's loop for, a page of rows at a
//!          time ([`DashboardQuery`], [`View`]); what nginx knows, nginx. It keeps no copy of either.
//! Errors:  a question that is not understood gets 400; what nginx does not tell is left out.
//! Rejected: a framework for HTTP and one for pages, since the controller's other servers are hyper's with the same bounds
//!           on connections, and the page is a few files that the rows are put into.
//! Knows:    the World, what translation has made of it, and what was published. Reads only.
//! Does not: show values of policies, keys or Secrets; load anything from another host.
#![forbid(unsafe_code)]

mod access;
mod page;
mod query;
mod rows;
mod server;
mod traffic;

pub use access::{Access, AccessError};
pub use query::{DashboardQuery, Kind, LiveChange, View};
pub use server::Dashboard;
