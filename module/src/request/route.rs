//! The route of a request: what REWRITE decided, copied out of shared memory, and what later phases keep with it.
//!
//! It is one value. A request that is routed again, after an internal redirect, gets another one, and nothing of the one
//! before stays: neither who was let in, nor what its pattern matched, nor its copy.
#![allow(unsafe_code)]

use crate::request::Context;
use crate::request::Request;
use crate::request::policies::{Cache, Compiled};
use crate::worker;
use crate::worker::parts::{Has, OfRoute};
use nginx::{EventLoop, Upstream};
use oxigress_core::patterns::Captures;
use oxigress_store::{KeyHash, RecordPlace};
use std::ptr::{NonNull, null};
use std::rc::Rc;

/// The names of the rule that took a request and of the backend that serves it, as REWRITE decided in one generation.
#[derive(Clone, Copy)]
pub struct RouteNames<'r> {
    /// As [`oxigress_core::record::RuleView::texts`].
    pub texts: [&'r [u8]; 6],
    /// The backend that serves; empty if there is none.
    pub backend: &'r [u8],
}

impl<'r> RouteNames<'r> {
    /// The namespace of the object that the rule comes from.
    pub fn namespace(&self) -> &'r [u8] {
        self.texts[1]
    }

    /// The path that the rule names, as in `$location_path`; empty: its Ingress names none.
    pub fn path(&self) -> &'r [u8] {
        self.texts[5]
    }
}

/// How to find a backend's endpoint set again.
#[derive(Clone, Copy, Default)]
pub struct EndpointSetRef {
    /// The hash of its key.
    pub hash: Option<KeyHash>,
    /// Where it stood.
    pub place: RecordPlace,
    /// The backend's record has no alternatives, cookie or hash key: nobody has to read it.
    pub is_plain: bool,
}

/// A route that a request is to get.
#[derive(Default)]
pub struct NewRoute<'a> {
    /// The policies of the rule.
    pub policies: Option<Rc<Compiled>>,
    /// What the groups of the rule's pattern matched in the path.
    pub captures: Option<&'a Captures>,
    /// The rule's names and the backend that serves; `None`: log lines and variables do not name the rule.
    pub names: Option<Names<'a>>,
    /// The endpoint set of the backend that serves.
    pub endpoint_set: EndpointSetRef,
    /// The status that the backend answers for another one; 0: it does not.
    pub error: u16,
}

/// The names of a rule, to be copied at once.
#[derive(Clone, Copy, Default)]
pub struct Names<'a> {
    /// Of the texts, the rule's backend first.
    pub lengths: [u16; 6],
    /// One after the other.
    pub texts: &'a [u8],
    /// The default backend, an alternative or the fallback, if it serves in the place of the rule's own.
    pub instead: &'a [u8],
    /// It is an alternative.
    pub is_alternative: bool,
}

impl<'a> Names<'a> {
    /// Of a subrequest that goes to a backend which its main request's policies name.
    pub fn of_backend(id: &'a [u8]) -> Self {
        Names { lengths: [id.len() as u16, 0, 0, 0, 0, 0], texts: id, ..Names::default() }
    }
}

/// A route as it is kept.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Kept alive by [`HeldPolicies`]; null: the rule has no policies.
    policies: *const Compiled,
    /// Null: the rule's path is no pattern.
    captured: *const Captured,
    /// The rule's texts and the backend that serves in the place of its own, one after the other.
    names: Option<NonNull<[u8]>>,
    lengths: [u16; 7],
    is_named: bool,
    is_alternative: bool,
    is_plain: bool,
    hash: u64,
    place: RecordPlace,
    /// Of ACCESS: it has let the request in.
    pub is_let_in: bool,
    /// Of the error pages: the status that another backend answers; 0: none does.
    pub error: u16,
    /// Of the balancer: every endpoint was busy up to its limit.
    pub is_busy: bool,
    /// It is that of a snippet's `if`, which its pool has.
    pub is_of_if: bool,
    parts: OfRoute,
}

