//! A panic must not unwind into C, where it would end the worker and all its connections.

use crate::system::log;

/// Lets a panic say where and why in nginx's log, in one line. The standard hook would write to standard error, which
/// may block.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        let why = info.payload_as_str().unwrap_or("without a message");
        match info.location() {
            Some(at) => log::cycle(log::ALERT, format_args!("ingress: panicked at {at}: {why}")),
            None => log::cycle(log::ALERT, format_args!("ingress: panicked: {why}")),
        }
    }));
}
