//! Every block of `blocks/AREA/*.test` as a test of its own: `cargo test -p oxigress-tests --test blocks [words of its
//! name]`.
//!
//! A program beside `it`, since its tests are known only when it runs. The blocks of the area `kubernetes` share one API
//! server; each has a namespace, an IngressClass and a controller of its own.

use libtest_mimic::Arguments;
use oxigress_tests::block;
use std::process::ExitCode;

/// Blocks at once: each has an nginx of its own, and most wait most of the time.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    match block::trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
