//! The definition of Policies in the chart: a property for each annotation that a rule may have.

use super::{is_flag, refusal};
use crate::annotation::table::{ROWS, Status};
use std::fmt::Write as _;

/// The file of the chart; what stands between the lines is made here.
const FILE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/helm/templates/policy-definition.yaml");
const BEGIN: &str =
    "              # fields: UPDATE_GOLDEN=1 cargo test -p oxigress-translate the_chart_defines\n";
const END: &str = "              # end of fields\n";

/// Fields of a few values.
const CHOICES: [(&str, &str); 5] = [
    ("affinity", "[cookie]"),
    ("affinity-mode", "[balanced, persistent]"),
    ("auth-secret-type", "[auth-file, auth-map]"),
    ("auth-type", "[basic]"),
    ("satisfy", "[any, all]"),
];

/// Fields whose values are numbers, or sizes such as 8m.
fn is_number(name: &str) -> bool {
    let ends =
        ["-timeout", "-tries", "-size", "-number", "-code", "-age", "-expires", "-multiplier"];
    let is_limit = name.starts_with("limit-") && !name.ends_with("list");
    is_limit
        || ends.iter().any(|end| name.ends_with(end))
        || ["auth-keepalive", "auth-keepalive-requests", "proxy-ssl-verify-depth"].contains(&name)
}

fn properties() -> String {
    let mut text = String::new();
    for row in ROWS {
        let is_supported = !matches!(row.status, Status::Unsupported(_));
        if !is_supported || refusal(row.name).is_some() {
            continue;
        }
        let choices = CHOICES.iter().find(|(name, _)| *name == row.name);
        let form = match choices {
            Some((_, choices)) => format!("type: string, enum: {choices}"),
            None if is_flag(row.name) => "type: boolean".into(),
            None if is_number(row.name) => "x-kubernetes-int-or-string: true".into(),
            None => "type: string, maxLength: 65536".into(),
        };
        let _ = writeln!(text, "              {}: {{ {form} }}", row.name);
    }
    text
}

#[test]
fn the_chart_defines_each_field_that_a_rule_may_have() {
    let page = std::fs::read_to_string(FILE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (fields, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(FILE, format!("{before}{BEGIN}{}{END}{after}", properties())).unwrap();
    } else {
        assert_eq!(fields, properties(), "UPDATE_GOLDEN=1 writes it anew");
    }
}
