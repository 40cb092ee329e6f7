//! `oxigress explain`: where a request goes, of a running nginx or of a folder of manifests, readable or as JSON.

use super::{ExplainArgs, Output, read, socket};
use anyhow::{Context, bail};
use oxigress_core::explain::{self, Backend, ExplainRequest, Explanation, Rule};
use oxigress_core::patterns::Patterns;
use oxigress_core::record::{Kind, snapshot_records};
use oxigress_objects::{Changed, World};
use oxigress_provider::folder::Folder;
use oxigress_translate::translate;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Asks nginx, or decides from manifests, and answers the text or JSON that is printed.
pub async fn run(question: &ExplainArgs) -> anyhow::Result<String> {
    let mut asked = asked(&question.request, &question.headers)?;
    if asked.port == 0 {
        let flags = &question.flags;
        asked.port = if asked.is_https { flags.tls_port() } else { flags.http_port };
    }
    let folder = question.folder.as_ref().or(question.flags.manifests.as_ref());
    let told = match folder {
        Some(folder) => of_folder(folder, question, &asked)?,
        None => {
            let target = format!("/configuration/explain?{}", asked.to_query());
            let body = read::get(&socket(&question.flags.runtime_dir), &target).await?;
            serde_json::from_slice(&body).context("nginx's answer is no explanation")?
        }
    };
    match question.output {
        Output::Json => Ok(serde_json::to_string_pretty(&told)? + "\n"),
        Output::Text => Ok(text(&asked, &told)),
    }
}

fn of_folder(
    folder: &Path,
    question: &ExplainArgs,
    asked: &ExplainRequest,
) -> anyhow::Result<Explanation> {
    let batch = Folder::read_once(folder).with_context(|| format!("{}", folder.display()))?;
    let flags = question.flags.of_folder(Some(folder));
    let mut world = World::default();
    let mut changed = Changed::default();
    batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
    let snapshot = translate(&world, &flags.options(Default::default())).snapshot;
    let records = snapshot_records(snapshot).into_iter();
    let records: BTreeMap<(Kind, Vec<u8>), Vec<u8>> =
        records.filter_map(|change| Some(((change.kind, change.key), change.value?))).collect();
    Ok(explain::explain(&&records, asked, &Patterns::default(), |_, _| None))
}

