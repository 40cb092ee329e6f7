//! Named steps of update, publish, adopt and free, where a test can end the process.

/// The names, in the order a write passes them; the last is passed by readers.
pub const FAILPOINTS: &[&str] = &[
    "update.begin",
    "update.record",
    "update.index",
    "publish.retire",
    "publish.before",
    "publish.after",
    "free.begin",
    "free.cut",
    "free.block",
    "adopt.acknowledge",
];

#[cfg(feature = "failpoints")]
static HOOK: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// Calls `hook` at every failpoint from now on. Only the first call counts.
#[cfg(feature = "failpoints")]
pub fn set_hook(hook: fn(&'static str)) {
    HOOK.get_or_init(|| hook);
}

#[inline]
pub(crate) fn failpoint(name: &'static str) {
    debug_assert!(FAILPOINTS.contains(&name), "{name}");
    #[cfg(feature = "failpoints")]
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}
