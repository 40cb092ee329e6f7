//! Ends a worker at a named step, for tests of what a kill leaves behind.
//!
//! `OXIGRESS_FAILPOINTS_FILE` names a file. When a worker passes the failpoint whose name stands in it,
//! the worker that removes the file first kills itself.

use rustix::process::{Signal, getpid, kill_process};

/// Watches the file from now on, if there is one.
pub fn arm() {
    if std::env::var_os("OXIGRESS_FAILPOINTS_FILE").is_some() {
        oxigress_store::set_hook(pass);
    }
}

fn pass(name: &'static str) {
    let Some(file) = std::env::var_os("OXIGRESS_FAILPOINTS_FILE") else { return };
    let is_armed = std::fs::read_to_string(&file).is_ok_and(|armed| armed.trim() == name);
    if is_armed && std::fs::remove_file(&file).is_ok() {
        // It ends this process, as the test asked.
        let _ = kill_process(getpid(), Signal::KILL);
        // A thread of the pool may run on for a moment: it must not pass this step.
        loop {
            std::thread::park();
        }
    }
}
