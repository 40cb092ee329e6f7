//! World to Snapshot and Verdicts: values in, values out.
//!
//! Shape:   the translation is made of [`translator::notes::Part`]s: an Ingress by itself, the rules
//!          of a host, its certificate, the endpoints of a backend. Each is a pure function in a file of its own;
//!          [`Translator`] knows who depends on whom and computes again only what a change touches.
//! Errors:  none; what is not served gets a note, everything else is served.
//! Source:  ingress-nginx's controller.
//! Rejected: computing all and comparing, which costs in proportion to the cluster.
//! Knows:    objects, the operator's options, the ConfigMap's settings, and the model of what is served.
//! Does not: know a client, a clock, the environment or a log; where objects come from; how the result gets to nginx.
#![forbid(unsafe_code)]

pub mod annotation;
mod backend;
mod claim;
mod gateway;
mod host;
mod ingress;
mod options;
pub mod pace;
mod patterns;
mod references;
mod relation;
mod review;
#[cfg(test)]
mod tests;
mod translator;

pub use annotation::counterpart;
pub use backend::port_of_ingress;
pub use gateway::HeldPorts;
pub use host::certificate::secret_behind;
pub use host::owner::{HostOwnership, whose, words_of};
pub use options::Options;
pub use patterns::reviews::Reviews;
pub use references::ReferenceIndex;
pub use review::{Candidate, ReviewOutcome};
pub use translator::Translator;
pub use translator::served_hosts::{Follows, PathOutcome, ServedHost};
pub use translator::withheld::WithheldItem;

use oxigress_core::model::Snapshot;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::verdict::Verdicts;
use oxigress_objects::{ObjectRef, World};
use std::collections::BTreeMap;

/// What a world comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// All there is to serve.
    pub snapshot: Snapshot,
    /// All there is to say.
    pub verdicts: Verdicts,
    /// What the status of objects of the Gateway API is to say.
    pub statuses: BTreeMap<ObjectRef, Wanted>,
}

/// Translates a whole world at once.
pub fn translate(world: &World, options: &Options) -> Translation {
    let mut translator = Translator::new(options.clone());
    translator.update(world, &world.all());
    translator.into_translation()
}
