//! What other namespaces say about a host changes nothing of what its owner serves.

use super::*;
use crate::claim::age::Age;
use crate::host::owner::ServedFrom;
use crate::{HostOwnership, Options, Translator};
use oxigress_core::model::policy::TlsPolicy;
use oxigress_core::model::{HostPattern, PathPattern, Snapshot, WELL_KNOWN};
use oxigress_core::patterns::{Patterns, literal_prefix};
use oxigress_core::record::{Kind as Record, NoParts, RuleView, snapshot_records};
use oxigress_core::router::{self, tls as core_tls};
use oxigress_objects::ingress::PathType;
use oxigress_objects::{Changed, Key, Kind, ObjectRef, World, gateway, ingress as ingress_object};
use std::collections::BTreeMap;

type Records = BTreeMap<(Record, Vec<u8>), Vec<u8>>;

const ASKED: [&str; 11] = [
    "/",
    "/x",
    "/x/y",
    "/x/y/z",
    "/x/yz",
    "/xy",
    "/app",
    "/X/Y/1",
    WELL_KNOWN,
    "/.well-known/acme-challenge/token",
    "/.WELL-known/x",
];

fn records(snapshot: &Snapshot) -> Records {
    let all = snapshot_records(snapshot.clone()).into_iter();
    all.map(|change| ((change.kind, change.key), change.value.unwrap())).collect()
}

/// A rule that takes a request.
#[derive(Clone, Debug, PartialEq)]
struct Taken {
    path: PathPattern,
    by: Key,
    backend: Option<String>,
    policies: String,
    redirect: String,
}

fn taken(snapshot: &Snapshot, records: &Records, host: &HostPattern, path: &str) -> Option<Taken> {
    let asked = if *host == HostPattern::default_host() { "else.where" } else { host.as_str() };
    let asked = asked.replace('*', "some");
    let patterns = Patterns::default();
    let found = router::route(&records, asked.as_bytes(), path.as_bytes(), &patterns).unwrap()?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let rule: RuleView<'_> = found.rule;
    let [_, namespace, name, ..] = rule.texts();
    // The pattern by its place is not known outside: of the snapshot's rules it is the one with this path.
    let wins = |considered: &oxigress_core::record::Considered<'_>| {
        use oxigress_core::record::MatchResult::{LacksSlash, Wins};
        matches!(considered.result, Wins | LacksSlash)
    };
    let server = records.get(&(Record::Server, host.as_str().into()))?;
    let server = oxigress_core::record::ServerView::new(server);
    let winner = server.considered(path.as_bytes(), &patterns).into_iter().find(wins)?;
    let has_certificate = core_tls::has_certificate(&records, asked.as_bytes());
    let redirect = (rule.https_redirect(), has_certificate);
    assert!(snapshot.servers.contains_key(host));
    Some(Taken {
        path: winner.path,
        by: Key::new(text(namespace), text(name)),
        backend: rule.backend().map(text),
        policies: text(rule.policies()),
        redirect: format!("{redirect:?}"),
    })
}

/// How much of a path is sure to be in plain text, as a prefix.
fn plain(path: &PathPattern) -> usize {
    match path {
        PathPattern::Exact(text) | PathPattern::Prefix(text) => text.len(),
        PathPattern::Regex(text) => {
            let literal = literal_prefix(text);
            literal.strip_suffix(b"/").unwrap_or(&literal).len()
        }
    }
}

