//! The table of docs/configmap.md, made from the rows. `UPDATE_GOLDEN=1 cargo test configmap_table` writes it.

use super::key::{GROUPS, How, Key};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# Keys of the ConfigMap

`--configmap NAMESPACE/NAME` names it. Made from `controller/src/translate/settings/*.rs` by `UPDATE_GOLDEN=1 cargo test
configmap_table`; [operating.md](operating.md#the-configmap) says how a change is taken over.

| word | meaning |
|---|---|
| data | a change is live at once, without a reload. Where an annotation has the same meaning, the key is its default |
| admission | what the admission webhook refuses. Nothing that is served depends on it |
| nginx.conf | a change rewrites nginx.conf, and nginx reloads once, gracefully; the log says so before |
| **closes** | keeps clients out: while its value cannot be read, every location answers 503 |
| no effect | taken; nothing is to be done |
| not supported | named in the log, with what instead, unless it is off |
";

fn table() -> String {
    let mut text = HEAD.to_owned();
    for (group, keys) in GROUPS {
        let _ =
            writeln!(text, "\n## {group}\n\n| key | value | default | here |\n|---|---|---|---|");
        for Key { name, form, default, how } in keys {
            let default = if default.len() > 60 { "as in ingress-nginx" } else { default };
            let default = default.replace('|', "\\|");
            let here = match how {
                How::Data(_) => "data".into(),
                How::Protecting(_) => "data, **closes**".into(),
                How::Admission(_) => "data, admission".into(),
                How::Conf => "nginx.conf".into(),
                How::ProtectingConf => "nginx.conf, **closes**".into(),
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configmap.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, table()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, table(), "UPDATE_GOLDEN=1 cargo test configmap_table writes it");
}

/// Keys that ingress-nginx has not.
const OWN: &[&str] = &[
    "keep-forwarded-headers",
    "limit-ipv6-prefix",
    "refuse-ambiguous-paths",
    "strip-request-headers",
];

#[test]
fn every_key_of_the_reference_has_a_row_and_only_one() {
    let names: Vec<_> = super::key::all().map(|key| key.name).collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "a key stands twice");
    assert!(OWN.iter().all(|name| unique.contains(name)), "a key of our own has no row");
    assert_eq!(names.len() - OWN.len(), 194, "ingress-nginx has 194 keys");
}
