//! The snippets of the main ConfigMap, which need no permission: its author decides about all locations.
//!
//! Shape:   [`read`] puts what an auth server is asked into the settings. What is said of all servers and locations of Ingresses
//!          is [`Common`]: each path has it behind what its own annotations say, as in ingress-nginx's template.
//! Errors:  what cannot be carried out and may keep somebody out closes every location.

mod definitions;

use super::answers::SET;
use super::names::Names;
use super::script;
use super::server::{self, Author, MOST_INHERITED_BYTES, ServerSnippet};
use super::speaker::{OfKey, Speaker};
use super::values::{At, Left, Loss};
use super::{auth, headers, levels, location, name_each, say_to};
use crate::claim::policies::id_of;
use crate::patterns::Compiler;
use oxigress_core::model::policy::defined::OF_DEFINITIONS;
use oxigress_core::model::policy::{Access, Policies, PolicyId, Protocol, Proxy, Script};
use oxigress_objects::verdict::Note;
use oxigress_settings::Settings;
use oxigress_settings::grammar::directives::{self, Directive};
use std::sync::Arc;

/// The scope of the variables of all servers.
const OF_SERVERS: char = 'c';
/// The scope of the variables of all locations.
const OF_LOCATIONS: char = 'g';

/// What the ConfigMap's snippets say about all Ingresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// The policies that define variables for texts; `None`: none does.
    pub definitions: Option<Arc<Policies>>,
    /// What servers inherit.
    http: Policies,
    server: Option<ServerSnippet>,
    location: Option<EveryLocation>,
}

/// What is said of all locations.
#[derive(Clone, Debug, PartialEq)]
struct EveryLocation {
    /// The directives that are no steps: what they mean depends on what a location has.
    plain: Vec<Directive>,
    names: Names,
    /// Those that are left out: the headers that they would set are not the client's.
    withheld: Vec<Directive>,
    /// The record with the steps; `None`: there are none.
    script: Option<(PolicyId, Arc<Policies>)>,
}

/// Reads the snippets of the ConfigMap. Their patterns are charged to the namespace whose rule takes a request.
pub fn read(settings: &mut Settings, notes: &mut Vec<Note>) -> Common {
    let compiler = &mut Compiler::new([]);
    name_others(settings, notes);
    let definitions = read_definitions(settings, notes, compiler);
    let defined = Names::of_definitions(settings.defaults.variables.iter());
    read_auth(settings, notes, compiler);
    let http = read_http(settings, notes, &defined);
    let (server, names) = read_server(settings, notes, compiler, &defined);
    let location = read_location(settings, notes, compiler, &names);
    Common { definitions, http, server, location }
}

/// The directives of a text; `None`: there are none, or they cannot be read, and all is closed.
fn parse(to: &mut OfKey<'_>, text: &str) -> Option<Vec<Directive>> {
    match directives::parse(text) {
        Ok(all) => Some(all).filter(|all| !all.is_empty()),
        Err(why) => {
            to.close(&format!("it is not valid nginx syntax ({why})"), "correct it");
            None
        }
    }
}

fn read_auth(settings: &mut Settings, notes: &mut Vec<Note>, compiler: &mut Compiler<'_>) {
    let text = std::mem::take(&mut settings.snippets.auth);
    let access = settings.defaults.policies.access.as_ref();
    let external = access.and_then(|access| access.external.clone());
    let mut to = OfKey { settings, notes, key: "global-auth-snippet" };
    let Some(mut external) = external else {
        if !text.is_empty() {
            to.warn("has no effect without global-auth-url");
        }
        return;
    };
    let Some(all) = parse(&mut to, &text) else { return };
    let defined = Names::of_definitions(to.settings.defaults.variables.iter());
    let left = auth::apply(&all, Some(&defined), &mut external, compiler);
    say_to(&mut to, "auth-snippet", left, None);
    settings.defaults.policies.access.get_or_insert_default().external = Some(external);
}

/// Names what is said of nginx itself and of streams.
fn name_others(settings: &mut Settings, notes: &mut Vec<Note>) {
    let (main, stream) = (settings.snippets.main.clone(), settings.snippets.stream.clone());
    for (key, text) in [("main-snippet", main), ("stream-snippet", stream)] {
        name_each(&mut OfKey { settings, notes, key }, &text);
    }
}

