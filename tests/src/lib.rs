//! Runs nginx and the controller as a user would and looks at what a client sees.
//!
//! Shape:   a [`block::Block`] is one declarative case of a `.test` file; the Rust tests in `it/` use the
//!          parts directly: [`site::Site`], [`controller::Controller`], [`endpoint::Endpoint`],
//!          [`client::Connection`], [`load::Load`].
//! Rules:   every case has its own ports and directory and waits on conditions, never on time.
//! Errors:  `anyhow`: the reader is a developer in front of a failed test.

#![allow(
    missing_docs,
    reason = "a harness: most names say all, and a sentence stands where one does not"
)]

pub mod block;
pub mod certificate;
pub mod cluster;
pub mod protocol;
pub mod variables;

mod machine;
mod product;
mod traffic;

pub use machine::{dist, network, place, process, small_disk, wait};
pub use product::{chart, controller, genuine, manifest, nginx, prometheus, shipped, shop, site};
pub use traffic::{client, crowd, endpoint, fake_dns, forwarder, load, mutual, pinned, session};

use std::sync::{PoisonError, RwLock};

/// Tests share the machine; one that bounds times of a whole product under attack has it alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs a test in a directory of its own. A failure is told in one text, with the end of the error log, and
/// leaves the directory.
#[track_caller]
pub fn pass(name: &str, test: impl FnOnce(&place::Directory) -> anyhow::Result<()>) {
    let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    run(name, test);
}

/// As [`pass`], while no other test of this program runs that uses either.
#[track_caller]
pub fn pass_alone(name: &str, test: impl FnOnce(&place::Directory) -> anyhow::Result<()>) {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    run(name, test);
}

#[track_caller]
fn run(name: &str, test: impl FnOnce(&place::Directory) -> anyhow::Result<()>) {
    let directory = place::Directory::new(name).expect("a directory");
    if let Err(error) = test(&directory) {
        let mut log = String::new();
        for file in ["output", "error.log"] {
            log += &std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        }
        let log = nginx::tail(&log, 60);
        panic!("{error:#}\n--- end of the logs\n{log}\nfiles: {}", directory.keep().display());
    }
}
