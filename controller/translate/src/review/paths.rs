//! Whether an Ingress may have the paths that it asks for.

use crate::Translator;
use crate::ingress::Claims;
use crate::review::ReviewOutcome;
use oxigress_core::model::shorten;
use oxigress_objects::World;
use oxigress_objects::ingress::Ingress;
use std::collections::BTreeSet;

impl Translator {
    /// The same path of a host, whatever its type, may stand in one Ingress that is no canary. Who already serves it
    /// keeps it, also if a younger one names it too.
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
            let paths: BTreeSet<&str> = paths.iter().map(|claim| claim.path.as_str()).collect();
            let had_paths = older_self.into_iter().flat_map(|old| old.claims_on(host));
            let had_paths: BTreeSet<&str> = had_paths.map(|claim| claim.path.as_str()).collect();
            for other in self.claims_on(host).into_iter().filter(|other| other.key != claims.key) {
                others.insert(&other.key);
                let is_older = (claims.created, &claims.key) < (other.created, &other.key);
                // What it had as a canary it has not had before others.
                let is_own = other.key.namespace == claims.key.namespace;
                let had = |path: &&str| had_paths.contains(path) && (is_own || !was_canary);
                let is_taken = |path: &&str| paths.contains(path) && !(is_older && had(path));
                let theirs = other.claims_on(host).iter();
                let Some(path) = theirs.map(|claim| claim.path.as_str()).find(is_taken) else {
                    continue;
                };
                // The second Ingress of a rollout that is not under way says `canary: "false"`. A canary of another namespace joins
                // no path, and without one the older Ingress has it.
                let is_rollout = (is_own || claims.canary().is_some() || !is_older)
                    && (says_canary(ingress)
                        || world.ingresses.get(&other.key).is_some_and(|other| says_canary(other)));
                if !is_rollout {
                    return Err(format!(
                        "host {:?} and path {:?} is already defined in ingress {}: use another path, or annotate a canary",
                        host.as_str(),
                        shorten(path),
                        other.key
                    ));
                }
            }
        }
        outcome.compared += others.len();
        Ok(())
    }
}