/// The variables that `http-snippet` defines, whose names the settings have from then on.
fn read_definitions(
    settings: &mut Settings,
    notes: &mut Vec<Note>,
    compiler: &mut Compiler<'_>,
) -> Option<Arc<Policies>> {
    // What cannot be read is said below.
    let all = directives::parse(&settings.snippets.http).unwrap_or_default();
    let (found, left) = definitions::read(&all, compiler);
    // What stands in their blocks is no directive.
    let bare: Vec<_> = left.iter().map(|one| levels::bare(one.directive)).collect();
    let left = left.into_iter().zip(&bare);
    let left = left.map(|(one, directive)| Left { directive, ..one }).collect();
    let mut to = OfKey { settings, notes, key: "http-snippet" };
    say_to(&mut to, "http-snippet", left, None);
    for (name, bytes) in definitions::slow(&found) {
        to.warn(&format!(
            "the patterns of ${name} together take longer than a request may for values of more than {bytes} bytes, which are \
             answered 500: use fewer patterns, or shorter ones"
        ));
    }
    let names = found.variables.keys().filter_map(|name| name.strip_prefix(OF_DEFINITIONS));
    settings.defaults.variables = names.map(str::to_owned).collect();
    let definitions = Some(Box::new(found)).filter(|found| !found.variables.is_empty())?;
    Some(Arc::new(Policies { definitions: Some(definitions), ..Policies::default() }))
}

/// What servers inherit.
fn read_http(settings: &mut Settings, notes: &mut Vec<Note>, defined: &Names) -> Policies {
    let text = settings.snippets.http.clone();
    let mut to = OfKey { settings, notes, key: "http-snippet" };
    let mut all = parse(&mut to, &text).unwrap_or_default();
    all.retain(|directive| !definitions::is_one(directive));
    let (served, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_of_http);
    let mut lists = Policies::default();
    let left = server::inherited(&served, defined, &mut lists, 0);
    say_to(&mut to, "http-snippet", left, None);
    let others: Vec<_> = others.iter().map(levels::bare).collect();
    let left = others.iter().map(|directive| {
        let is_each_s = server::is_set_in_locations(&directive.name);
        let loss = if is_each_s { Loss::Nothing } else { Loss::AsNamed };
        Left { directive, why: Some(levels::remedy(&directive.name)), loss }
    });
    say_to(&mut to, "http-snippet", left.collect(), None);
    lists
}

/// Whether servers inherit what a directive says.
fn is_of_http(directive: &Directive) -> bool {
    match (directive.name.as_str(), &*directive.arguments) {
        ("access_log", [word]) => word == "off",
        ("add_header" | "allow" | "deny" | "limit_rate" | "limit_rate_after", _) => true,
        ("more_clear_headers" | "more_set_headers" | "proxy_hide_header", _) => true,
        ("more_clear_input_headers" | "more_set_input_headers" | "proxy_pass_header", _) => true,
        ("expires" | "proxy_cookie_flags", _) => true,
        _ => false,
    }
}

/// What is said of all servers, and the variables of it.
fn read_server(
    settings: &mut Settings,
    notes: &mut Vec<Note>,
    compiler: &mut Compiler<'_>,
    defined: &Names,
) -> (Option<ServerSnippet>, Names) {
    let text = settings.snippets.server.clone();
    let mut to = OfKey { settings, notes, key: "server-snippet" };
    let all = parse(&mut to, &text).unwrap_or_default();
    let mut names = Names::of(OF_SERVERS, &all);
    names.learn(defined);
    let author = Author { scope: OF_SERVERS, namespace: "", defined };
    (server::read(&mut to, author, all, compiler).flatten(), names)
}

