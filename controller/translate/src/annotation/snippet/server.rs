//! A `server-snippet`: what it says about all paths of a host, and paths of its own.
//!
//! Shape:   lists that paths inherit as nginx's locations inherit from their server, steps that come before theirs, and locations.
//! Errors:  a directive that is left out closes the host if it may protect. A location that cannot be carried out answers 503.
//! Source:  nginx's merging of locations; what ingress-nginx's template sets in each location has no effect in the server.

use super::names::Names;
use super::script;
use super::speaker::Speaker;
use super::values::{At, Left, Loss, Not, Result, impossible};
use super::{found, headers, location, say_to};
use crate::claim::policies::id_of;
use crate::patterns::Compiler;
use crate::patterns::snippets::place_words;
use oxigress_core::model::policy::script::{Answer, Location, Place, Script, ScriptPattern, Step};
use oxigress_core::model::policy::{
    Access, EditAction, InputEdit, Policies, PolicyId, Proxy, ResponseEdit,
};
use oxigress_core::model::shorten;
use oxigress_settings::grammar::directives::Directive;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "server-snippet";
/// Most bytes of the lists that every path of the host inherits.
pub const MOST_INHERITED_BYTES: usize = 16 * 1024;
/// Most bytes of these lists in all of its locations.
pub const MOST_BYTES_OF_LOCATIONS: usize = 256 * 1024;
/// Longest path of a location.
const MOST_PATH_BYTES: usize = 1_024;

/// What a server-snippet says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerSnippet {
    /// What paths inherit.
    lists: Policies,
    /// The record with the steps and locations; `None`: there are none.
    script: Option<(PolicyId, Arc<Policies>)>,
    /// The records of the locations.
    locations: BTreeMap<PolicyId, Arc<Policies>>,
    /// Some of it may keep somebody out.
    pub protects: bool,
}

impl ServerSnippet {
    /// What paths of other namespaces have of it: it takes headers of clients away and sets none. One that it sets would answer
    /// their auth servers and endpoints in their clients' place.
    pub fn for_guests(&self) -> Self {
        let mut own = self.clone();
        own.lists.input_edits.retain(InputEdit::is_removal);
        own
    }
}

/// Whose server-snippet is read.
#[derive(Clone, Copy)]
pub struct Author<'a> {
    /// The scope of its variables.
    pub scope: char,
    /// The namespace that pays for its patterns.
    pub namespace: &'a str,
    /// The variables of an `http-snippet`.
    pub defined: &'a Names,
}

/// Reads one; `None`: it cannot be carried out, which is said as closing. The inner `None`: it says nothing.
pub fn read(
    to: &mut dyn Speaker,
    author: Author<'_>,
    all: Vec<Directive>,
    compiler: &mut Compiler<'_>,
) -> Option<Option<ServerSnippet>> {
    let protects = !found(NAME, &all).1.is_empty();
    let (places, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_location);
    let mut names = Names::of(author.scope, &rest);
    names.learn(author.defined);
    let (steps, mut left) = script::read_all(&rest, &mut names, At::Elsewhere, compiler);
    let plain: Vec<_> = rest.iter().filter(|one| !script::is_step(one)).cloned().collect();
    let mut lists = Policies::default();
    left.extend(inherited(&plain, &names, &mut lists, places.len()));
    let mut snippet = ServerSnippet::default();
    let mut script = Script { owner: author.namespace.to_owned(), steps, ..Script::default() };
    let is_open = say_to(to, NAME, left, None);
    for place in &places {
        if !snippet.add(to, place, &names, &lists, compiler, &mut script) {
            return None;
        }
    }
    snippet.protects = protects;
    snippet.lists = lists;
    if !script.steps.is_empty() || !script.locations.is_empty() {
        let policies = Policies { script: Some(Box::new(script)), ..Policies::default() };
        snippet.script = id_of(&policies).map(|id| (id, Arc::new(policies)));
    }
    is_open.then(|| Some(snippet).filter(|snippet| *snippet != ServerSnippet::default()))
}

