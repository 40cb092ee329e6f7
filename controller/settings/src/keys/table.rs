//! The tables of docs/configmap/, made from the rows. `UPDATE_GOLDEN=1 cargo test configmap_table` writes them.

use crate::key::{How, Key};
use crate::keys::GROUPS;
use std::fmt::Write;
use std::path::Path;

/// Pages with their titles, one example each, and how many groups of [`GROUPS`] they have.
const PAGES: [(&str, &str, &str, usize); 2] = [
    ("server", "Keys of the ConfigMap: nginx itself", "keep-alive: \"75\"", 4),
    ("traffic", "Keys of the ConfigMap: what nginx serves", "proxy-read-timeout: \"60\"", 5),
];

const HEAD: &str = "Made from `controller/settings/src/keys/*.rs` by
`UPDATE_GOLDEN=1 cargo test configmap_table`; [the ConfigMap](../configmap.md) says how a change is
taken over.

| word | meaning |
|---|---|
| data | a change is live at once, without a reload. Where an annotation has the same meaning, the key is its default |
| admission | what the admission webhook refuses. Nothing that is served depends on it |
| nginx.conf | a change rewrites nginx.conf, and nginx reloads once, gracefully; the log says so before |
| **closes** | keeps clients out: while its value cannot be read, every location answers 503 |
| no effect | taken; nothing is to be done |
| not supported | named in the log, with what to do instead, unless it is off |
";

fn table(title: &str, example: &str, groups: &[(&str, &[Key])]) -> String {
    let mut text = format!("# {title}\n\n```yaml\ndata: {{ {example} }}\n```\n\n{HEAD}");
    for (group, keys) in groups {
        let _ =
            writeln!(text, "\n## {group}\n\n| key | value | default | here |\n|---|---|---|---|");
        for Key { name, form, default, how } in *keys {
            let default = if default.len() > 60 { "as in ingress-nginx" } else { default };
            let default = default.replace('|', "\\|");
            let here = match how {
                How::Data(_) => "data".into(),
                How::Protecting(_) => "data, **closes**".into(),
                How::Admission(_) => "data, admission".into(),
                How::Conf => "nginx.conf".into(),
                How::ProtectingConf => "nginx.conf, **closes**".into(),
                How::Named(_) => {
                    "not supported: each directive is named in the log, with the key that says it"
                        .into()
                }
                How::NoEffect(why) => format!("no effect: {why}"),
                How::Unsupported(instead) => format!("not supported: {instead}"),
            };
            let value = form.words();
            let _ = writeln!(text, "| `{name}` | {value} | {default} | {here} |");
        }
    }
    text
}

#[test]
fn configmap_table_is_as_the_rows_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configmap");
    let mut groups = &GROUPS[..];
    for (name, title, example, count) in PAGES {
        let (these, others) = groups.split_at(count);
        groups = others;
        let path = folder.join(format!("{name}.md"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, table(title, example, these)).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let message = "UPDATE_GOLDEN=1 cargo test configmap_table writes it";
        assert_eq!(written, table(title, example, these), "{message}");
    }
    assert!(groups.is_empty(), "groups on no page");
}

/// Keys that ingress-nginx has not.
const OWN: &[&str] = &[
    "keep-forwarded-headers",
    "limit-ipv6-prefix",
    "otlp-protocol",
    "refuse-ambiguous-paths",
    "strip-request-headers",
];

#[test]
fn every_key_of_the_reference_has_a_row_and_only_one() {
    let names: Vec<_> = crate::keys::all().map(|key| key.name).collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "a key stands twice");
    assert!(OWN.iter().all(|name| unique.contains(name)), "a key of our own has no row");
    assert_eq!(names.len() - OWN.len(), 194, "ingress-nginx has 194 keys");
}
