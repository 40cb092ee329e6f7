//! Annotations that send clients elsewhere, and those that say what the endpoint is asked for instead.
//!
//! Source:  ingress-nginx's annotations. A redirect that cannot be read closes: its Service was never meant to be seen.

use super::reader::Reader;
use oxigress_core::model::HostPattern;
use oxigress_core::model::policy::{Policies, Redirect, Rewrite, Template};
use oxigress_objects::verdict::Note;
use oxigress_settings::grammar::template;
use std::collections::BTreeSet;

/// What an Ingress says about whole hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The annotation app-root.
    pub app_root: Option<Template>,
    /// The annotation from-to-www-redirect.
    pub from_to_www: bool,
    /// The annotation server-alias.
    pub aliases: Vec<HostPattern>,
}

const URL: &[u8] = b",?&=";
const REGEX: &[u8] = br"^$[](){}*+?&=\|";

/// Reads the annotations of this group; what is invalid is noted.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) -> Hosts {
    let mut hosts = names(reader);
    reader.flag("preserve-trailing-slash", &mut policies.keeps_trailing_slash);
    reader.flag("relative-redirects", &mut policies.relative_redirects);
    let mut names_port = None;
    reader.flag("use-port-in-redirects", &mut names_port);
    match names_port {
        Some(true) => policies.redirect_port = Some(reader.context.https_port),
        Some(false) => policies.redirect_port = None,
        None => {}
    }
    let temporal = redirect(reader, "temporal-redirect", "temporal-redirect-code", 302, 307);
    let permanent = redirect(reader, "permanent-redirect", "permanent-redirect-code", 301, 308);
    policies.redirect = temporal.or(permanent);
    hosts.app_root = reader.parsed("app-root", "a path that begins with `/`", |text| {
        template(text, b"$").ok().filter(|_| is_path(text))
    });
    rewrite(reader, policies);
    if let Some(host) = reader.template("upstream-vhost", "a host's name", REGEX) {
        policies.upstream_host = Some(host);
    }
    hosts
}

fn redirect(
    reader: &mut Reader<'_>,
    name: &'static str,
    code_name: &'static str,
    usual: u16,
    last: u16,
) -> Option<Redirect> {
    let code = reader.number::<u16>(code_name, 0, 999);
    let code = code.filter(|code| (300..=last).contains(code)).unwrap_or(usual);
    if reader.text(name)?.is_empty() {
        reader.warn(name, "is empty: there is no redirect");
        return None;
    }
    let what = "a URL that begins with http:// or https://, or a path";
    let location = reader.parsed_or_closed(name, what, |text| {
        let is_url = text.starts_with("http://") || text.starts_with("https://");
        template(text, URL).ok().filter(|_| is_url || is_path(text))
    })?;
    Some(Redirect { code, location, appends_target: false })
}

/// A path on the same host; one that begins with two slashes, or with what browsers take for these, would be another host.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//") && !text.starts_with(r"/\")
}

/// The name with `www.`, or without it.
pub fn counterpart(host: &HostPattern) -> Option<HostPattern> {
    if *host == HostPattern::default_host() || host.is_wildcard() {
        return None;
    }
    match host.as_str().strip_prefix("www.") {
        Some(rest) => HostPattern::parse(rest).ok(),
        None => HostPattern::parse(&format!("www.{host}")).ok(),
    }
}

/// Whether an annotation says something about the names of hosts, or whether there are any.
pub fn is_of_names(name: &str) -> bool {
    matches!(name, "server-alias" | "from-to-www-redirect") || name.starts_with("canary")
}

/// Reads what the annotations say about the names of hosts.
pub fn names(reader: &mut Reader<'_>) -> Hosts {
    let mut hosts = Hosts::default();
    reader.flag("from-to-www-redirect", &mut hosts.from_to_www);
    hosts.aliases = aliases(reader);
    hosts
}

impl Hosts {
    /// The names that an Ingress with these hosts may have beside them: its aliases, and the redirected names of its hosts.
    pub fn other_names<'h>(
        &self,
        hosts: impl IntoIterator<Item = &'h HostPattern>,
    ) -> BTreeSet<HostPattern> {
        let mut hosts = hosts.into_iter().peekable();
        // Whoever has no host has no other name of it.
        let aliases = self.aliases.iter().filter(|_| hosts.peek().is_some());
        let mut names: BTreeSet<HostPattern> = aliases.cloned().collect();
        names.extend(hosts.filter(|_| self.from_to_www).filter_map(counterpart));
        names
    }
}

/// Most hosts in one server-alias.
const MAX_ALIASES: usize = 64;

