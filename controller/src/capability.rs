//! The right to open ports below 1024, without being root: the capability NET_BIND_SERVICE.
//!
//! The image gives it to the file of this program, as permitted only. The nginx role takes it up and hands it to
//! nginx as an ambient capability. A file capability of nginx itself was rejected: a file that wants more than the
//! container may have cannot be executed at all, so `drop: [ALL]` would need another image; and an nginx that was
//! replaced for an upgrade would lack it. Under `allowPrivilegeEscalation: false` a capability of the container
//! reaches a process of another user than root only through a file that permits it, so this file must.
//!
//! Source:  capabilities(7), "Transformation of capabilities during execve()".

use rustix::io;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

/// For this thread, threads that it starts later, and programs that those execute. Without the capability, and
/// for root, who has all, nothing happens.
pub fn take_up() -> io::Result<()> {
    match geteuid().is_root() {
        true => Ok(()),
        false => hand_on(),
    }
}

fn hand_on() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    if !sets.permitted.contains(CapabilitySet::NET_BIND_SERVICE) {
        return Ok(());
    }
    sets.effective |= CapabilitySet::NET_BIND_SERVICE;
    // The kernel makes ambient only what is inheritable too.
    sets.inheritable |= CapabilitySet::NET_BIND_SERVICE;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::NET_BIND_SERVICE, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySets, capability_is_in_ambient_set};

    /// In a thread that may have no more than `permitted`, as the kernel leaves a process of the image.
    fn with(permitted: CapabilitySet) -> (CapabilitySets, bool) {
        let none = CapabilitySet::empty();
        let thread = std::thread::spawn(move || {
            let sets = CapabilitySets { effective: none, permitted, inheritable: none };
            set_capabilities(None, sets).unwrap();
            hand_on().unwrap();
            let is_ambient = capability_is_in_ambient_set(CapabilitySet::NET_BIND_SERVICE).unwrap();
            (capabilities(None).unwrap(), is_ambient)
        });
        thread.join().unwrap()
    }

    #[test]
    fn what_is_permitted_is_used_and_handed_on_and_nothing_else_is() {
        let own = capabilities(None).unwrap().permitted;
        let bind = CapabilitySet::NET_BIND_SERVICE & own;
        let both = bind | (CapabilitySet::KILL & own);
        let (sets, is_ambient) = with(both);
        assert_eq!(sets, CapabilitySets { effective: bind, permitted: both, inheritable: bind });
        assert_eq!(is_ambient, !bind.is_empty());
    }

    #[test]
    fn without_the_capability_nothing_happens() {
        let none = CapabilitySet::empty();
        let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
        assert_eq!(with(none), (nothing, false));
    }
}
