//! What is served where: the rules of one host on one port, those of routes by age, with those of the host's Ingresses.

use super::conflict::{self, RefusedHosts};
use super::memo::{
    HostInput, HttpsListener, KnownHost, KnownRoute, Memo, Outcome, Refused, SharedSpot, Totals,
};
use super::merge::{self, Place};
use super::rank::{self, Flat, Ranked};
use super::sessions::Sessions;
use super::spots::{Spot, spots};
use crate::Options;
use crate::gateway::listeners::host::{Wildcards, specificity};
use crate::gateway::listeners::isolation::Listeners;
use crate::gateway::listeners::state::{GatewayState, Gateways, ListenerState};
use crate::gateway::routes::attach::Attachment;
use crate::gateway::work::{self, Step};
use crate::gateway::{Beside, Built, PlaceOwner, Shown};
use crate::host::certificate;
use crate::host::owner::HostOwnership;
use oxigress_core::model::policy::{Policies, PolicyId, TlsPolicy};
use oxigress_core::model::{ListenerHost, Server};
use oxigress_objects::gateway::Route;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is served where, while routes are added.
#[derive(Default)]
pub struct Serving {
    /// The hosts of listeners, and those of the routes that were added.
    pub hosts: BTreeMap<ListenerHost, Ranked>,
    /// The policies of targets of sessions.
    policies: BTreeMap<PolicyId, Arc<Policies>>,
    sessions: Sessions,
    /// The listeners of HTTPS, what their clients have to show, and the namespaces that say so.
    https: BTreeMap<ListenerHost, (Option<TlsPolicy>, Name)>,
    /// What all routes have in common.
    pub totals: Totals,
}

/// What all that is built is of: the objects, and the servers of Ingresses beside them.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The objects.
    pub world: &'a World,
    /// What flags say.
    pub options: &'a Options,
    /// The servers of Ingresses.
    pub beside: &'a Beside<'a>,
}

/// A host that was put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// Its rules at each of its places.
    pub servers: Vec<(ListenerHost, Server)>,
    /// The policies that they name.
    pub policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// What there is to say about objects.
    pub notes: Vec<(ObjectRef, Note)>,
    /// Whose it is.
    pub owner: Option<PlaceOwner>,
}

impl Serving {
    /// Where routes are added to others, of which these are the totals.
    pub fn of(totals: Totals) -> Self {
        Serving { totals, ..Serving::default() }
    }

