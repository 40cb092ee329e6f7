//! Texts that were attacks on a controller that pastes them into nginx.conf (`--deep-inspect`).
//!
//! Here they could do nothing; they are refused because the reference refuses them.

use crate::Options;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::verdict::Note;

/// Why one that holds such a text is not served.
pub fn refuse(options: &Options, ingress: &Ingress) -> Option<Note> {
    let (field, _) = options.deep_inspect.then(|| suspicious(ingress)).flatten()?;
    Some(Note::rejected(format!(
        "{field} holds what looks like an attack on nginx.conf, so the Ingress is not served: change it"
    )))
}

/// The first suspicious text and its field.
fn suspicious(ingress: &Ingress) -> Option<(String, &str)> {
    let rules = ingress.rules.iter().enumerate().flat_map(|(r, rule)| {
        let host = (format!("spec.rules[{r}].host"), rule.host.as_str());
        let paths = rule.paths.iter().enumerate().map(move |(p, path)| {
            (format!("spec.rules[{r}].http.paths[{p}].path"), path.path.as_str())
        });
        std::iter::once(host).chain(paths)
    });
    let tls = ingress.tls.iter().enumerate().flat_map(|(t, tls)| {
        let secret = (format!("spec.tls[{t}].secretName"), tls.secret.as_str());
        let hosts = tls.hosts.iter().enumerate();
        let hosts =
            hosts.map(move |(h, host)| (format!("spec.tls[{t}].hosts[{h}]"), host.as_str()));
        std::iter::once(secret).chain(hosts)
    });
    rules.chain(tls).find(|(_, text)| is_suspicious(text))
}

fn is_suspicious(text: &str) -> bool {
    let directive = |name| text.find(name).is_some_and(|at| text[at..].contains(';'));
    let below_etc = ["passwd", "shadow", "group", "nginx", "ingress-controller"];
    let etc = |rest: &str| below_etc.iter().any(|name| rest.starts_with(name));
    directive("alias")
        || directive("root")
        || text.match_indices("/etc/").any(|(at, found)| etc(&text[at + found.len()..]))
        || text.contains("/var/run/secrets")
        || text.contains("_by_lua")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Translator, tests};
    use oxigress_core::model::{HostPattern, PathPattern};

    #[test]
    fn an_ingress_that_is_refused_keeps_its_hosts_unless_it_may_be_a_canary() {
        let ingress = |namespace: &str, year: u16, annotation: &str, path: &str| {
            format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: i, namespace: {namespace}, \
                 creationTimestamp: '{year}-01-01T00:00:00Z', annotations: {{ kubernetes.io/ingress.class: nginx{annotation} }} }}\n\
                 spec: {{ rules: [{{ host: h.test, http: {{ paths: [{{ path: {path}, pathType: Prefix, backend: {{ service: \
                 {{ name: s, port: {{ number: 80 }} }} }} }}] }} }}] }}\n"
            )
        };
        let host = HostPattern::parse("h.test").unwrap();
        let flags = tests::options("--deep-inspect");
        let canary = |text| format!(", nginx.ingress.kubernetes.io/canary: '{text}'");
        let (yes, no, odd) = (canary("true"), canary("False"), canary("maybe"));
        let unclear = format!("{odd}, nginx.ingress.kubernetes.io/canary-weight: '1'");
        for (annotation, path, owner) in [
            ("", "/", "a"),
            ("", "/etc/passwd", "a"),
            (&no, "/etc/passwd", "a"),
            (&odd, "/etc/passwd", "a"),
            (&yes, "/etc/passwd", "b"),
            (&unclear, "/etc/passwd", "b"),
        ] {
            let all = ingress("a", 2020, annotation, path) + &ingress("b", 2024, "", "/b");
            let (world, mut translator) = (tests::world(&all), Translator::new(flags.clone()));
            translator.update(&world, &world.all());
            let (key, _) = translator.owner_of(&host).unwrap();
            assert_eq!(*key.namespace, *owner, "{annotation} {path}");
            let refused = PathPattern::prefix("/etc/passwd").unwrap();
            let rules = &translator.snapshot().servers[&host].rules;
            assert!(rules.iter().all(|rule| rule.path != refused), "{annotation} {path}");
        }
    }

    #[test]
    fn the_reference_s_list_is_refused_and_plain_words_are_not() {
        for text in [
            "/x { alias /;",
            "/a\nroot /\n;",
            "/etc/passwd",
            "/x/etc/nginx",
            "/var/run/secrets/x",
            "content_by_lua_block",
        ] {
            assert!(is_suspicious(text), "{text:?}");
        }
        for text in ["/alias", "/root", "/etc/hosts", "/roots;alia"] {
            assert_eq!(
                is_suspicious(text),
                text.contains("root") && text.contains(';'),
                "{text:?}"
            );
        }
    }
}