/// Whether a path of another namespace may stand before one of the owner: it says more closely what it is, nobody has
/// the owner's, or it is the same and older.
fn may_stand(world: &World, other: &Taken, own: &Taken) -> bool {
    let age = |key: &Key| world.ingresses.get(key).map(|ingress| (ingress.created, key.clone()));
    let names_root = |key: &Key| {
        let rules = world.ingresses.get(key).into_iter().flat_map(|ingress| &ingress.rules);
        let is_root =
            |path: &ingress_object::Path| path.path == "/" && path.path_type != PathType::Exact;
        rules.flat_map(|rule| &rule.paths).any(is_root)
    };
    // Of an Ingress that is closed the root is, too.
    let is_nobodys = own.path == PathPattern::Prefix(String::new())
        && own.backend.as_ref().is_none_or(|id| id.starts_with("denied//") && !names_root(&own.by));
    let is_older = other.path == own.path && age(&other.by) < age(&own.by);
    is_nobodys
        || is_older
        || match (&other.path, &own.path) {
            (PathPattern::Exact(_), _) => true,
            (PathPattern::Regex(_), _) => plain(&other.path) > plain(&own.path),
            // As before: the longer text.
            (PathPattern::Prefix(_), PathPattern::Regex(_)) => true,
            (PathPattern::Prefix(_), _) => plain(&other.path) > plain(&own.path),
        }
}

fn translated(world: &World, options: &Options) -> Translator {
    let mut translator = Translator::new(options.clone());
    translator.update(world, &world.all());
    translator
}

/// Whose the host is, and from where it is served; None: from its own rules.
fn owner_and_source(
    translator: &Translator,
    host: &HostPattern,
) -> Option<(Age, Option<HostPattern>)> {
    let decided = translator.decide_owner(host);
    let source = match decided.served_from {
        ServedFrom::Claims(_) => None,
        ServedFrom::Alias { source, .. } => Some(source.clone()),
    };
    Some((decided.by?, source))
}

/// The TLS sessions of a server name are those of its owner: routes of other namespaces get none, on whatever port, unless they are
/// older than what names it.
fn check_sessions(world: &World, all: &Translator) -> Result<(), TestCaseError> {
    for (place, route) in &all.snapshot.sessions {
        let Some(host) = place.host.as_ref().filter(|_| !route.namespace.is_empty()) else {
            continue;
        };
        let decided = all.decide_owner(host);
        // A listener leaves its host to somebody else.
        let Some(by) = decided.by.filter(|_| decided.kind != Kind::Gateway) else { continue };
        let id = all.route_of_session(place).unwrap();
        if (world.gateway_api.routes[&id].meta.created, &id.key) < by.borrowed() {
            continue;
        }
        if *host != HostPattern::default_host() {
            prop_assert_eq!(&*by.key.namespace, route.namespace.as_str(), "{}", place);
        }
    }
    Ok(())
}

/// Below [`WELL_KNOWN`] of a listener's host nobody answers but the owner, and Gateways that the owner has attached to.
fn check_challenges(world: &World, all: &Translator) -> Result<(), TestCaseError> {
    let records = records(&all.snapshot);
    for at in all.snapshot.listener_servers.keys() {
        let Some(by) = all.decide_owner(&at.host).by else { continue };
        let server = records.get(&(Record::Listener, at.to_string().into_bytes())).unwrap();
        let server = oxigress_core::record::ServerView::new(server);
        for path in ASKED.into_iter().filter(|path| path.starts_with(WELL_KNOWN)) {
            let found = server.rule(path.as_bytes(), &NoParts, &Patterns::default()).unwrap();
            let Some(rule) = found.map(|found| found.rule) else { continue };
            let [_, namespace, name, ..] =
                rule.texts().map(|text| String::from_utf8(text.to_vec()).unwrap());
            let is_closed = rule.backend().is_none_or(|id| id.starts_with(b"denied//"));
            let may = is_closed
                || namespace == by.key.namespace.as_str()
                || may_answer(world, all, &at.host, &Key::new(&namespace, &name));
            prop_assert!(may, "{at}{path} of {by:?} is answered by {namespace}/{name}");
        }
    }
    Ok(())
}

