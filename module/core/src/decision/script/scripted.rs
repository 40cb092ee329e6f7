//! A decision about a request whose rule has a script.

use super::defined::{DefinitionSource, OfGeneration};
use super::moved::Moved;
use super::{Carried, End, Move, Run, Uri};
use crate::decision::facts::{CompiledPolicies, Facts, Generation};
use crate::decision::trace::{Reason, Trace};
use crate::decision::values::{Routed, RuleNames};
use crate::decision::{Answer, Counter, Decider, Decision};
use crate::model::policy::Script;
use crate::record::{RuleView, ServerView};
use std::cell::Cell;
use std::ops::Deref;

/// Decides again, until the path stays as it is.
#[cold]
pub(crate) fn again<'g, G, F, T>(
    generation: &G,
    facts: &F,
    trace: &mut T,
    first: Move,
) -> Decision<'g, G>
where
    G: Generation<'g>,
    F: Facts,
    T: Trace,
{
    let mut next = first;
    loop {
        let Move { path, args, mut carried } = next;
        let moved = Moved { facts, path, args, budget: Cell::new(carried.paths) };
        let is_last = carried.is_last_move();
        let mut decision = Decision::new();
        trace.moved();
        match crate::decision::once(generation, &moved, trace, &mut decision, Some(carried)) {
            Some(further) if !is_last => {
                next = *further;
                next.carried.paths = moved.budget.get();
                continue;
            }
            Some(_) => {
                trace.answer(Reason::MovesInACircle);
                decision.answer = Answer::Respond(500);
            }
            None => {}
        }
        decision.edits.get_or_insert_default().moved = Some(Box::new((moved.path, moved.args)));
        return decision;
    }
}

/// What a script leaves to the policies that it belongs to.
pub(crate) struct Scripted<P> {
    /// They hold from now on: the rule's, or those of a location of its server.
    pub policies: P,
    /// `None`: they say what becomes of the request.
    pub answer: Option<Answer>,
    /// Their rewrite has no effect.
    pub is_broken_off: bool,
}

/// Policies that those of a rule name.
struct Named<P> {
    /// Of the rule's server.
    server: Option<P>,
    /// Of all servers: their steps come after those.
    every_server: Option<P>,
    /// Of all locations: their steps come after the rule's own.
    every_location: Option<P>,
}

/// A script, and the namespace to whose rules alone it may lead; `None`: it speaks for all hosts, and may lead to any.
type Owned<'s> = (&'s Script, Option<&'s [u8]>);