fn is_location(directive: &Directive) -> bool {
    directive.name == "location" && directive.block.is_some()
}

/// Puts what paths inherit into the lists.
pub fn inherited<'d>(
    plain: &'d [Directive],
    names: &Names,
    lists: &mut Policies,
    locations: usize,
) -> Vec<Left<'d>> {
    let mut left = location::apply_plain(plain, names, lists);
    let set_there = "each path of an Ingress has its own";
    for directive in plain {
        if is_set_in_locations(&directive.name) {
            left.retain(|one| !std::ptr::eq(one.directive, directive));
            let why = Some(set_there.to_owned());
            left.push(Left { directive, why, loss: Loss::Nothing });
        }
    }
    let Proxy { body_buffer_bytes, cookie_flags, .. } = lists.proxy.take().unwrap_or_default();
    let proxy = Proxy { body_buffer_bytes, cookie_flags, ..Proxy::default() };
    // What a path could not say otherwise: an answer is a step, and `satisfy` could open what a path closes.
    *lists = Policies {
        response_edits: std::mem::take(&mut lists.response_edits),
        input_edits: std::mem::take(&mut lists.input_edits),
        access: lists.access.take(),
        limits: lists.limits.take(),
        is_unlogged: lists.is_unlogged,
        proxy: Some(proxy).filter(|proxy| *proxy != Proxy::default()),
        ..Policies::default()
    };
    if lists.access.as_ref().is_some_and(|access| access.any)
        && let Some(directive) = plain.iter().find(|one| one.name == "satisfy")
    {
        lists.access.iter_mut().for_each(|access| access.any = false);
        lists.access.take_if(|access| *access == Access::default());
        let why = Some("it could open paths of other Ingresses".to_owned());
        left.push(Left { directive, why, loss: Loss::AsNamed });
    }
    let bytes = serde_json::to_vec(&lists).map_or(0, |json| json.len());
    let most = MOST_INHERITED_BYTES.min(MOST_BYTES_OF_LOCATIONS / locations.max(1));
    if bytes > most
        && let Some(directive) = plain.first()
    {
        *lists = Policies::default();
        let why = Some(format!(
            "{bytes} bytes of settings for every path, at most {most} are taken with {locations} locations"
        ));
        left.push(Left { directive, why, loss: Loss::Protection });
    }
    left
}

/// What ingress-nginx's template says in each location of an Ingress.
pub fn is_set_in_locations(name: &str) -> bool {
    matches!(
        name,
        "client_max_body_size"
            | "proxy_set_header"
            | "grpc_set_header"
            | "proxy_buffering"
            | "proxy_buffers"
            | "proxy_buffer_size"
            | "proxy_busy_buffers_size"
            | "proxy_max_temp_file_size"
            | "proxy_request_buffering"
            | "proxy_http_version"
            | "proxy_cookie_domain"
            | "proxy_cookie_path"
            | "proxy_redirect"
            | "proxy_connect_timeout"
            | "proxy_send_timeout"
            | "proxy_read_timeout"
            | "grpc_connect_timeout"
            | "grpc_send_timeout"
            | "grpc_read_timeout"
            | "proxy_next_upstream"
            | "proxy_next_upstream_timeout"
            | "proxy_next_upstream_tries"
    )
}

fn place(words: &[&str], compiler: &mut Compiler<'_>) -> Result<Place> {
    let (modifier, text) = place_words(words).ok_or(Not::Known)?;
    if modifier.starts_with('~') {
        let pattern = ScriptPattern::uncompiled(text, modifier == "~*")?;
        compiler.snippet(pattern.as_str())?;
        return Ok(Place::Pattern(pattern));
    }
    if modifier.is_empty() && text.starts_with('@') {
        return Err(Not::Needed("nothing leads to a named location"));
    }
    if !text.starts_with('/') || text.len() > MOST_PATH_BYTES {
        return impossible("its path does not begin with a slash, or is too long");
    }
    Ok(match modifier {
        "=" => Place::Exact(text.to_owned()),
        "^~" => Place::FirstPrefix(text.to_owned()),
        _ => Place::Prefix(text.to_owned()),
    })
}