/// Whether an object of another namespace than the oldest one's may answer challenges: a Gateway leaves a host of its listener to
/// the oldest Ingress or route that names it, or else to its routes; and an owner lets the Gateways that it has attached to.
fn may_answer(world: &World, all: &Translator, host: &HostPattern, by: &Key) -> bool {
    let routes = &world.gateway_api.routes;
    let decided = all.decide_owner(host);
    let heir = all.successor(host, decided.kind).map(|(age, _)| age.key.namespace);
    let is_heir = heir.as_ref() == Some(&by.namespace);
    let is_left = decided.kind == Kind::Gateway && heir.is_none();
    let owner = heir.or(decided.by.map(|by| by.key.namespace));
    let attached = |route: &gateway::Route, own: &Key| {
        let mut all = route.spec.parent_refs.iter();
        all.any(|parent| by.namespace == parent.namespace.as_deref().unwrap_or(&own.namespace))
    };
    let mut own =
        routes.iter().filter(|(id, _)| is_left || Some(&id.key.namespace) == owner.as_ref());
    let is_parent = own.any(|(id, route)| attached(route, &id.key));
    let is_route = routes.keys().any(|id| id.key == *by);
    is_heir || (is_route && (is_left || is_parent))
}

/// How TLS is spoken on a host is its owner's to say.
fn check_tls(
    all: &Translator,
    (host, by): (&HostPattern, &Age),
    served: &Records,
    alone: &Records,
) -> Result<(), TestCaseError> {
    // A host without a policy of its own, where a wildcard has one, is given one that says nothing.
    let silent = records(&Snapshot {
        tls: [(host.clone(), TlsPolicy::default())].into(),
        ..Snapshot::default()
    });
    let name = host.as_str().replace('*', "some");
    let tls = |records: &Records| {
        let policy = core_tls::policy(&records, Some(name.as_bytes()), true);
        policy.filter(|policy| silent.values().all(|silent| silent != policy)).map(<[u8]>::to_vec)
    };
    // A listener leaves its host to the oldest Ingress or route that names it, with how TLS is spoken there.
    let decided = all.decide_owner(host);
    let heir = all.successor(host, decided.kind).filter(|_| decided.kind == Kind::Gateway);
    if heir.is_none_or(|(heir, _)| heir.key.namespace == by.key.namespace) {
        prop_assert_eq!(tls(served), tls(alone), "TLS of {}", host);
    }
    Ok(())
}

fn check_host(
    (world, all): (&World, &Translator),
    own: &Translator,
    host: &HostPattern,
) -> Result<usize, TestCaseError> {
    let Some((by, source)) = owner_and_source(all, host) else { return Ok(0) };
    // Another of the owner's aliases may lead here if nobody else has where it comes from.
    if owner_and_source(own, host).map(|(_, source)| source) != Some(source) {
        return Ok(0);
    }
    let (served, alone) = (records(&all.snapshot), records(&own.snapshot));
    check_tls(all, (host, &by), &served, &alone)?;
    let name = host.as_str().replace('*', "some");
    let wildcard = host.wildcard_above();
    let above = wildcard.as_ref().and_then(|above| owner_and_source(all, above));
    // Another namespace has the owner's wildcard: what it says there has no effect, and may have had one here.
    let is_lost = above.as_ref().is_some_and(|(above, _)| above.key.namespace != by.key.namespace)
        && wildcard.is_some_and(|wildcard| owner_and_source(own, &wildcard).is_some());
    if is_lost {
        return Ok(0);
    }
    if above.is_none_or(|(above, _)| above > by || above.key.namespace == by.key.namespace) {
        let shown = |records: &Records| {
            let id = core_tls::certificate_id(&records, Some(name.as_bytes()));
            // What another namespace's listener shows is that namespace's.
            id.filter(|id| id.starts_with(format!("{}/", by.key.namespace).as_bytes()))
                .map(<[u8]>::to_vec)
        };
        prop_assert_eq!(shown(&served), shown(&alone), "certificate of {}", host);
    } else {
        return Ok(0);
    }
    let is_own = |taken: &Taken| is_of(taken, &by);
    let mut compared = 0;
    let root = taken(&all.snapshot, &served, host, "/some/thing/else");
    let has_root = root.as_ref().is_none_or(is_own);
    if has_root {
        let through = |t: &Translator| t.snapshot.passthrough.get(host).cloned();
        prop_assert_eq!(through(all), through(own), "passthrough of {}", host);
    }
    for path in ASKED {
        let (with, without) =
            (taken(&all.snapshot, &served, host, path), taken(&own.snapshot, &alone, host, path));
        compared += 1;
        check_path((world, all, &by), (host, path), with, without)?;
    }
    Ok(compared)
}

