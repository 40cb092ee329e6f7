//! What must hold of annotations and the ConfigMap whatever they say: `oxigress_fuzz` makes the inputs, of those that
//! the golden pairs have.

use crate::annotation;
use crate::*;
use annotation::{IngressContext, Read, table};
use oxigress_core::model::policy::{Access, Policies};
use oxigress_fuzz::{SEPARATOR, check};
use oxigress_objects::document::{self, Found};
use oxigress_objects::verdict::Severity;
use oxigress_objects::{Changed, ConfigMap, Key, Kind, Object, ObjectRef, World};
use oxigress_settings as settings;
use oxigress_settings::grammar::url;
use oxigress_settings::{Defaults, Settings, StaticConfig};
use patterns::Compiler;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

const PREFIX: &str = "nginx.ingress.kubernetes.io";

/// Objects of all golden pairs, in their order.
fn objects() -> Vec<(ObjectRef, Object)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let inputs = files.iter().filter(|path| path.to_str().unwrap().ends_with(".in.yaml"));
    let documents =
        inputs.flat_map(|path| document::read(&std::fs::read_to_string(path).unwrap(), false));
    let found = documents.filter_map(|document| document.found.ok()).flatten();
    let objects = found.filter_map(|found| match found {
        Found::Object(id, object) => Some((id, object)),
        _ => None,
    });
    objects.collect()
}

/// Pairs of a name and a value, as one input.
fn joined<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let texts: Vec<_> =
        pairs.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]).collect();
    texts.join(&SEPARATOR)
}

