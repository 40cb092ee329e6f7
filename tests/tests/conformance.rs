//! The blocks whose objects are in a real API server: the cases of Kubernetes' ingress conformance features. All share one
//! API server; each has a namespace, an IngressClass and a controller of its own.

use libtest_mimic::Arguments;
use oxigress_tests::block;
use std::process::ExitCode;

/// Blocks at once: each has an nginx of its own, and most wait most of the time.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    match block::trials(block::needs_cluster) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
