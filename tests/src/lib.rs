//! Runs nginx and the controller as a user would and looks at what a client sees.
//!
//! Shape:   a [`block::Block`] is one declarative case of a `.test` file; the Rust tests in `tests/` use the
//!          parts directly: [`site::Site`], [`controller::Controller`], [`endpoint::Endpoint`],
//!          [`client::Connection`], [`load::Load`].
//! Rules:   every case has its own ports and directory and waits on conditions, never on time.
//! Errors:  `anyhow`: the reader is a developer in front of a failed test.

pub mod block;
pub mod certificate;
pub mod client;
pub mod controller;
pub mod dist;
pub mod endpoint;
pub mod load;
pub mod nginx;
pub mod parse;
pub mod pinned;
pub mod place;
pub mod process;
pub mod site;
pub mod variables;
pub mod wait;
