//! Ingresses as they are read into claims.

use super::{BundleSource, Part, Translator};
use crate::ingress::{self, Claims};
use crate::patterns::Compiler;
use oxigress_core::model::{BackendId, HostPattern};
use oxigress_objects::{Changed, Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;

impl Translator {
    /// Reads one Ingress into claims. Returns the Services' ports whose balancing it changes.
    pub(super) fn read_ingress(
        &mut self,
        (world, changed): (&World, &Changed),
        key: &Key,
        hosts: &mut BTreeSet<HostPattern>,
    ) -> BTreeSet<BackendId> {
        let mut parsed = match (world.ingresses.get(key), self.refuse_paths(key)) {
            (Some(ingress), Some(note)) => {
                let object = (key, &**ingress);
                ingress::refused(world, &self.options, &self.settings, object, note)
            }
            (Some(ingress), None) => {
                let compiler = match self.pattern_budget.is_over(key) {
                    true => Compiler::over_budget(),
                    false => Compiler::new(
                        self.claims.get(key).into_iter().flat_map(|old| old.expressions()),
                    ),
                };
                let object = (key, &**ingress);
                ingress::parse(world, &self.options, &self.settings, object, compiler)
            }
            (None, _) => ingress::Parsed::default(),
        };
        if let Some(claims) = &mut parsed.claims {
            claims.share_policies(&mut self.shared_policies);
        }
        let object = ObjectRef::new(Kind::Ingress, key.clone());
        let notes = parsed.notes.into_iter().map(|note| (object.clone(), note));
        self.notes.set(Part::Ingress(key.clone()), notes);
        self.referred.set(key, parsed.referred);
        let created = world.ingresses.get(key).map_or(0, |ingress| ingress.created);
        self.writing.insert(object, (created, parsed.other_names));
        self.offer_bundles(BundleSource::Ingress(key.clone()), parsed.bundles);
        if self.acceptances.get(key) != parsed.acceptance.as_ref() {
            match parsed.acceptance {
                Some(acceptance) => drop(self.acceptances.insert(key.clone(), acceptance)),
                None => drop(self.acceptances.remove(key)),
            }
            self.new_acceptances.insert(key.clone(), parsed.acceptance);
        }
        // Nothing is owed for a removal, nor for what is read again because of something else.
        let is_edited = changed.ingresses.contains(key) && world.ingresses.contains_key(key);
        self.replace_claims((key, is_edited), parsed.claims, hosts)
    }

    fn replace_claims(
        &mut self,
        (key, is_edited): (&Key, bool),
        new: Option<Claims>,
        hosts: &mut BTreeSet<HostPattern>,
    ) -> BTreeSet<BackendId> {
        let old = self.claims.get(key).map(AsRef::as_ref);
        if old == new.as_ref() {
            return BTreeSet::new();
        }
        let turned = self.spec_owners.replace(old, new.as_ref());
        let created = old.map_or(0, |old| old.created);
        let changed: BTreeSet<HostPattern> = match (old, &new) {
            (Some(old), Some(new)) => new.hosts_changed(old),
            (only, new) => {
                let only = only.or(new.as_ref()).into_iter();
                only.flat_map(|claims| claims.hosts.keys()).cloned().collect()
            }
        };
        if is_edited && !self.gateways.statuses.is_empty() {
            for host in &changed {
                self.claimed_by.entry(host.clone()).or_default().insert(key.namespace.clone());
            }
        }
        hosts.extend(changed);
        for (host, _) in self.claims.remove(key).into_iter().flat_map(|old| old.hosts) {
            let Some(claimants) = self.claimants.get_mut(&host) else { continue };
            claimants.remove(&(created, key.clone()));
            if claimants.is_empty() {
                self.claimants.remove(&host);
            }
        }
        if let Some(new) = new {
            for host in new.hosts.keys() {
                let claimants = self.claimants.entry(host.clone()).or_default();
                claimants.insert((new.created, key.clone()));
            }
            self.claims.insert(key.clone(), Box::new(new));
        }
        turned
    }
}