    /// Adds the rules of a route where it is attached; answers the hosts where it is served.
    pub fn add(
        &mut self,
        options: &Options,
        (id, route): (&ObjectRef, &Route),
        attached: &[Attachment],
        known: &mut KnownRoute,
        by: (&Gateways<'_>, &Listeners),
    ) -> Vec<SharedSpot> {
        if !id.kind.is_of_requests() {
            let with = (&mut self.totals.room, &mut self.policies);
            let spots = spots(attached, by);
            self.sessions.add(options, (id, route), spots, known, with);
            return Vec::new();
        }
        let ObjectRef { kind, key } = id;
        let (mut served, mut made, mut all) = (BTreeSet::new(), None, Vec::new());
        for Spot { listener, at, name, .. } in spots(attached, by) {
            let rank = Reverse(specificity(name));
            if !served.insert((at.clone(), rank)) {
                continue;
            }
            // A host without rules is one, too: it leaves its requests to no less specific one.
            if !self.totals.room.has_rules(key, *kind, known.count().max(1)) {
                known.lacks_room = true;
                continue;
            }
            // Nothing is made of a route before there is room for it.
            let rules = match made.take().filter(|(by, _)| std::ptr::eq(*by, listener)) {
                Some((_, rules)) => rules,
                None if !self.totals.room.has_filters(key, *kind, known.bytes_at(listener)) => {
                    known.lacks_room = true;
                    continue;
                }
                None => known.served_at(key, listener),
            };
            made = Some((listener, rules.clone()));
            let spot = SharedSpot { at, rank, by: listener.home.key.namespace.clone() };
            self.totals.parents.add(&key.namespace, &spot);
            let age = (route.meta.created, key.clone(), *kind);
            let routes = self.hosts.entry(spot.at.clone()).or_default();
            routes.entry(rank).or_default().insert(age, rules);
            all.push(spot);
        }
        known.forget_unused();
        all
    }

    /// Adds the hosts of listeners, also where no route serves them, and their certificates: of several that of the object that
    /// comes first.
    pub fn add_listeners(&mut self, gateways: &Gateways<'_>, built: &mut Built) {
        let of_one = |state| {
            let all = GatewayState::standing(state);
            all.map(move |listener| (listener, state))
        };
        let mut all: Vec<_> = gateways.values().flat_map(of_one).collect();
        all.sort_by_key(|(listener, _)| listener.home);
        for (listener, state) in &all {
            let Some(port) = listener.port else { continue };
            let host = listener.host.clone();
            if let Some(id) = listener.certificate.clone().filter(|_| listener.is_serving()) {
                let shown = || Shown { id, age: listener.home.age(), kind: listener.home.kind };
                built.certificates.entry(host.clone()).or_insert_with(shown);
            }
            for address in state.addresses().into_iter().filter(|_| listener.is_http()) {
                let at = ListenerHost::deep(port, address, host.clone());
                if listener.is_https() {
                    let asks = || (listener.clients.clone(), listener.home.key.namespace.clone());
                    self.https.entry(at.clone()).or_insert_with(asks);
                }
                self.hosts.entry(at).or_default();
            }
        }
        leave_certificates(all.into_iter().map(|(listener, _)| listener), built);
    }

    /// Puts the servers together; answers which routes are not served where.
    pub fn finish(
        &mut self,
        site: Site<'_>,
        (gateways, listeners): (&Gateways<'_>, &Listeners),
        (old, memo): (&mut Memo, &mut Memo),
        built: &mut Built,
    ) -> RefusedHosts {
        self.add_listeners(gateways, built);
        let mut refused = RefusedHosts::new();
        for (at, routes) in std::mem::take(&mut self.hosts) {
            let input = self.input(&at, routes, listeners);
            let known = match old.hosts.take(&input, site.beside, &mut self.totals.room) {
                Some(known) => known,
                None => {
                    let (known, merged) = self.merge(site, input, memo);
                    built.hosts.insert(at.clone(), Some(merged));
                    known
                }
            };
            for (route, why) in known.refused() {
                refused.entry(route.clone()).or_default().insert(at.clone(), why.clone());
            }
            memo.hosts.put(at, known);
        }
        memo.forget_hosts(old, built);
        let sessions = std::mem::take(&mut self.sessions);
        sessions.finish(site.options, site.beside, (gateways, listeners), &mut refused, built);
        self.lead_sessions(memo, built);
        built.notes.extend(self.totals.room.notes());
        built.backends.retain(|id, _| memo.leads.has(id));
        for (id, backend) in &mut built.backends {
            backend.locations = memo.locations(id, backend);
        }
        refused
    }

    /// The listener of HTTPS that has a host, and its namespace.
    fn https_listener(
        &self,
        at: &ListenerHost,
        listeners: &Listeners,
    ) -> Option<(HttpsListener, Name)> {
        let host = listeners.most_specific(at)?;
        let at = ListenerHost::deep(at.port, at.address, host.clone());
        let (clients, home) = self.https.get(&at)?.clone();
        Some((HttpsListener { at, clients }, home))
    }

    /// What the rules of a host are put together of.
    pub fn input<'i>(
        &self,
        at: &'i ListenerHost,
        routes: Ranked,
        listeners: &Listeners,
    ) -> HostInput<'i> {
        let listener = self.https_listener(at, listeners);
        let parents = self.totals.parents.of(&at.host).keys().cloned().collect();
        HostInput { at, routes, parents, listener }
    }

    /// Puts the rules of a host together, which are the same at each of its places.
    pub fn merge(
        &mut self,
        Site { world, options, beside }: Site<'_>,
        input: HostInput<'_>,
        memo: &mut Memo,
    ) -> (KnownHost, Merged) {
        let HostInput { at, ref routes, ref listener, .. } = input;
        let (mut ranked, mut refused) = (routes.clone(), Refused::new());
        let parents = self.totals.parents.of(&at.host);
        conflict::separate(options, beside, (at, parents), &mut ranked, &mut refused);
        let listener = listener.as_ref().filter(|(of, home)| {
            let place = (at, parents, home);
            of.clients.is_none()
                || !conflict::leave_to_ingress(options, beside, place, &mut ranked, &mut refused)
        });
        let listener = listener.map(|(of, _)| of);
        let is_shared = options.host_ownership == HostOwnership::Shared;
        let namespaces =
            ranked.values().flat_map(|routes| routes.keys()).map(|age| &age.1.namespace);
        let mut meeting = self.totals.room.begin_meeting(namespaces.filter(|_| ranked.len() > 1));
        let Flat { routes, notes, left_out } =
            rank::flatten(&at.host, &ranked, is_shared, &mut self.totals.room);
        self.totals.room.end_meeting(&mut meeting, left_out);
        let mut outcome = Outcome { notes, ..Outcome::default() };
        let eldest = rank::eldest(&at.host, &ranked);
        let places = one_label(at, beside).into_iter().chain([at.clone()]);
        let servers = places.map(|at| {
            work::count(Step::Merged);
            let place = Place { at: &at, parents, eldest };
            let server = merge::merge(world, options, beside, &place, &routes, &mut outcome);
            let tls = listener.and_then(|of| of.clients.clone()).map(Box::new);
            let listener = listener.map(|of| of.at.clone());
            (at, Server { listener, tls, ..server })
        });
        let servers = servers.collect();
        let policies = policies_of(&ranked, &outcome.named);
        let merged = Merged { servers, policies, notes: outcome.notes, owner: outcome.owner };
        memo.leads.set(Some(at), outcome.used_backends, &merged.policies, &outcome.named);
        (input.known(beside, meeting, refused), merged)
    }