impl ServerSnippet {
    /// Adds a location; `false`: it cannot be told apart from other paths, and may protect.
    fn add(
        &mut self,
        to: &mut dyn Speaker,
        directive: &Directive,
        names: &Names,
        lists: &Policies,
        compiler: &mut Compiler<'_>,
        script: &mut Script,
    ) -> bool {
        let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        let at = match script.locations.len() < Script::MAX_LOCATIONS
            && script.patterns().len() < Script::MAX_PATTERNS
        {
            true => place(&words, compiler),
            false => impossible("more than 200 locations or 100 patterns are too many"),
        };
        let at = match at {
            Ok(at) => at,
            Err(not) => return say_to(to, NAME, vec![Left::of(directive, not)], None),
        };
        let own = answering(to, directive, names, &script.owner, compiler);
        let policies = inherit(lists, &own, None);
        if let Some(id) = id_of(&policies) {
            script.locations.push(Location { at, policies: id.clone() });
            self.locations.insert(id, Arc::new(policies));
        }
        true
    }

    /// The policies of a path of the host, where `every` holds for all servers, below `http`.
    pub fn inherited_by(
        own: &Policies,
        host: Option<&Self>,
        every: Option<&Self>,
        http: &Policies,
    ) -> Policies {
        let id = |of: Option<&Self>| Some(of?.script.as_ref()?.0.clone());
        let mut lists = host.map(|host| host.lists.clone()).unwrap_or_default();
        if let Some(every) = every {
            join(&mut lists, &every.lists);
        }
        let mut merged = inherit(&inherit(http, &lists, None), own, id(host).as_ref());
        if let Some(id) = id(every) {
            merged.script.get_or_insert_default().every_server = Some(id);
        }
        merged
    }

    /// The records that policies of its host name.
    pub fn records(&self) -> impl Iterator<Item = (PolicyId, Arc<Policies>)> + '_ {
        let script = self.script.iter().map(|(id, policies)| (id.clone(), policies.clone()));
        script.chain(self.locations.iter().map(|(id, policies)| (id.clone(), policies.clone())))
    }
}

/// What a location says: always an answer, since no request of it goes to an endpoint.
fn answering(
    to: &mut dyn Speaker,
    directive: &Directive,
    of_server: &Names,
    owner: &str,
    compiler: &mut Compiler<'_>,
) -> Policies {
    let block = directive.block.as_deref().unwrap_or_default();
    let mut names = of_server.with(block);
    let (mut policies, at) = (Policies::default(), At::Location { has_rewrite: false });
    let (mut steps, mut left) = script::read_all(block, &mut names, at, compiler);
    let plain: Vec<_> = block.iter().filter(|one| !script::is_step(one)).cloned().collect();
    let left_of_plain = location::apply_plain(&plain, &names, &mut policies);
    left.extend(left_of_plain);
    let lost = left.iter().find(|one| one.loss != Loss::Nothing);
    if let Some(one) = lost {
        let (inner, why) = (one.directive, one.reason());
        to.reject(&format!(
            "line {}: {} is not supported in this location ({why}), so its paths answer 503: replace it with an Ingress path",
            inner.line,
            shorten(&inner.name)
        ));
        return Policies { denied: Some(503), ..Policies::default() };
    }
    // There are no files: whoever is let in finds nothing.
    let access = policies.access.take().unwrap_or_default();
    let is_closed = access.allow.as_ref().is_some_and(Vec::is_empty);
    steps.push(Step::Answer(Answer::of_status(if is_closed { 403 } else { 404 })));
    Policies {
        response_edits: policies.response_edits,
        is_unlogged: policies.is_unlogged,
        script: Some(Box::new(Script {
            // Whoever's path it takes the requests from.
            owner: owner.to_owned(),
            steps,
            ..Script::default()
        })),
        ..Policies::default()
    }
}