fn pairs(input: &[u8]) -> BTreeMap<&str, &str> {
    let texts: Vec<_> = input
        .split(|byte| *byte == SEPARATOR)
        .map(|text| str::from_utf8(text).unwrap_or(""))
        .collect();
    texts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

thread_local! {
    static WORLD: OnceCell<World> = const { OnceCell::new() };
}

/// What annotations may name, beside nothing.
fn world() -> World {
    let mut world = World::default();
    for (id, object) in objects() {
        if id.kind != Kind::Ingress {
            world.apply((id, Some(object)), &mut Changed::default());
        }
    }
    world
}

#[test]
fn fuzz_annotations() {
    let mut seeds: BTreeSet<Vec<u8>> =
        table::ROWS.iter().map(|row| joined([(row.name, "true")].into_iter())).collect();
    for (_, object) in objects() {
        let Object::Ingress(ingress) = object else { continue };
        let bare = ingress.annotations.iter().filter_map(|(name, text)| {
            Some((name.strip_prefix(PREFIX)?.strip_prefix('/')?, text.as_str()))
        });
        seeds.insert(joined(bare));
    }
    seeds.remove(&[][..]);
    assert!(seeds.len() > table::ROWS.len() + 10, "the golden pairs are not found any more");
    check("annotations", &seeds.into_iter().collect::<Vec<_>>(), |input| {
        let said = pairs(input);
        let all = said.iter().map(|(name, text)| (format!("{PREFIX}/{name}"), (*text).to_owned()));
        let all: BTreeMap<_, _> = all.collect();
        let both = [false, true]
            .map(|allows_snippets| Defaults { allows_snippets, ..Defaults::default() });
        WORLD.with(|kept| {
            both.iter().for_each(|defaults| {
                let context = IngressContext {
                    world: kept.get_or_init(world),
                    ingress: &Key::new("default", "shop"),
                    defaults,
                    https_port: 443,
                };
                let read = annotation::parse(
                    context,
                    &all,
                    PREFIX,
                    &Settings::default(),
                    &mut Compiler::new([]),
                );
                closes_or_protects(&said, &read);
                let json = serde_json::to_vec(&*read.annotations.policies).unwrap();
                let (again, unknown) = oxigress_core::wire::decode::<Policies>(&json).unwrap();
                assert_eq!((&again, unknown), (&*read.annotations.policies, 0));
                for id in ingress::urls(&again) {
                    let (host, _) = url::behind(id).unwrap();
                    assert!(!format!("{host:?}").contains(['$', '@', '\n']), "{id}");
                }
            })
        });
    });
}

/// A setting that keeps somebody out does so, or closes, and is told; a canary is what the main Ingress says.
fn closes_or_protects(said: &BTreeMap<&str, &str>, Read { annotations, host, notes, .. }: &Read) {
    if annotations.is_refused || annotations.canary.is_some() {
        return;
    }
    if let Some(closing) = &annotations.closing {
        assert!(notes.iter().any(|note| note.severity == Severity::Rejected), "{closing}");
        return;
    }
    let open = Access::default();
    let access = annotations.policies.access.as_ref().unwrap_or(&open);
    let limits = annotations.policies.limits.as_ref();
    for (name, text) in said.iter().filter(|(_, text)| !text.trim().is_empty()) {
        let is_kept = match *name {
            "allowlist-source-range" | "whitelist-source-range" => access.allow.is_some(),
            "denylist-source-range" => !access.deny.is_empty(),
            "auth-type" => access.basic.is_some(),
            "auth-url" => access.external.is_some(),
            "auth-tls-secret" => host.client_tls.client.is_some(),
            "limit-rps" => limits.is_some_and(|limits| limits.per_second.is_some()),
            "limit-rpm" => limits.is_some_and(|limits| limits.per_minute.is_some()),
            "limit-connections" => limits.is_some_and(|limits| limits.connections.is_some()),
            name => !(table::protects(name) && table::find(name).is_none()),
        };
        // No limit at all, if that is what it says.
        let is_zero = || name.starts_with("limit-") && text.trim().parse() == Ok(0);
        assert!(is_kept || is_zero(), "{name}: {text:?} is open");
    }
}

#[test]
fn fuzz_settings() {
    let keys = settings::keys::all().map(|key| joined([(key.name, key.default)].into_iter()));
    let maps = objects().into_iter().filter_map(|(_, object)| match object {
        Object::ConfigMap(map) => {
            Some(joined(map.data.iter().map(|(k, v)| (k.as_str(), v.as_str()))))
        }
        _ => None,
    });
    let seeds: BTreeSet<Vec<u8>> = keys.chain(maps).filter(|seed| !seed.is_empty()).collect();
    assert!(seeds.len() > 190, "the golden pairs are not found any more");
    check("settings", &seeds.into_iter().collect::<Vec<_>>(), |input| {
        let data = pairs(input).into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let map = ConfigMap { data };
        let (mut settings, mut notes) = settings::parse(Some(&map), &BTreeMap::new());
        annotation::snippet::settings::read(&mut settings, &mut notes);
        let rejected = notes.iter().any(|note| note.severity == Severity::Rejected);
        assert_eq!(settings.closing_key.is_some(), rejected);
        let json = serde_json::to_vec(&settings.defaults.policies).unwrap();
        let (again, unknown) = oxigress_core::wire::decode::<Policies>(&json).unwrap();
        assert_eq!((&again, unknown), (&settings.defaults.policies, 0));
        // The other role reads the same texts.
        let json = serde_json::to_vec(&settings.static_config).unwrap();
        assert_eq!(serde_json::from_slice::<StaticConfig>(&json).unwrap(), settings.static_config);
        for key in settings::keys::all().filter(|key| key.how.is_conf()) {
            let value = settings.static_config.value(key.name).conf();
            stays_in_its_place(key.name, &value);
        }
    });
}

/// The value ends no directive and no block and begins none, as nginx reads it.
fn stays_in_its_place(name: &str, value: &str) {
    let mut quote = None;
    let mut bytes = value.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (_, b'\\') => {
                assert!(bytes.next().is_some(), "{name}: {value:?} ends with a backslash")
            }
            (Some(open), byte) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'$') if bytes.peek() == Some(&b'{') => drop(bytes.find(|byte| *byte == b'}')),
            (None, byte) => {
                let is_plain = !b";{}#\r\n\0".contains(&byte);
                assert!(is_plain, "{name}: {value:?} leaves its place");
            }
        }
    }
    assert_eq!(quote, None, "{name}: {value:?} has an open quote");
}