    /// Notes which policies the targets of sessions name, and where they lead.
    fn lead_sessions(&mut self, memo: &mut Memo, built: &mut Built) {
        let (mut named, mut used) = (BTreeMap::new(), BTreeSet::new());
        for route in built.sessions.values() {
            let key = Key::new(&*route.namespace, route.route.as_str());
            let by = ObjectRef::new(Kind::TLSRoute, key);
            for target in &route.targets {
                used.extend(target.backend.clone());
                named.extend(target.policies.clone().map(|id| (id, by.clone())));
            }
        }
        let mut policies = std::mem::take(&mut self.policies);
        policies.retain(|id, _| named.contains_key(id));
        memo.leads.set(None, used, &policies, &named);
        built.session_policies = policies;
    }
}

/// The policies that rules of a host name.
fn policies_of(
    ranked: &Ranked,
    named: &BTreeMap<PolicyId, ObjectRef>,
) -> BTreeMap<PolicyId, Arc<Policies>> {
    let all = ranked.values().filter(|_| !named.is_empty()).flat_map(BTreeMap::values);
    let all = all.flat_map(|served| &served.policies);
    let all = all.filter(|(id, _)| named.contains_key(*id));
    all.map(|(id, policies)| (id.clone(), policies.clone())).collect()
}

/// Shows hosts that listeners leave to others what would be shown if these listeners were not there: their certificates are for
/// hosts of their own.
fn leave_certificates<'s, 'w: 's>(
    listeners: impl Iterator<Item = &'s ListenerState<'w>>,
    built: &mut Built,
) {
    let mut leavers = BTreeMap::new();
    for listener in listeners {
        let shown = built.certificates.get(&listener.host);
        let is_its = |shown: &Shown| listener.home.is(shown.kind, &shown.age.key);
        if let Some(leaves) = listener.leaves.as_ref().filter(|_| shown.is_some_and(is_its)) {
            leavers.entry(&listener.host).or_insert((leaves, listener.home));
        }
    }
    if leavers.is_empty() {
        return;
    }
    let mut wildcards = Wildcards::default();
    for (host, shown) in &built.certificates {
        let Some(below) = host.as_str().strip_prefix('*') else { continue };
        wildcards.insert(below, (leavers.get(host), shown));
    }
    let shown = built.left.hosts().filter_map(|(host, named)| {
        let (mut home, mut shown) = (None, None);
        for (leaver, by) in wildcards.above(host) {
            match leaver.filter(|(leaves, _)| leaves.leave(named)) {
                Some((_, of)) => home = home.into_iter().chain([*of]).min(),
                None => {
                    shown = Some(Shown::clone(by));
                    break;
                }
            }
        }
        let home = home?;
        // The default one.
        let none = || Shown { id: certificate::none(), age: home.age(), kind: home.kind };
        Some((host.clone(), shown.unwrap_or_else(none)))
    });
    let shown: Vec<_> = shown.collect();
    for (host, shown) in shown {
        built.certificates.entry(host).or_insert(shown);
    }
}

/// The hosts that an Ingress means by the star of a host, if one has it: it stands for one label, and deeper hosts have the rules
/// of routes alone.
fn one_label(at: &ListenerHost, beside: &Beside<'_>) -> Option<ListenerHost> {
    let is_beside = at.is_deep && at.address.is_none() && beside.servers.contains_key(&at.host);
    is_beside.then(|| ListenerHost::of_one_label(at.port, at.host.clone()))
}