impl<P: Deref<Target: CompiledPolicies>> Named<P> {
    /// The scripts of the rule's servers, of a rule of this namespace.
    fn servers<'s>(&'s self, namespace: &'s [u8]) -> Vec<Owned<'s>> {
        let script = |policies: &'s P| policies.source().script.as_deref();
        let own = self.server.as_ref().and_then(script);
        let own = own.map(|own| (own, Some(own.payer(namespace))));
        let every = self.every_server.as_ref().and_then(script).map(|every| (every, None));
        own.into_iter().chain(every).collect()
    }
}

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// Whether a script, or an endpoint, has led the request to a rule of another namespace than the one that it may lead to. What
    /// protects that rule may look at the client's path, which auth servers are told.
    #[cold]
    pub(crate) fn is_led_to_another(&self, rule: RuleView<'g>) -> bool {
        let [_, namespace, ..] = rule.texts();
        let mover = match &self.carried {
            Some(carried) => carried.mover.as_deref(),
            None => self.facts.sender(),
        };
        mover.is_some_and(|mover| mover != namespace)
    }

    /// Takes the steps of a rule's script, and of its server's.
    #[cold]
    pub(crate) fn scripted(
        &mut self,
        policies: G::Policies,
        rule: RuleView<'g>,
    ) -> Scripted<G::Policies> {
        let mut carried = self.carried.take().unwrap_or_default();
        carried.forget_rule();
        let mut done = Scripted { policies, answer: None, is_broken_off: false };
        // What is closed stays closed, whatever a script would answer.
        if done.policies.source().denied.is_some() {
            return done;
        }
        let named = match self.named_by(&done.policies) {
            Ok(found) => found,
            Err(answer) => {
                done.answer = Some(answer);
                return done;
            }
        };
        let [_, namespace, ..] = rule.texts();
        let (servers, mut mover) = (named.servers(namespace), Some(namespace));
        let mut last = named.every_location.as_ref();
        if !servers.is_empty() {
            match self.of_servers(&servers, rule, carried) {
                Ok((kept, location)) => {
                    carried = kept;
                    if let Some((found, owner)) = location {
                        (done.policies, mover, last) = (found, owner, None);
                    }
                }
                Err(answer) => {
                    done.answer = Some(answer);
                    return done;
                }
            }
        }
        let source = done.policies.source();
        if source.denied.is_some()
            || self.is_preflight(done.policies.origins(), source.cors.as_ref())
        {
            return done;
        }
        let last = last.and_then(|last| last.source().script.as_deref());
        let own = source.script.as_deref().map(|own| (own, mover));
        let scripts: Vec<Owned<'_>> = own.into_iter().chain(last.map(|all| (all, None))).collect();
        let (answer, is_broken_off) =
            self.own_steps(&scripts, source.relative_redirects, rule, carried);
        (done.answer, done.is_broken_off) = (answer, is_broken_off);
        done
    }

    /// With the patterns of the rule's namespace.
    fn run<'s>(
        &'s mut self,
        rule: RuleView<'g>,
        definitions: &'s dyn DefinitionSource,
        is_relative: bool,
        carried: Box<Carried>,
    ) -> Run<'s, 'g, F> {
        self.route.is_named = true;
        let facts = self.facts;
        let captures = self.route.captures.as_deref();
        let values = Routed { facts, names: Some(RuleNames::of(rule)), captures, known: &[] };
        let [_, namespace, ..] = rule.texts();
        let patterns = self.generation.patterns().of(namespace);
        Run::new(values, patterns, definitions, facts.origin().filter(|_| !is_relative), carried)
    }

    /// The policies that those of a rule name.
    fn named_by(&mut self, policies: &G::Policies) -> Result<Named<G::Policies>, Answer> {
        let mut named = Named { server: None, every_server: None, every_location: None };
        let Some(script) = &policies.source().script else { return Ok(named) };
        for (id, place) in [
            (&script.server, &mut named.server),
            (&script.every_server, &mut named.every_server),
            (&script.every_location, &mut named.every_location),
        ] {
            let Some(id) = id else { continue };
            *place = self.generation.policies(id.as_str().as_bytes());
            if place.is_none() {
                return Err(self.respond(503, Reason::PoliciesMissing));
            }
        }
        Ok(named)
    }

    /// The steps of servers, which are taken once, and the location that takes the request from its rule, with the namespace
    /// that it may lead to.
    #[allow(clippy::type_complexity, reason = "what is carried on, and where to")]
    fn of_servers<'s>(
        &mut self,
        servers: &[Owned<'s>],
        rule: RuleView<'g>,
        carried: Box<Carried>,
    ) -> Result<(Box<Carried>, Option<(G::Policies, Option<&'s [u8]>)>), Answer> {
        let (place, generation) = (self.place_of(rule), self.generation);
        let [_, namespace, ..] = rule.texts();
        let all = generation.patterns();
        let definitions = OfGeneration { generation, namespace };
        let mut run = self.run(rule, &definitions, false, carried);
        if !std::mem::replace(&mut run.carried.has_server_steps, true) {
            let mut mover = None;
            for (script, owner) in servers {
                run.patterns = all.of(script.payer(namespace));
                let end = run.take(&script.steps);
                mover = mover.or(owner.filter(|_| run.has_uri()));
                match end {
                    End::Over => {}
                    End::Break | End::Last => break,
                    End::Answer(answer, reason) => {
                        let (_, carried) = run.into_uri();
                        return Err(self.ends(answer, reason, *carried));
                    }
                }
            }
            // nginx looks for the location with the new path, whatever ended the steps.
            if run.has_uri() {
                let moved = run.into_uri();
                return Err(self.moves(moved, mover));
            }
        }
        let locations = servers.iter().flat_map(|(script, owner)| {
            let patterns = all.of(script.payer(namespace));
            script.locations.iter().map(move |location| (location, patterns, *owner))
        });
        let locations: Vec<_> = locations.collect();
        let Ok(found) = run.location(&locations, place) else {
            return Err(self.respond(500, Reason::NoAnswer));
        };
        let carried = run.carried;
        let Some((id, owner)) = found else { return Ok((carried, None)) };
        match generation.policies(id) {
            Some(found) => Ok((carried, Some((found, owner)))),
            None => Err(self.respond(503, Reason::PoliciesMissing)),
        }
    }

    /// The path of a rule, and whether it is a pattern, or exact.
    fn place_of(&self, rule: RuleView<'g>) -> (&'g [u8], bool, bool) {
        let is_regex = self.route.captures.is_some();
        match *self.counter {
            Some(Counter::Rule(server, _)) => {
                let view = ServerView::new(self.generation.value_of(server));
                let (path, is_exact) = view.place(rule.index());
                (path, is_regex, is_exact)
            }
            _ => (&[], is_regex, false),
        }
    }

    /// Steps of the rule, or of a location, and those that follow; whether they end its rewrite.
    fn own_steps(
        &mut self,
        scripts: &[Owned<'_>],
        is_relative: bool,
        rule: RuleView<'g>,
        carried: Box<Carried>,
    ) -> (Option<Answer>, bool) {
        let generation = self.generation;
        let [_, namespace, ..] = rule.texts();
        let definitions = OfGeneration { generation, namespace };
        let mut run = self.run(rule, &definitions, is_relative, carried);
        let (mut end, mut mover) = (End::Over, None);
        for (script, owner) in scripts {
            run.patterns = generation.patterns().of(script.payer(namespace));
            end = run.take(&script.steps);
            mover = mover.or(owner.filter(|_| run.has_uri()));
            if !matches!(end, End::Over) {
                break;
            }
        }
        let (is_changed, if_location) = (run.is_changed, run.if_location.take());
        let (uri, carried) = run.into_uri();
        let is_moved = matches!(end, End::Last) || matches!(end, End::Over) && is_changed;
        if let Some(location) = if_location.filter(|_| !is_moved) {
            self.edit().if_location = Some(location);
        }
        let is_broken_off = match end {
            End::Answer(answer, reason) => {
                return (Some(self.ends(answer, reason, *carried)), false);
            }
            End::Last | End::Over if is_moved => {
                return (Some(self.moves((uri, carried), mover)), false);
            }
            End::Last | End::Over => false,
            End::Break => true,
        };
        if uri.is_some() {
            self.edit().uri = uri;
        }
        self.keep_variables(*carried);
        (None, is_broken_off)
    }

    fn ends(&mut self, answer: Answer, reason: Reason, carried: Carried) -> Answer {
        self.keep_variables(carried);
        self.trace.answer(reason);
        answer
    }

    /// Also where there are none: those of a rule that an endpoint has sent the request on from are nobody's.
    fn keep_variables(&mut self, carried: Carried) {
        let edits = self.edit();
        edits.pattern_steps = Some(carried.steps_left());
        edits.variables = Some(Box::new(carried.into_variables()));
    }

    /// The request has another path from now on; the answer is nobody's. `mover`: the namespace whose rules alone it may lead to;
    /// `None`: whoever speaks for all hosts says so. What a namespace has led to stays within it, whoever leads it on: it has said
    /// what others make of the path.
    fn moves(
        &mut self,
        (uri, mut carried): (Option<Uri>, Box<Carried>),
        mover: Option<&[u8]>,
    ) -> Answer {
        let before = carried.mover.take().or_else(|| self.facts.sender().map(Box::from));
        if mover.is_some_and(|mover| before.as_deref().is_some_and(|before| before != mover)) {
            return self.respond(404, Reason::MovedToAnother);
        }
        carried.mover = before.or_else(|| mover.map(Box::from));
        let (mut path, args) =
            uri.unwrap_or_else(|| (self.facts.path().to_vec(), self.facts.args().to_vec()));
        // As a client's: a path that a rule protects has one slash between its segments.
        path.dedup_by(|next, before| (*before, *next) == (b'/', b'/'));
        *self.moved = Some(Box::new(Move { path, args, carried }));
        Answer::Respond(500)
    }
}

#[cfg(test)]
mod tests;
