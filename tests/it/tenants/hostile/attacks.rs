//! The list of attacks. The numbers are those of what they are aimed at:
//!
//! 2. work: time and memory that a tenant or a client can cause;
//! 3. hosts: what a namespace says about another one's host, by Ingresses and by routes;
//! 4. requests: one request that has two meanings;
//! 5. destinations: connections to where none may lead, and endpoints that answer what no endpoint would.

mod bundles;
mod clients;
mod destinations;
mod endpoints;
mod gateway;
mod hosts;
mod patterns;
mod requests;
mod volume;

use super::villain::Villain;
use anyhow::Result;

/// What a hostile tenant does once.
#[derive(Clone, Copy)]
pub struct Attack {
    /// The number of its aim in the list of this module.
    pub section: u8,
    /// Its name, a DNS label.
    pub name: &'static str,
    /// Part of the short form.
    pub is_short: bool,
    /// Does it, and fails if it got what it is after.
    pub run: fn(&Villain<'_>) -> Result<()>,
}

/// One of the short form.
const fn short(section: u8, name: &'static str, run: fn(&Villain<'_>) -> Result<()>) -> Attack {
    Attack { section, name, is_short: true, run }
}

/// One of the long form alone.
const fn long(section: u8, name: &'static str, run: fn(&Villain<'_>) -> Result<()>) -> Attack {
    Attack { section, name, is_short: false, run }
}

pub fn all() -> impl Iterator<Item = Attack> {
    let lists = [
        patterns::ATTACKS,
        bundles::ATTACKS,
        volume::ATTACKS,
        clients::ATTACKS,
        hosts::ATTACKS,
        gateway::ATTACKS,
        requests::ATTACKS,
        destinations::ATTACKS,
        endpoints::ATTACKS,
    ];
    lists.into_iter().flatten().copied()
}
