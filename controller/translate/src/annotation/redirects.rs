//! Annotations that send clients elsewhere, and those that say what the endpoint is asked for instead.
//!
//! Source:  ingress-nginx's annotations. A redirect that cannot be read closes: its Service was never meant to be seen.

use super::reader::Reader;
use oxigress_core::model::HostPattern;
use oxigress_core::model::policy::{Policies, Redirect, Rewrite, Template};
use oxigress_objects::ingress::Ingress;
use oxigress_objects::verdict::Note;
use oxigress_settings::grammar::{parse_bool, template};
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
    let mut hosts = Hosts::default();
    reader.flag("from-to-www-redirect", &mut hosts.from_to_www);
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
    hosts.aliases = aliases(reader);
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

/// The hosts that an Ingress may have beside those of its rules: its aliases, and the redirected names of its hosts. A canary has
/// none.
pub fn other_names(prefix: &str, ingress: &Ingress) -> BTreeSet<HostPattern> {
    let text = |name: &str| ingress.annotations.get(&format!("{prefix}/{name}"));
    let is_set = |name: &str| text(name).and_then(|text| parse_bool(text.trim())) == Some(true);
    if is_set("canary") {
        return BTreeSet::new();
    }
    let mut names = text("server-alias").map_or_else(BTreeSet::new, |all| listed(all, |_| {}));
    if names.len() > MAX_ALIASES {
        names.clear();
    }
    let hosts = ingress.rules.iter().filter(|_| is_set("from-to-www-redirect"));
    let hosts = hosts.filter_map(|rule| HostPattern::parse(&rule.host).ok());
    names.extend(hosts.filter_map(|host| counterpart(&host)));
    names
}

/// Most hosts in one server-alias.
const MAX_ALIASES: usize = 64;

/// The hosts of a list, each once; `other` is told each name that is none.
fn listed(names: &str, mut other: impl FnMut(&str)) -> BTreeSet<HostPattern> {
    let mut hosts = BTreeSet::new();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match HostPattern::parse(name) {
            Ok(host) if !name.starts_with('~') && host != HostPattern::default_host() => {
                hosts.insert(host);
            }
            _ => other(name),
        }
    }
    hosts
}

fn aliases(reader: &mut Reader<'_>) -> Vec<HostPattern> {
    let names = reader.text("server-alias").unwrap_or_default();
    let mut aliases = listed(names, |name| match name.starts_with('~') {
        true => reader.notes.push(Note::warning(format!(
            "annotation server-alias: regular expressions are not supported, {:?} is left out: \
             name the hosts, `*.` stands for one label",
            oxigress_core::model::shorten(name)
        ))),
        false => reader.warn(
            "server-alias",
            &format!("{:?} is not a host name and is ignored", oxigress_core::model::shorten(name)),
        ),
    });
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
    use super::*;
    use oxigress_objects::ingress::Rule;

    #[test]
    fn other_names_are_those_that_the_annotations_would_give() {
        let names = |annotations: &[(&str, &str)]| {
            let rule = Rule { host: "shop.test".into(), paths: Vec::new() };
            let mut ingress = Ingress { rules: vec![rule], ..Ingress::default() };
            for (name, value) in annotations {
                ingress.annotations.insert(format!("x.io/{name}"), (*value).into());
            }
            let names = other_names("x.io", &ingress);
            names.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        let many = ",".repeat(64) + &"a.test,".repeat(64) + "pay.test";
        assert_eq!(names(&[("server-alias", &many)]), ["a.test", "pay.test"]);
        assert_eq!(names(&[("server-alias", "_, ~^a, b c")]), [""; 0], "no hosts");
        let all: Vec<_> = (0..65).map(|n| format!("{n}.test")).collect();
        assert_eq!(names(&[("server-alias", &all.join(","))]), [""; 0], "none is served");
        for (value, expected) in [("true", &["www.shop.test"][..]), ("false", &[]), ("0", &[])] {
            assert_eq!(names(&[("from-to-www-redirect", value)]), expected, "{value}");
        }
        assert_eq!(names(&[("server-alias", "a.test"), ("canary", "True")]), [""; 0]);
    }
}