impl Route {
    fn none() -> Self {
        Route {
            policies: null(),
            captured: null(),
            names: None,
            lengths: [0; 7],
            is_named: false,
            is_alternative: false,
            is_plain: false,
            hash: 0,
            place: RecordPlace::default(),
            is_let_in: false,
            error: 0,
            is_busy: false,
            is_of_if: false,
            parts: OfRoute::default(),
        }
    }

    fn set_endpoint_set(&mut self, endpoint_set: EndpointSetRef) {
        self.hash = endpoint_set.hash.map_or(0, KeyHash::to_bits);
        self.place = endpoint_set.place;
        self.is_plain = endpoint_set.is_plain;
    }

    fn endpoint_set(&self) -> EndpointSetRef {
        let hash = Some(KeyHash::from_bits(self.hash));
        EndpointSetRef { hash, place: self.place, is_plain: self.is_plain }
    }

    /// The bytes of all names but the last.
    fn rule_bytes(&self) -> usize {
        let [a, b, c, d, e, f, _] = self.lengths;
        [a, b, c, d, e, f].iter().map(|length| usize::from(*length)).sum()
    }
}

/// What the groups of the rule's path matched.
struct Captured {
    captures: Captures,
    /// The path they matched in, which a rewrite replaces; it stays as long as the request.
    path: *const [u8],
}

/// Holds a request's policies, if its rule has any, until its pool goes, and finds its context again: nginx forgets what modules
/// keep with a request when it redirects it internally.
struct HeldPolicies {
    here: EventLoop,
    request: *const nginx::Request,
    context: *const Context,
    policies: Option<Rc<Compiled>>,
}

impl Drop for HeldPolicies {
    fn drop(&mut self) {
        let Some(policies) = self.policies.take() else { return };
        match worker::current(self.here) {
            Some(worker) => worker.part::<Cache>().release(policies),
            // The worker is leaving.
            None => std::mem::forget(policies),
        }
    }
}

impl Default for Route {
    fn default() -> Self {
        Self::none()
    }
}

impl<'r> Request<'r> {
    /// Gives the request a route, in place of the one it has. `false` when memory is out: it has none then.
    #[inline]
    pub fn set_route(&self, new: NewRoute<'_>) -> bool {
        if new.names.is_none() && new.policies.is_none() && new.captures.is_none() {
            if let Some(context) = self.context() {
                context.route.set(Route::none());
            }
            return true;
        }
        let Some(context) = self.context_or_new() else { return false };
        let is_copied = self.copy_route(new, context).is_some();
        if !is_copied {
            context.route.set(Route::none());
        }
        is_copied
    }

    #[inline]
    fn copy_route(&self, new: NewRoute<'_>, context: &Context) -> Option<()> {
        let NewRoute { policies, captures, names, endpoint_set, error } = new;
        let pool = self.nginx().pool();
        let captured = match captures {
            Some(captures) => {
                std::ptr::from_ref(pool.alloc(Captured { captures: *captures, path: self.path() })?)
            }
            None => null(),
        };
        let policies = match policies {
            Some(policies) => self.hold(policies, context)?,
            None => null(),
        };
        let is_named = names.is_some();
        let Names { lengths, texts, instead, is_alternative } = names.unwrap_or_default();
        let copy =
            if is_named { Some(NonNull::from(pool.concat(&[texts, instead])?)) } else { None };
        let [a, b, c, d, e, f] = lengths;
        context.route.set(Route {
            policies,
            captured,
            names: copy,
            // An id has 512 bytes at most.
            lengths: [a, b, c, d, e, f, instead.len() as u16],
            is_named,
            is_alternative,
            is_plain: endpoint_set.is_plain,
            hash: endpoint_set.hash.map_or(0, KeyHash::to_bits),
            place: endpoint_set.place,
            error,
            ..Route::none()
        });
        Some(())
    }

