//! Whether an Ingress may have the paths that it asks for.

use crate::Translator;
use crate::ingress::{Claim, Claims};
use crate::review::ReviewOutcome;
use oxigress_core::model::{HostPattern, PathPattern, shorten};
use oxigress_objects::World;
use oxigress_objects::ingress::{Ingress, Rule};
use std::collections::BTreeSet;

/// The paths of an Ingress on one host: as they are written, and as they are served. `/login/` and `/login` are one prefix.
struct Paths<'c> {
    written: BTreeSet<&'c str>,
    served: BTreeSet<&'c PathPattern>,
}

impl<'c> Paths<'c> {
    fn of(claims: impl Iterator<Item = &'c Claim> + Clone) -> Self {
        Paths {
            written: claims.clone().map(|claim| claim.path.as_str()).collect(),
            served: claims.map(|claim| &claim.pattern).collect(),
        }
    }

    fn writes(&self, claim: &Claim) -> bool {
        self.written.contains(claim.path.as_str())
    }

    fn serves(&self, claim: &Claim) -> bool {
        self.served.contains(&claim.pattern)
    }
}

impl Translator {
    /// The same path of a host, whatever its type, may stand in one Ingress that is no canary. Who already serves it
    /// keeps it, also if a younger one names it too, and no older one takes it by writing it otherwise.
    pub(super) fn check_overlap(
        &self,
        world: &World,
        ingress: &Ingress,
        claims: &Claims,
        outcome: &mut ReviewOutcome,
    ) -> Result<(), String> {
        let name = format!("{}/canary", self.options.annotations_prefix);
        let says_canary = |ingress: &Ingress| ingress.annotations.contains_key(&name);
        let older_self = self.claims.get(&claims.key);
        let was_canary = older_self.is_some_and(|old| old.canary().is_some());
        let mut others = BTreeSet::new();
        for (host, paths) in claims.hosts.iter() {
            let paths = Paths::of(paths.iter());
            let had = Paths::of(older_self.into_iter().flat_map(|old| old.claims_on(host)));
            for other in self.claims_on(host).into_iter().filter(|other| other.key != claims.key) {
                others.insert(&other.key);
                let is_older = (claims.created, &claims.key) < (other.created, &other.key);
                // What it had as a canary it has not had before others.
                let is_own = other.key.namespace == claims.key.namespace;
                let keeps = is_older && (is_own || !was_canary);
                let is_taken = |claim: &&Claim| {
                    let by_text = paths.writes(claim) && !(keeps && had.writes(claim));
                    // A younger one is not served there, and told.
                    let by_pattern = is_older && paths.serves(claim);
                    by_text || by_pattern && !(keeps && had.serves(claim))
                };
                let served = other.claims_on(host).iter().find(is_taken).map(|claim| &*claim.path);
                let stored = || self.stored_path(world, other, host, &paths.written, &had.written);
                let taken = served.or_else(|| (!is_older).then(stored).flatten());
                let Some(taken) = taken else { continue };
                // The second Ingress of a rollout that is not under way says `canary: "false"`. A canary of another namespace joins
                // no path, and without one the older Ingress has it.
                let is_rollout = (is_own || claims.canary().is_some() || !is_older)
                    && (says_canary(ingress)
                        || world.ingresses.get(&other.key).is_some_and(|other| says_canary(other)));
                if !is_rollout {
                    return Err(format!(
                        "host {:?} and path {:?} is already defined in ingress {}: use another path, or annotate a canary",
                        host.as_str(),
                        shorten(taken),
                        other.key
                    ));
                }
            }
        }
        outcome.compared += others.len();
        Ok(())
    }

    /// The first new path that an Ingress of which nothing is served has on a host: it has it when it is served again.
    fn stored_path<'w>(
        &self,
        world: &'w World,
        by: &Claims,
        host: &HostPattern,
        written: &BTreeSet<&str>,
        had: &BTreeSet<&str>,
    ) -> Option<&'w str> {
        let ingress = world.ingresses.get(&by.key).filter(|_| !self.is_served(&by.key))?;
        let name = if *host == HostPattern::default_host() { "" } else { host.as_str() };
        let is_of_host = |rule: &&Rule| rule.host.eq_ignore_ascii_case(name);
        let mut paths = ingress.rules.iter().filter(is_of_host).flat_map(|rule| &rule.paths);
        let is_taken = |path: &str| written.contains(path) && !had.contains(path);
        paths.find_map(|path| Some(path.written()).filter(|path| is_taken(path)))
    }
}