/// What a location has of its server beside what it says itself.
fn inherit(server: &Policies, own: &Policies, script: Option<&PolicyId>) -> Policies {
    let mut merged = own.clone();
    let has_auth = own.access.as_ref().is_some_and(|access| access.external.is_some());
    let is = |edit: &ResponseEdit, action: EditAction| edit.action == action;
    let of = |from: &Policies, keep: &dyn Fn(&ResponseEdit) -> bool| -> Vec<ResponseEdit> {
        from.response_edits.iter().filter(|edit| keep(edit)).cloned().collect()
    };
    let whole = |action, takes: bool| {
        let own = of(own, &|edit| is(edit, action));
        if own.is_empty() && takes { of(server, &|edit| is(edit, action)) } else { own }
    };
    let is_more = |edit: &ResponseEdit| {
        matches!(edit.action, EditAction::Set | EditAction::Date | EditAction::Remove)
    };
    let has_expires = own.response_edits.iter().any(ResponseEdit::is_of_expires);
    let is_inherited =
        |edit: &ResponseEdit| is_more(edit) && !(has_expires && edit.is_of_expires());
    // The reference's own `add_header` of an auth server drops those of the server.
    let added = whole(EditAction::Add, !has_auth);
    let more = [of(server, &is_inherited), of(own, &is_more)].concat();
    merged.response_edits = [whole(EditAction::Hide, true), more, added].concat();
    headers::order(&mut merged);
    merged.input_edits = [&server.input_edits[..], &own.input_edits].concat();
    if let Some(lists) = &server.access {
        let access = merged.access.get_or_insert_default();
        if access.inherits_lists() {
            access.allow.clone_from(&lists.allow);
            access.deny.clone_from(&lists.deny);
        }
    }
    inherit_values(server, &mut merged);
    if let Some(id) = script {
        merged.script.get_or_insert_default().server = Some(id.clone());
    }
    merged
}

/// What is inherited value by value.
fn inherit_values(from: &Policies, to: &mut Policies) {
    if let Some(rates) = &from.limits {
        let limits = to.limits.get_or_insert_default();
        limits.response_rate = limits.response_rate.or(rates.response_rate);
        limits.response_rate_after = limits.response_rate_after.or(rates.response_rate_after);
    }
    to.is_unlogged |= from.is_unlogged;
    if let Some(proxy) = &from.proxy {
        let of = to.proxy.get_or_insert_default();
        of.body_buffer_bytes = of.body_buffer_bytes.or(proxy.body_buffer_bytes);
        if of.cookie_flags.is_none() {
            of.cookie_flags.clone_from(&proxy.cookie_flags);
        }
        to.proxy.take_if(|proxy| *proxy == Proxy::default());
    }
}

