//! Faults that a checker must find, compiled with the feature `planted-faults` only.
//!
//! `OXIGRESS_PLANTED_FAULT` names the one that is in force; `nginx-build/checks/sanitize planted` tries them all.
//!
//! | fault | what goes wrong | which checker must find it |
//! |---|---|---|
//! | `overrun` | a byte behind the block is written | AddressSanitizer, valgrind, Miri |
//! | `leak` | a commit forgets a heap allocation | AddressSanitizer, valgrind |
//! | `relaxed-publish` | the generation is published without release | ThreadSanitizer, loom |
//! | `early-free` | batches are freed before they are acknowledged | ThreadSanitizer, loom |
//! | `no-fence` | a worker that attaches may not be seen by a writer | loom |
//! | `no-recovery` | what a dead writer left is not cleared away | loom |
//! | `retire-live` | a batch lists the node that is the live root | poison build |
//! | `pool-overrun` | the module writes a byte behind an allocation of nginx's pool | AddressSanitizer on nginx |
//! | `long-string` | nginx gets a string that ends a byte too late | AddressSanitizer on nginx |
//!
//! The fault is read when the store is created, in nginx by the master: a worker's environment differs.

/// The fault is in force. A constant `false` in every normal build.
#[inline]
pub fn is_planted(fault: &str) -> bool {
    #[cfg(feature = "planted-faults")]
    {
        static CHOSEN: std::sync::LazyLock<Option<String>> =
            std::sync::LazyLock::new(|| std::env::var("OXIGRESS_PLANTED_FAULT").ok());
        CHOSEN.as_deref() == Some(fault)
    }
    #[cfg(not(feature = "planted-faults"))]
    {
        let _ = fault;
        false
    }
}