/// The request that was written on the command line.
fn asked(request: &[String], headers: &[String]) -> anyhow::Result<ExplainRequest> {
    let (method, url) = match request {
        [url] => ("GET", url),
        [method, url] => (method.as_str(), url),
        _ => bail!("write a method and a URL"),
    };
    let remedy =
        || format!("{url:?} is no URL: write one such as https://shop.example.com/cart?id=1");
    let uri: http::Uri = url.parse().with_context(remedy)?;
    let is_https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => bail!(remedy()),
    };
    let mut host = uri.authority().with_context(remedy)?.to_string();
    let port = uri.port_u16().unwrap_or_default();
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut all = Vec::new();
    for header in headers {
        let parts = header.split_once(':').filter(|(name, _)| !name.is_empty());
        let (name, value) =
            parts.with_context(|| format!("header {header:?}: write NAME: VALUE"))?;
        match name.eq_ignore_ascii_case("host") {
            true => host = value.trim().into(),
            false => all.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    let (method, target) = (method.into(), target.into());
    Ok(ExplainRequest { method, is_https, host, port, target, headers: all })
}

/// For people. Names and paths are users' texts: a terminal gets no control byte of them.
fn text(asked: &ExplainRequest, told: &Explanation) -> String {
    let scheme = if asked.is_https { "https" } else { "http" };
    let mut out = String::new();
    let mut line = |title: &str, text: &str| {
        let _ = writeln!(out, "{title:<9}{}", oxigress_core::text::line::one_line(text));
    };
    line("request", &format!("{} {scheme}://{}{}", asked.method, asked.host, asked.target));
    line("path", &told.path);
    match &told.server {
        Some(server) => line("host", &format!("{} ({})", server.host, server.found)),
        None => line("host", "no server has this host, and there is no default server"),
    }
    for rule in &told.rules {
        let Rule { path, namespace, ingress, service, port, wins, why } = rule;
        let title = if *wins { "wins" } else { "loses" };
        line(title, &format!("{path} of {namespace}/{ingress}, to {service}:{port}: {why}"));
    }
    if told.other_rules > 0 {
        line("", &format!("{} rules for other paths", told.other_rules));
    }
    told.conditions.iter().for_each(|condition| line("needs", condition));
    if let Some(policies) = &told.policies {
        line("policies", &policies.to_string());
    }
    let outcome = &told.outcome;
    if let Some(rewritten) = &outcome.rewritten {
        line("rewritten", &format!(" {rewritten}"));
    }
    match (outcome.status, &outcome.location) {
        (Some(status), Some(to)) => line("answer", &format!("{status} to {to}: {}", outcome.why)),
        (Some(status), None) => line("answer", &format!("{status}: {}", outcome.why)),
        (None, _) => line("answer", &outcome.why),
    }
    if let Some(backend) = &told.backend {
        write_backend(backend, &mut line);
    }
    out
}

fn write_backend(backend: &Backend, line: &mut impl FnMut(&str, &str)) {
    let mut how = format!("{} ({}), {:?}", backend.id, backend.why, backend.algorithm);
    if let Some(key) = &backend.hash_key {
        how += &format!(", hashed by {key}");
    }
    if let Some(cookie) = &backend.affinity_cookie {
        how += &format!(", by the cookie {cookie}");
    }
    line("backend", &how);
    for other in &backend.alternatives {
        let mut text = format!("{}: {} of {} requests", other.id, other.weight, other.weight_total);
        let ways = [("header", &other.header), ("cookie", &other.cookie)];
        for (kind, name) in ways.iter().filter_map(|(kind, name)| Some((kind, name.as_ref()?))) {
            text += &format!(", by {kind} {name}");
        }
        if !other.has_endpoints {
            text += ", without endpoints";
        }
        line("canary", &text);
    }
    for endpoint in &backend.endpoints {
        let why = endpoint.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let title = if endpoint.eligible { "endpoint" } else { "closed" };
        line(title, &format!("{}{why}", endpoint.address));
    }
    if backend.more_endpoints > 0 {
        line("", &format!("and {} more endpoints", backend.more_endpoints));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&str], headers: &[&str]) -> anyhow::Result<ExplainRequest> {
        let owned = |all: &[&str]| all.iter().map(|text| String::from(*text)).collect::<Vec<_>>();
        asked(&owned(words), &owned(headers))
    }

    #[test]
    fn a_request_is_written_as_for_curl() {
        let found =
            request(&["POST", "https://Shop.test:8443/a?b=1"], &["X-A:b:c", "Host: x.test"])
                .unwrap();
        let headers = vec![("X-A".to_owned(), "b:c".to_owned())];
        let expected = ExplainRequest {
            method: "POST".into(),
            is_https: true,
            host: "x.test".into(),
            port: 8443,
            target: "/a?b=1".into(),
            headers,
        };
        assert_eq!(found, expected);
        assert_eq!(request(&["http://a.test"], &[]).unwrap().target, "/");
        for words in [&["a.test/x"][..], &["ftp://a.test/"], &["/x"], &["GET", "x y"]] {
            assert!(request(words, &[]).is_err(), "{words:?}");
        }
        assert!(request(&["http://a.test"], &["nonsense"]).is_err());
    }

    #[test]
    fn users_texts_move_no_cursor() {
        let asked = request(&["http://a.test"], &[]).unwrap();
        let told = Explanation { path: "/\u{1b}[2J".into(), ..Explanation::default() };
        assert!(!text(&asked, &told).contains('\u{1b}'));
    }
}
