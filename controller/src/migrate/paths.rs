//! Paths of an Ingress to matches of a rule, with the change of the path that `rewrite-target` asks for.

use super::Notes;
use super::said::Said;
use oxigress_core::patterns::is_plain;
use oxigress_objects::ingress::{Path, PathType, Port, Target};
use oxigress_objects::{Key, World};
use oxigress_translate::port_of_ingress;
use serde_json::{Value, json};

/// A path as a route has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutePath {
    pub kind: &'static str,
    pub value: String,
}

impl RoutePath {
    /// The match.
    pub fn value(&self) -> Value {
        json!({"type": self.kind, "value": self.value})
    }
}

/// What a path of an Ingress becomes: mostly one match, each with a change of the path.
pub type Matches = Vec<(RoutePath, Option<Value>)>;

fn prefix(value: &str) -> RoutePath {
    RoutePath { kind: "PathPrefix", value: value.into() }
}

fn exact(value: &str) -> RoutePath {
    RoutePath { kind: "Exact", value: value.into() }
}

fn full(path: &str) -> Value {
    json!({"type": "ReplaceFullPath", "replaceFullPath": path})
}

/// The matches of a path, which stands at `field`; none: it cannot be said.
pub fn matches(said: &Said<'_>, path: &Path, field: &str, notes: &mut Notes) -> Matches {
    let written = path.written();
    let is_exact = path.path_type == PathType::Exact;
    let is_regex = !is_exact && (said.use_regex || said.rewrite.is_some() && !is_plain(written));
    if is_regex {
        return of_pattern(said, written, field, notes);
    }
    let own = if is_exact { exact(written) } else { prefix(written) };
    if !is_of_route(written) {
        notes.lost(said.key, format!("{field}.path: {written:?} is no path of a route"));
        return Vec::new();
    }
    if is_exact && written.len() > 1 && written.ends_with('/') {
        notes.different(
            said.key,
            format!("{field}.path: an Ingress redirects a request without the slash at the end, a route does not"),
        );
    }
    let rewrite = match said.rewrite.filter(|target| *target != written) {
        None => None,
        Some(target) if is_path(target) => Some(full(target)),
        Some(target) => {
            notes.lost(
                said.key,
                format!("{field}: rewrite-target {target:?} is no path without variables"),
            );
            return Vec::new();
        }
    };
    vec![(own, rewrite)]
}

/// Whether the definitions of the API take a path.
fn is_of_route(path: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@%".contains(&b);
    path.starts_with('/') && path.bytes().all(is_letter)
}

/// A path that stands for itself, without a query.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(['$', '?', '#'])
}

/// The expressions that take a beginning away, as everybody writes them.
fn of_pattern(said: &Said<'_>, written: &str, field: &str, notes: &mut Notes) -> Matches {
    let refuse = |notes: &mut Notes| {
        notes.lost(
            said.key,
            format!("{field}.path: {written:?} with its rewrite-target: a path of a route is no regular expression"),
        );
        Vec::new()
    };
    let is_base =
        |base: &str| base.is_empty() || is_path(base) && is_plain(base) && !base.ends_with('/');
    let target = |group: &str| match said.rewrite {
        Some(target) => target.strip_suffix(group).filter(|before| is_base(before)),
        None => None,
    };
    let found = if let Some(base) = written.strip_suffix("(/|$)(.*)").filter(|base| is_base(base)) {
        target("/$2").map(|to| (base, to, true))
    } else if let Some(base) = written.strip_suffix("/(.*)").filter(|base| is_base(base)) {
        target("/$1").map(|to| (base, to, base.is_empty()))
    } else if said.rewrite.is_none() && is_path(written) && is_plain(written) {
        notes.different(
            said.key,
            format!("{field}.path: {written:?} of use-regex begins any path, also within a segment; a prefix of a route is whole segments"),
        );
        return vec![(prefix(written), None)];
    } else {
        None
    };
    let Some((base, to, is_whole)) = found else { return refuse(notes) };
    let case = "a regular expression is compared in any case, a path of a route in its own";
    notes.different(said.key, format!("{field}.path: {case}"));
    if !is_whole {
        notes.different(said.key, format!("{field}.path: the route takes {base} itself, too"));
    }
    let own = if base.is_empty() { "/" } else { base };
    if base == to {
        return vec![(prefix(own), None)];
    }
    let replaced = if to.is_empty() { "/" } else { to };
    let change = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": replaced});
    let mut all = vec![(prefix(own), Some(change))];
    // The expression makes `/to/` of `/base`, the filter `/to`.
    if !to.is_empty() && !base.is_empty() && is_whole {
        all.push((exact(base), Some(full(&format!("{to}/")))));
    }
    all
}

/// The reference to the Service's port that an Ingress means.
pub fn backend(
    world: &World,
    said: &Said<'_>,
    target: &Target,
    field: &str,
    notes: &mut Notes,
) -> Option<Value> {
    let Target::Service { name, port } = target else {
        notes.lost(said.key, format!("{field}: it is no Service"));
        return None;
    };
    let service = world.services.get(&Key::new(&said.key.namespace, name.as_str()));
    if service.is_some_and(|service| service.external_name.is_some()) {
        notes.lost(
            said.key,
            format!("{field}: Service {name} is an ExternalName, which routes may not use"),
        );
        return None;
    }
    let found = service.and_then(|service| port_of_ingress(service, port));
    let number = match (found, port) {
        (Some(found), _) => found.number,
        (None, Port::Number(number)) => *number,
        (None, Port::Name(port)) => {
            notes.lost(
                said.key,
                format!("{field}: nothing says which port of Service {name} is {port}"),
            );
            return None;
        }
    };
    Some(json!({"name": name, "port": number}))
}
