//! The bytes that are read or copied for an Ingress.

use super::Prices;
use crate::annotation::snippet::MOST_BYTES_OF_LOCATIONS;
use oxigress_core::model::HostPattern;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;

/// The longest name of an object.
const MAX_NAME_BYTES: usize = 253;

impl Prices<'_> {
    /// The bytes of the Secrets and ConfigMaps that an Ingress named when it was last read, or that one of its annotations
    /// has the name of now.
    pub(super) fn bytes_named(&self, key: &Key, new: &Ingress) -> u64 {
        let old = self.translator.objects_of(key).cloned();
        let all: BTreeSet<ObjectRef> = old.chain(named_by(self.prefix(), key, new)).collect();
        all.iter().map(|object| bytes_of(self.world, object)).sum()
    }

    /// The bytes of a server-snippet that are copied into its locations when it is read.
    pub(super) fn bytes_copied(&self, new: &Ingress) -> u64 {
        let text = new.annotations.get(&format!("{}/server-snippet", self.prefix()));
        let copied = text.map_or(0, |text| text.len() * text.matches("location").count());
        copied.min(MOST_BYTES_OF_LOCATIONS) as u64
    }

    /// The bytes of server-snippets that are copied when the hosts of an Ingress are merged again: for each host the longest
    /// of its Ingresses', once for each of these.
    pub(super) fn bytes_inherited(&self, key: &Key, new: &Ingress) -> u64 {
        let name = format!("{}/server-snippet", self.prefix());
        let bytes_of = |ingress: &Ingress| ingress.annotations.get(&name).map_or(0, |t| t.len());
        let on_host = |host: &HostPattern| {
            let others = self.translator.claimants_of(host).filter(|other| *other != key);
            let others = others.filter_map(|other| self.world.ingresses.get(other));
            let (count, longest) = others.fold((1, bytes_of(new)), |(count, longest), other| {
                (count + 1, longest.max(bytes_of(other)))
            });
            count * longest as u64
        };
        self.translator.hosts_named_by(key, new).iter().map(on_host).sum()
    }
}

/// The Secrets and ConfigMaps of which an Ingress's annotations have the name, if there are any.
pub fn named_by(prefix: &str, key: &Key, ingress: &Ingress) -> impl Iterator<Item = ObjectRef> {
    let values = ingress.annotations.iter().filter(move |(name, _)| name.starts_with(prefix));
    values.flat_map(move |(_, text)| {
        let text = text.trim();
        let (namespace, name) = text.split_once('/').unwrap_or((&key.namespace, text));
        // Most values are no names, and some are long.
        let named = (name.len() <= MAX_NAME_BYTES).then(|| Key::new(namespace, name));
        let kinds = [Kind::Secret, Kind::ConfigMap].into_iter();
        named.into_iter().flat_map(move |named| {
            kinds.clone().map(move |kind| ObjectRef::new(kind, named.clone()))
        })
    })
}

/// The bytes of a Secret or ConfigMap; 0: there is none.
pub fn bytes_of(world: &World, object: &ObjectRef) -> u64 {
    let bytes = match object.kind {
        Kind::Secret => world.secrets.get(&object.key).map(|it| it.secret.fields.bytes()),
        Kind::ConfigMap => world.config_maps.get(&object.key).map(|map| map.bytes()),
        _ => None,
    };
    bytes.unwrap_or_default() as u64
}