fn aliases(reader: &mut Reader<'_>) -> Vec<HostPattern> {
    let names = reader.text("server-alias").unwrap_or_default();
    let mut aliases = BTreeSet::new();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match HostPattern::parse(name) {
            _ if name.starts_with('~') => reader.notes.push(Note::warning(format!(
                "annotation server-alias: regular expressions are not supported, {:?} is left out: \
                 name the hosts, `*.` stands for one label",
                oxigress_core::model::shorten(name)
            ))),
            Ok(host) if host != HostPattern::default_host() => drop(aliases.insert(host)),
            _ => reader.warn(
                "server-alias",
                &format!(
                    "{:?} is not a host name and is ignored",
                    oxigress_core::model::shorten(name)
                ),
            ),
        }
    }
    // Each alias has all rules of each host of the Ingress.
    if aliases.len() > MAX_ALIASES {
        let message = format!(
            "it names {} hosts, more than {MAX_ALIASES}; none of them is served",
            aliases.len()
        );
        reader.warn("server-alias", &message);
        aliases.clear();
    }
    aliases.into_iter().collect()
}

fn rewrite(reader: &mut Reader<'_>, policies: &mut Policies) {
    let what = "a path with captures such as /$1, or a URL";
    let target = reader.parsed("rewrite-target", what, |text| {
        let begins = ["/", "$", "http://", "https://"].iter().any(|start| text.starts_with(start));
        template(text, b"$").ok().filter(|_| begins)
    });
    let forwarded_prefix = reader.template("x-forwarded-prefix", "a path", b"$");
    match target {
        Some(target) => policies.rewrite = Some(Rewrite { target, forwarded_prefix }),
        None if forwarded_prefix.is_some() => reader.notes.push(Note::remark(
            "annotation x-forwarded-prefix has no effect without rewrite-target",
        )),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::Hosts;
    use crate::annotation::{self, IngressContext};
    use crate::patterns::Compiler;
    use oxigress_core::model::HostPattern;
    use oxigress_objects::{Key, World};
    use oxigress_settings::{Defaults, Settings};

    /// The other names of host shop.test, which are the same wherever they are read.
    fn other_names(annotations: &[(&str, &str)]) -> Option<Vec<String>> {
        let entry = |(name, text): &(&str, &str)| (format!("x.io/{name}"), (*text).to_owned());
        let all = annotations.iter().map(entry).collect();
        let (world, ingress, defaults) =
            (World::default(), Key::new("n", "a"), Defaults::default());
        let (world, ingress, defaults) = (&world, &ingress, &defaults);
        let context = IngressContext { world, ingress, defaults, https_port: 443 };
        let (settings, mut compiler) = (Settings::default(), Compiler::new([]));
        let read = annotation::parse(context, &all, "x.io", &settings, &mut compiler);
        let is_main = read.annotations.canary.is_none() && !read.annotations.is_refused;
        let hosts = is_main.then_some(Hosts { app_root: None, ..read.host.hosts });
        let names = annotation::names(context, &all, "x.io");
        assert_eq!(names, hosts, "{annotations:?}");
        let shop = HostPattern::parse("shop.test").unwrap();
        let names = names.map(|names| names.other_names([&shop]));
        names.map(|names| names.iter().map(|name| name.as_str().to_owned()).collect())
    }

    #[test]
    fn other_names_are_those_that_the_annotations_give() {
        let names = |annotations: &[(&str, &str)]| other_names(annotations).unwrap();
        let many = ",".repeat(64) + &"a.test,".repeat(64) + "pay.test";
        assert_eq!(names(&[("server-alias", &many)]), ["a.test", "pay.test"]);
        assert_eq!(names(&[("server-alias", "_, ~^a, b c")]), [""; 0], "no hosts");
        let all: Vec<_> = (0..65).map(|n| format!("{n}.test")).collect();
        assert_eq!(names(&[("server-alias", &all.join(","))]), [""; 0], "none is served");
        let long = "a.test,".repeat(10_000);
        assert_eq!(names(&[("server-alias", &long)]), [""; 0], "it is not read");
        for (value, expected) in
            [("true", &["www.shop.test"][..]), ("false", &[]), ("0", &[]), (" true", &[])]
        {
            assert_eq!(names(&[("from-to-www-redirect", value)]), expected, "{value}");
        }
    }

    #[test]
    fn a_canary_has_no_other_names_and_what_is_no_boolean_makes_no_canary() {
        let names = |text: &str, more: &[(&str, &str)]| {
            let all = [&[("server-alias", "a.test"), ("canary", text)], more].concat();
            other_names(&all)
        };
        let long = " ".repeat(64 * 1024) + "true";
        for text in ["", "false", " true", "true ", "yes", &long] {
            assert_eq!(names(text, &[]).unwrap(), ["a.test"], "{text:?}");
        }
        assert_eq!(names("True", &[]), None);
        assert_eq!(names("maybe", &[("canary-weight", "5")]), None, "it is not served");
        assert_eq!(names("false", &[("canary-weight", "5")]).unwrap(), ["a.test"]);
    }
}