/// Puts what is said later in the same server behind what is said before.
fn join(lists: &mut Policies, later: &Policies) {
    lists.response_edits.extend(later.response_edits.iter().cloned());
    lists.input_edits.extend_from_slice(&later.input_edits);
    let flags = |of: &Policies| of.proxy.as_ref().and_then(|proxy| proxy.cookie_flags.clone());
    if let (Some(mut earlier), Some(more)) = (flags(lists), flags(later)) {
        earlier.extend(more);
        lists.proxy.get_or_insert_default().cookie_flags = Some(earlier);
    }
    headers::order(lists);
    if let Some(access) = &later.access {
        let earlier = lists.access.get_or_insert_default();
        // A list of those who may come in ends with `deny all`.
        if earlier.allow.is_none() {
            earlier.allow.clone_from(&access.allow);
            earlier.deny.extend_from_slice(&access.deny);
        }
    }
    inherit_values(later, lists);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{IngressContext, parse};
    use oxigress_objects::{Key, World};
    use oxigress_settings::{Defaults, Settings};

    fn read(text: &str) -> Arc<ServerSnippet> {
        read_if_open(text).unwrap()
    }

    /// `None`: the host is closed.
    fn read_if_open(text: &str) -> Option<Arc<ServerSnippet>> {
        let defaults = Defaults { allows_snippets: true, ..Defaults::default() };
        let (world, ingress) = (World::default(), Key::new("n", "a"));
        let context = IngressContext {
            world: &world,
            ingress: &ingress,
            defaults: &defaults,
            https_port: 443,
        };
        let all = BTreeMap::from([(format!("x.io/{NAME}"), text.to_owned())]);
        let read = parse(context, &all, "x.io", &Settings::default(), &mut Compiler::new([]));
        read.host.server
    }

    /// Each location has the lists once more.
    #[test]
    fn what_all_locations_inherit_is_bounded() {
        let snippet = |headers: usize| {
            let headers = (0..headers).map(|n| format!("add_header X-{n} v;\n"));
            let locations = (0..199).map(|n| format!("location = /{n} {{ return 204; }}\n"));
            read_if_open(&headers.chain(locations).collect::<String>())
        };
        let bytes = |snippet: &ServerSnippet| -> usize {
            snippet.records().map(|(_, all)| serde_json::to_vec(&*all).unwrap().len()).sum()
        };
        assert!(bytes(&snippet(10).unwrap()) < 2 * MOST_BYTES_OF_LOCATIONS);
        assert!(snippet(165).is_none(), "3 MB");
    }

    #[test]
    fn lists_of_a_server_let_nobody_in_whom_a_path_keeps_out() {
        let snippet = read("allow 0.0.0.0/0; allow ::/0; deny all;");
        for (own, inherits) in [
            (r#"{}"#, true),
            (r#"{"access":{"any":true}}"#, true),
            (r#"{"access":{"basic":{"realm":"r","users":""}}}"#, true),
            (r#"{"access":{"any":true,"basic":{"realm":"r","users":""}}}"#, false),
        ] {
            let own: Policies = serde_json::from_str(own).unwrap();
            let access =
                ServerSnippet::inherited_by(&own, Some(&*snippet), None, &Policies::default())
                    .access;
            assert_eq!(access.is_some_and(|access| access.allow.is_some()), inherits, "{own:?}");
        }
    }

    /// Each as nginx merges it: `expires` and flags of cookies as a whole, what headers-more changes one after the other.
    #[test]
    fn paths_inherit_what_their_own_directives_do_not_replace() {
        let snippet = read(
            "expires epoch; more_set_headers 'Expires: 0'; proxy_cookie_flags a secure; more_clear_input_headers A;",
        );
        let of_path = |own: &str| {
            let directives = oxigress_settings::grammar::directives::parse(own).unwrap();
            let (mut own, names) = (Policies::default(), Names::of('l', &[]));
            assert!(location::apply_plain(&directives, &names, &mut own).is_empty());
            let found =
                ServerSnippet::inherited_by(&own, Some(&*snippet), None, &Policies::default());
            let dates = found.response_edits.iter().map(|edit| edit.value.as_str().to_owned());
            let flags = found.proxy.and_then(|proxy| proxy.cookie_flags).map(|all| all.len());
            let inputs = found.input_edits.iter().map(|edit| edit.name.as_str().to_owned());
            (dates.collect::<Vec<_>>(), flags, inputs.collect::<Vec<_>>())
        };
        let (dates, flags, inputs) = of_path("");
        assert_eq!((&dates[0][..], &dates[2][..], dates.len()), ("0", "no-cache", 3));
        assert_eq!((flags, inputs), (Some(1), vec!["A".to_owned()]));
        assert_eq!(of_path("expires off;").0, ["0", ""]);
        assert_eq!(of_path("expires 1s;").0, ["0", "1", "max-age=1"]);
        assert_eq!(of_path("proxy_cookie_flags off;").1, Some(0));
        assert_eq!(of_path("more_set_input_headers B:1;").2, ["A", "B"]);
    }

    #[test]
    fn the_patterns_of_a_location_are_its_server_s() {
        let snippet = read("location /a { if ($arg_a ~ b) { return 403; } }");
        let scripts: Vec<_> =
            snippet.records().filter_map(|(_, policies)| policies.script.clone()).collect();
        assert_eq!(scripts.len(), 2);
        assert!(scripts.iter().all(|script| script.owner == "n"), "{scripts:?}");
    }
}