fn read_location(
    settings: &mut Settings,
    notes: &mut Vec<Note>,
    compiler: &mut Compiler<'_>,
    of_servers: &Names,
) -> Option<EveryLocation> {
    let text = settings.snippets.location.clone();
    let mut to = OfKey { settings, notes, key: "location-snippet" };
    let all = parse(&mut to, &text)?;
    let mut names = Names::of(OF_LOCATIONS, &all);
    names.learn(of_servers);
    // Some Ingress may have a rewrite-target.
    let (steps, mut left) = script::read_all(&all, &mut names, At::EveryLocation, compiler);
    let plain: Vec<_> = all.iter().filter(|one| !script::is_step(one)).cloned().collect();
    // Some may speak gRPC.
    let proxy = Proxy { protocol: Some(Protocol::Grpc), ..Proxy::default() };
    let mut alone = Policies { proxy: Some(proxy), ..Policies::default() };
    let of_plain = location::apply_plain(&plain, &names, &mut alone);
    // Some may have an auth server.
    let is_said = |one: &Left<'_>| one.loss != Loss::Nothing || one.directive.name != SET;
    left.extend(of_plain.into_iter().filter(is_said));
    left.extend(too_much(&plain, &alone));
    let is_lost = |one: &&Left<'_>| one.loss == Loss::AsNamed;
    let withheld = left.iter().filter(is_lost).map(|one| one.directive.clone()).collect();
    say_to(&mut to, "configuration-snippet", left, None);
    let script = (!steps.is_empty()).then(|| {
        let script = Script { steps, ..Script::default() };
        let policies = Policies { script: Some(Box::new(script)), ..Policies::default() };
        id_of(&policies).map(|id| (id, Arc::new(policies)))
    });
    Some(EveryLocation { plain, names, withheld, script: script.flatten() })
}

/// What every path of all Ingresses cannot have.
fn too_much<'d>(plain: &'d [Directive], alone: &Policies) -> Option<Left<'d>> {
    let left = |directive, why| Left { directive, why: Some(why), loss: Loss::Protection };
    if let Some(directive) = plain.iter().find(|one| one.name == "satisfy") {
        return Some(left(directive, "it could open paths of Ingresses".to_owned()));
    }
    let bytes = serde_json::to_vec(alone).map_or(0, |json| json.len());
    let first = plain.first().filter(|_| bytes > MOST_INHERITED_BYTES)?;
    let why = format!(
        "{bytes} bytes of settings for every path, at most {MOST_INHERITED_BYTES} are taken"
    );
    Some(left(first, why))
}

impl Common {
    /// Whether they say nothing.
    pub fn is_silent(&self) -> bool {
        let Common { definitions: _, http, server, location } = self;
        *http == Policies::default() && server.is_none() && location.is_none()
    }

    /// The policies of a path of an Ingress, on a host with this server-snippet; `None`: they are its own.
    pub fn of_path(&self, own: &Policies, host: Option<&ServerSnippet>) -> Option<Policies> {
        let every = self.server.as_ref();
        let own = match &self.location {
            Some(location) => location.applied(own),
            None if host.is_none() && self.is_silent() => return None,
            None => own.clone(),
        };
        Some(ServerSnippet::inherited_by(&own, host, every, &self.http))
    }

    /// The records that the policies of a path name.
    pub fn records(&self) -> impl Iterator<Item = (PolicyId, Arc<Policies>)> + '_ {
        let of_servers = self.server.iter().flat_map(ServerSnippet::records);
        let location = self.location.iter().filter_map(|location| location.script.clone());
        of_servers.chain(location)
    }
}

impl EveryLocation {
    /// The policies of a path with these behind them.
    fn applied(&self, own: &Policies) -> Policies {
        let mut policies = own.clone();
        // Where one of all is enough, a list could only let in whom the others keep out.
        let has_other_way = own.access.as_ref().is_some_and(Access::has_other_way);
        let is_taken = |one: &&Directive| !has_other_way || !matches!(&*one.name, "allow" | "deny");
        let plain: Vec<_> = self.plain.iter().filter(is_taken).cloned().collect();
        let left = location::apply_plain(&plain, &self.names, &mut policies);
        let is_lost = left.iter().any(|one| one.loss == Loss::Protection);
        if is_lost || !headers::withhold_all(&self.withheld, &mut policies) {
            policies.denied = Some(503);
        }
        if let Some((id, _)) = &self.script {
            policies.script.get_or_insert_default().every_location = Some(id.clone());
        }
        policies
    }
}

#[cfg(test)]
mod tests;