/// Whether the namespace of a host's owner has a path, or nobody.
fn is_of(taken: &Taken, by: &Age) -> bool {
    taken.by.namespace == by.key.namespace || taken.by.namespace.is_empty()
}

/// Compares what takes a path of the owner's host with and without other namespaces.
fn check_path(
    (world, all, by): (&World, &Translator, &Age),
    (host, path): (&HostPattern, &str),
    with: Option<Taken>,
    without: Option<Taken>,
) -> Result<(), TestCaseError> {
    let is_well_known = path.starts_with(WELL_KNOWN);
    match &with {
        Some(taken) if !is_of(taken, by) => {
            prop_assert!(!is_well_known, "{host}{path}: {with:?}");
            prop_assert_ne!(all.options.host_ownership, HostOwnership::Strict);
            // A path that only lacks the slash of the owner's exact one is nobody's.
            let is_nobodys = |own: &Taken| own.path == PathPattern::Exact(format!("{path}/"));
            // The same in another's name, such as what closes both.
            let is_alike =
                |own: &Taken| (&taken.backend, &taken.policies) == (&own.backend, &own.policies);
            let may_stand = without
                .as_ref()
                .is_none_or(|own| is_nobodys(own) || is_alike(own) || may_stand(world, taken, own));
            prop_assert!(may_stand, "{host}{path}: {with:?} {without:?}");
        }
        // The owner's root, by another name.
        Some(Taken { path: PathPattern::Prefix(text), .. })
            if is_well_known && text == WELL_KNOWN =>
        {
            // Where an Ingress closes the host, the first and the closing one of the namespace may give their names.
            let facts = |taken: Option<Taken>| {
                taken.map(|t| (t.by.namespace, t.backend, t.policies, t.redirect))
            };
            let root = without.filter(|own| {
                own.path != PathPattern::Prefix(WELL_KNOWN.into()) || own.backend.is_some()
            });
            if root.is_some() {
                prop_assert_eq!(facts(with), facts(root), "{}{}", host, path);
            }
        }
        _ => prop_assert_eq!(with, without, "{}{}", host, path),
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn other_namespaces_change_nothing_of_what_an_owner_serves(
        is_strict in any::<bool>(),
        regex_per_host in any::<bool>(),
        objects in vec(prop_oneof![3 => seen(), 2 => gateways::seen()], 4..40),
    ) {
        let options = Options {
            host_ownership: if is_strict { HostOwnership::Strict } else { HostOwnership::Settings },
            regex_per_host,
            watch_ingress_without_class: true,
            ssl_passthrough: true,
            ..Options::default()
        };
        let (mut world, mut changed) = (World::default(), Changed::default());
        world.apply(gateways::our_class(), &mut changed);
        objects.into_iter().for_each(|seen| world.apply(seen, &mut changed));
        let all = translated(&world, &options);
        check_challenges(&world, &all)?;
        check_sessions(&world, &all)?;
        for namespace in ["n", "m"] {
            let mut alone = world.clone();
            for key in world.ingresses.keys().filter(|key| key.namespace != namespace) {
                alone.apply((ObjectRef::new(Kind::Ingress, key.clone()), None), &mut changed);
            }
            let own = translated(&alone, &options);
            for host in all.snapshot.servers.keys() {
                if owner_and_source(&all, host).is_some_and(|(by, _)| by.key.namespace == namespace) {
                    check_host((&world, &all), &own, host)?;
                }
            }
        }
    }
}
