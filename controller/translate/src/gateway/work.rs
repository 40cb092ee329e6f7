//! Counts what a rebuild does, for tests of what it costs.

/// What is counted.
#[derive(Clone, Copy)]
pub enum Step {
    /// All that is served of the Gateway API is built.
    Built,
    /// What some routes touch is built again.
    Edited,
    /// A host name of a route is compared with a listener's.
    Place,
    /// A selector of a listener is asked about a namespace.
    Selector,
    /// A listener is looked for at one label of a host.
    Level,
    /// A route is read.
    Read,
    /// A backend is noted as one to which a route leads, or no more.
    Led,
    /// The filters of a rule or of a backend are read, or copied for a redirect.
    Filters,
    /// The rules of a route are made for a listener.
    Served,
    /// The rules of a host are put together.
    Merged,
    /// A listener of a ListenerSet is read.
    Listener,
    /// A listener is compared with what a route names as its parent.
    Parent,
    /// A listener of a ListenerSet is compared with others of its port.
    Conflict,
    /// Who has a host is looked up, for what listeners of guests leave.
    Named,
    /// A Service that BackendTLSPolicies name is noted for a route, or a Gateway of it for a policy.
    NotedService,
    /// A Gateway or a ListenerSet is looked at for the Secrets that it refers to.
    Referred,
    /// A route is looked at for the price of what it is attached to.
    Priced,
    /// A host is looked at for the rules that listeners have there.
    Summed,
    /// The Policies that name an object are asked for, or one is found.
    Naming,
}

#[cfg(test)]
thread_local! {
    static WORK: std::cell::Cell<[usize; 19]> = const { std::cell::Cell::new([0; 19]) };
}

/// Notes one step.
pub fn count(_step: Step) {
    #[cfg(test)]
    {
        let mut all = WORK.get();
        all[_step as usize] += 1;
        WORK.set(all);
    }
}

/// The steps since this was last asked.
#[cfg(test)]
pub fn take(step: Step) -> usize {
    let mut all = WORK.get();
    let count = std::mem::take(&mut all[step as usize]);
    WORK.set(all);
    count
}
