//! The TCP and UDP ports and their backends.

use super::{Translator, put};
use crate::backend::{self, Usage, size, stream};
use crate::pace::price::endpoints;
use crate::translator::notes::Part;
use oxigress_core::model::{Backend, BackendId, StreamPort};
use oxigress_core::wire::native::Patch;
use oxigress_objects::service::Protocol;
use oxigress_objects::{Changed, Key, Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};

impl Translator {
    pub(super) fn read_streams(&mut self, world: &World, changed: &Changed, is_first: bool) {
        let mut backends = BTreeSet::new();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let map = match protocol {
                Protocol::Tcp => &self.options.tcp_services_configmap,
                Protocol::Udp => &self.options.udp_services_configmap,
            };
            if let Some(key) = map.clone()
                && (is_first || changed.config_maps.contains(&key))
            {
                self.read_stream_map(world, key, protocol, &mut backends);
            }
        }
        let entries = self.streams.iter();
        let touched =
            entries.filter(|(_, entry)| changed.services.contains(&entry.backend_ref.service));
        backends.extend(touched.map(|(_, entry)| entry.backend_ref.backend.clone()));
        for id in backends {
            self.resolve_stream(world, id);
        }
    }

    pub(super) fn read_stream_map(
        &mut self,
        world: &World,
        key: Key,
        protocol: Protocol,
        backends: &mut BTreeSet<BackendId>,
    ) {
        let (entries, notes) = match world.config_maps.get(&key) {
            Some(map) => stream::parse(map, protocol, &self.options),
            None => {
                let message = "does not exist, but a flag names it: create it or remove the flag";
                (BTreeMap::new(), vec![oxigress_objects::verdict::Note::warning(message)])
            }
        };
        let object = ObjectRef::new(Kind::ConfigMap, key);
        let notes = notes.into_iter().map(|note| (object.clone(), note));
        self.notes.set(Part::Streams(protocol), notes);
        let old = std::mem::take(&mut self.streams);
        let (mut kept, old): (BTreeMap<_, _>, BTreeMap<_, _>) =
            old.into_iter().partition(|(port, _)| stream::protocol_of(port) != protocol);
        let listeners = |all: &BTreeMap<StreamPort, stream::Entry>| -> Vec<_> {
            all.iter().map(|(port, entry)| (*port, entry.listener)).collect()
        };
        self.is_new_conf_input |= listeners(&old) != listeners(&entries);
        for port in old.keys().chain(entries.keys()) {
            let backend = entries.get(port).map(|entry| entry.backend_ref.backend.clone());
            let Patch { upsert, remove, .. } = &mut self.patch;
            put(&mut self.snapshot.ports, &mut upsert.ports, &mut remove.ports, port, backend);
        }
        let both = old.values().chain(entries.values());
        backends.extend(both.map(|entry| entry.backend_ref.backend.clone()));
        kept.extend(entries);
        self.streams = kept;
    }

    pub(super) fn resolve_stream(&mut self, world: &World, id: BackendId) {
        let uses = self.streams.iter().filter(|(_, entry)| entry.backend_ref.backend == id);
        let ports: Vec<StreamPort> = uses.clone().map(|(port, _)| *port).collect();
        let Some((port, backend_ref)) = uses.map(|(port, entry)| (port, &entry.backend_ref)).next()
        else {
            return self.drop_backend(id);
        };
        let protocol = stream::protocol_of(port);
        let resolved = backend::resolve(world, &self.options, backend_ref, Usage::Stream(protocol));
        let name = stream::upstream_name(protocol, backend_ref);
        let service = backend_ref.service.clone();
        let mut notes = resolved.object_notes;
        let map = match protocol {
            Protocol::Tcp => &self.options.tcp_services_configmap,
            Protocol::Udp => &self.options.udp_services_configmap,
        };
        if let (Some(lack), Some(map)) = (&resolved.lack, map) {
            let object = ObjectRef::new(Kind::ConfigMap, map.clone());
            notes.extend(ports.iter().map(|port| {
                let number = port.to_string();
                let number = number.rsplit('/').next().unwrap_or_default();
                let mut note = lack.note("sessions are closed");
                note.message = format!("data.{number}: {}", note.message);
                (object.clone(), note)
            }));
        }
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.external_name);
        let record = Backend { name: Some(name), ..Backend::default() };
        let size = size::of_service(world, &service);
        self.note_work(service.namespace, endpoints::price(size, (1, 0)));
        self.put_backend(&id, Some((record, resolved.endpoints)));
    }
}
