//! What features keep with a worker, with compiled policies, with a request and with its route.
//!
//! A feature has a type for it in a file of its own, and asks for it by that type. Which types there are is said once, above all
//! features, in `module/features.rs`: what stands below keeps the parts and knows none of them. The compiler finds the
//! place of a part, so that asking for one is reading a field.

use crate::conf::CoreConf;
use nginx::Cycle;
use oxigress_core::model::policy::Policies;

/// A value that has a part of this type.
pub trait Has<P> {
    /// The part of that type.
    fn part(&self) -> &P;
    /// The part, to be changed.
    fn part_mut(&mut self) -> &mut P;
}

/// The parts of all features.
pub trait Parts {
    /// What they keep as long as a worker process lives.
    type Worker;
    /// What they work out of policies, once for each worker.
    type Policies;
    /// What they keep in the pool of a request, which drops nothing.
    type Request: Default;
    /// What they keep with the route of a request, until it gets another one.
    type Route: Copy + Default;

    /// Makes those of a worker that begins.
    fn of_worker(cycle: &Cycle, core: &CoreConf) -> Self::Worker;

    /// Works out those of the policies with this id.
    fn of_policies(id: &[u8], source: &Policies) -> Self::Policies;
}

/// The features of this library; `module/features.rs` says what their [`Parts`] are.
pub struct Features;

/// [`Parts::Worker`] of this library.
pub type OfWorker = <Features as Parts>::Worker;
/// [`Parts::Policies`] of this library.
pub type OfPolicies = <Features as Parts>::Policies;
/// [`Parts::Request`] of this library.
pub type OfRequest = <Features as Parts>::Request;
/// [`Parts::Route`] of this library.
pub type OfRoute = <Features as Parts>::Route;