    /// Holds policies until the request ends; `None` when memory is out.
    fn hold(&self, policies: Rc<Compiled>, context: &Context) -> Option<*const Compiled> {
        // A request that is redirected internally may be routed again, and holds both.
        let pointer = Rc::as_ptr(&policies);
        let (here, request) = (self.nginx().event_loop(), std::ptr::from_ref(self.nginx()));
        let held = HeldPolicies { here, request, context, policies: Some(policies) };
        self.nginx().pool().keep(held).map(|_| pointer)
    }

    /// The namespace of the rule whose endpoint has sent the request to another path by `X-Accel-Redirect`; `None`: none has, or the
    /// rule is no namespace's. As long as the route is that rule's.
    pub fn sender(&self) -> Option<&'r [u8]> {
        let is_sent = self.nginx().upstream().is_some_and(Upstream::redirects);
        let names = self.route_names().filter(|_| is_sent)?;
        Some(names.namespace()).filter(|namespace| !namespace.is_empty())
    }

    /// Has its context outlive an internal redirect, also where it holds no policies. Without memory nginx answers 500 in place
    /// of the redirect, since nobody would know who has sent the request.
    #[cold]
    pub fn keep_for_redirect(&self) {
        let Some(context) = self.context().filter(|_| self.nginx().is_main()) else { return };
        if self.context_from_before().is_some() {
            return;
        }
        let (here, request) = (self.nginx().event_loop(), std::ptr::from_ref(self.nginx()));
        let held = HeldPolicies { here, request, context, policies: None };
        if self.nginx().pool().keep(held).is_none() {
            self.nginx().set_last_redirect(true);
        }
    }

    /// The context that was kept before an internal redirect, with the newest policies.
    pub(crate) fn context_from_before(&self) -> Option<&'r Context> {
        // A subrequest has the pool of its main request.
        let mut all = self.nginx().pool().kept::<HeldPolicies>();
        let held = all.find(|held| std::ptr::eq(held.request, self.nginx()))?;
        // SAFETY: in the pool that holds it, too.
        Some(unsafe { &*held.context })
    }

    #[inline]
    pub(crate) fn route(&self) -> Option<Route> {
        self.context().map(|context| context.route.get())
    }

    /// Changes what a later phase keeps with the route; `false`: there is nothing to keep it with.
    #[inline]
    pub(crate) fn change_route(&self, change: impl FnOnce(&mut Route)) -> bool {
        let context = self.context();
        context.map(|context| change_in(context, change)).is_some()
    }

    /// As [`Request::change_route`], also where there is no route; `false` when memory is out.
    pub(crate) fn change_route_or_none(&self, change: impl FnOnce(&mut Route)) -> bool {
        let context = self.context_or_new();
        context.map(|context| change_in(context, change)).is_some()
    }

    /// The policies of the rule; `None`: it has none.
    #[inline]
    pub fn policies(&self) -> Option<&'r Compiled> {
        // SAFETY: null, or held until the request's pool goes.
        unsafe { self.route()?.policies.as_ref() }
    }

    /// What the rule's group of this number matched in the path.
    pub(crate) fn captured(&self, number: u8) -> &'r [u8] {
        // SAFETY: null, or what `copy_route` put into the request's pool.
        let captured = self.route().and_then(|route| unsafe { route.captured.as_ref() });
        captured.map_or(&[], |captured| {
            // SAFETY: a path of this request, as long as it.
            captured.captures.get(number, unsafe { &*captured.path })
        })
    }

    /// REWRITE has decided where it goes, or that it goes nowhere.
    #[inline]
    pub fn is_decided(&self) -> bool {
        self.route().is_some_and(|route| route.is_named)
    }

    /// The generation that decided where it goes; 0: none did.
    pub fn decided(&self) -> u64 {
        let route = self.route().filter(|route| route.is_named);
        route.map_or(0, |route| route.place.generation())
    }

    /// The backend that serves and how to find its endpoint set; `None`: REWRITE has not decided.
    #[inline]
    pub fn served_by(&self) -> Option<(&'r [u8], EndpointSetRef)> {
        let route = self.route().filter(|route| route.is_named)?;
        let names = self.names(&route);
        let backend = match route.lengths {
            [own, .., 0] => names.get(..usize::from(own)),
            _ => names.get(route.rule_bytes()..),
        };
        Some((backend.unwrap_or_default(), route.endpoint_set()))
    }

    /// The names of the rule and the backend, if REWRITE has decided; `None`: the route names no rule.
    pub fn route_names(&self) -> Option<RouteNames<'r>> {
        let route = self.route().filter(|route| route.is_named)?;
        let mut rest = self.names(&route);
        let [backend, namespace, ingress, service, port, path, instead] =
            route.lengths.map(|length| {
                let (text, left) = rest.split_at_checked(length.into()).unwrap_or_default();
                rest = left;
                text
            });
        Some(RouteNames {
            texts: [backend, namespace, ingress, service, port, path],
            backend: if instead.is_empty() { backend } else { instead },
        })
    }

    /// The alternative that takes the request, if one does.
    pub fn alternative(&self) -> Option<&'r [u8]> {
        let route = self.route().filter(|route| route.is_alternative)?;
        self.names(&route).get(route.rule_bytes()..)
    }

    /// All names of its route.
    fn names(&self, route: &Route) -> &'r [u8] {
        // SAFETY: the copy that was made in the pool of the request whose route this is.
        route.names.map_or(&[], |names| unsafe { names.as_ref() })
    }

    /// Keeps the alternative that takes a request without a route; answers the copy, `None` when memory is out.
    pub fn set_alternative(&self, id: &[u8]) -> Option<&'r [u8]> {
        let copy = self.nginx().pool().concat(&[id])?;
        self.change_route_or_none(|route| {
            route.names = Some(copy.into());
            route.lengths = [0, 0, 0, 0, 0, 0, copy.len() as u16];
            route.is_alternative = true;
        });
        Some(copy)
    }

    /// Another backend answers this status, with the rule's own names; `false` when memory is out.
    pub fn serve_by(&self, backend: &[u8], endpoint_set: EndpointSetRef, status: u16) -> bool {
        let Some(route) = self.route() else { return false };
        let names = self.names(&route).get(..route.rule_bytes()).unwrap_or_default();
        let Some(copy) = self.nginx().pool().concat(&[names, backend]) else { return false };
        self.change_route(|route| {
            route.names = Some(copy.into());
            // An id has 512 bytes at most.
            route.lengths[6] = backend.len() as u16;
            (route.is_named, route.error) = (true, status);
            route.set_endpoint_set(endpoint_set);
        })
    }

    /// What a feature keeps with the route; `None`: nothing is kept yet.
    #[inline]
    pub fn part_of_route<P: Copy>(&self) -> Option<P>
    where
        OfRoute: Has<P>,
    {
        self.route().map(|route| *route.parts.part())
    }

    /// Keeps that with the route, also where there is none; `false` when memory is out.
    pub fn set_part_of_route<P: Copy>(&self, part: P) -> bool
    where
        OfRoute: Has<P>,
    {
        self.change_route_or_none(|route| *route.parts.part_mut() = part)
    }

    /// Every endpoint is busy up to its limit.
    pub fn is_busy(&self) -> bool {
        self.route().is_some_and(|route| route.is_busy)
    }

    /// Notes that every endpoint is busy up to its limit.
    pub fn set_busy(&self) {
        self.change_route_or_none(|route| route.is_busy = true);
    }
}

#[inline]
fn change_in(context: &Context, change: impl FnOnce(&mut Route)) {
    let mut route = context.route.get();
    change(&mut route);
    context.route.set(route);
}
