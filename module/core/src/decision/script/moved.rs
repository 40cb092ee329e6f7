//! A request that a script has given another path.

use super::of_uri;
use crate::balancer::split;
use crate::decision::facts::{Facts, Shown};
use crate::patterns::Budget;
use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;

/// The request with its new path and query; all else is the client's.
pub(crate) struct Moved<'a, F> {
    pub facts: &'a F,
    pub path: Vec<u8>,
    pub args: Vec<u8>,
    /// What patterns of paths may still cost.
    pub budget: Cell<Budget>,
}

impl<F: Facts> split::Request for Moved<'_, F> {
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.facts.header(name)
    }

    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        self.facts.cookie(name)
    }
}

impl<F: Facts> Facts for Moved<'_, F> {
    fn host(&self) -> &[u8] {
        self.facts.host()
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn args(&self) -> &[u8] {
        &self.args
    }

    fn target(&self) -> &[u8] {
        self.facts.target()
    }

    fn method(&self) -> &[u8] {
        self.facts.method()
    }

    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.facts.each_header(visit);
    }

    fn port(&self) -> u16 {
        self.facts.port()
    }

    fn address(&self) -> Option<IpAddr> {
        self.facts.address()
    }

    fn first_header(&self, name: &[u8]) -> Option<&[u8]> {
        self.facts.first_header(name)
    }

    fn origin(&self) -> Option<Vec<u8>> {
        self.facts.origin()
    }

    fn client_host(&self) -> &[u8] {
        self.facts.client_host()
    }

    fn client_scheme(&self) -> &[u8] {
        self.facts.client_scheme()
    }

    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        of_uri(name, &self.path, &self.args).unwrap_or_else(|| self.facts.variable(name))
    }

    fn random(&self) -> u64 {
        self.facts.random()
    }

    fn is_internal(&self) -> bool {
        self.facts.is_internal()
    }

    fn is_tls(&self) -> bool {
        self.facts.is_tls()
    }

    fn server_name(&self) -> Option<Cow<'_, [u8]>> {
        self.facts.server_name()
    }

    fn was_asked_for(&self, asks: &[u8; 16]) -> bool {
        self.facts.was_asked_for(asks)
    }

    fn certificate(&self) -> Option<Shown> {
        self.facts.certificate()
    }

    fn certificate_subject(&self) -> Option<&[u8]> {
        self.facts.certificate_subject()
    }

    fn moved_budget(&self) -> Option<&Cell<Budget>> {
        Some(&self.budget)
    }
}
