//! The objects of a change that Events may be about.

use oxigress_objects::{Changed, Kind, ObjectRef, World};
use oxigress_status::Change;
use std::collections::BTreeMap;

/// What Events may be about: before all there was at start has been told, nothing has changed.
pub fn changes(changed: &Changed, world: &World, has_all: bool) -> BTreeMap<ObjectRef, Change> {
    let maps = changed.config_maps.iter().map(|key| ObjectRef::new(Kind::ConfigMap, key.clone()));
    let ingresses = changed.ingresses.iter().filter(|_| has_all);
    let ingresses = ingresses.map(|key| ObjectRef::new(Kind::Ingress, key.clone()));
    let change = |object: &ObjectRef| match (world.has(object), has_all) {
        (false, _) => Change::Gone,
        (true, false) => Change::Found,
        (true, true) => Change::Taken,
    };
    maps.chain(ingresses).map(|object| (change(&object), object)).map(|(c, o)| (o, c)).collect()
}
