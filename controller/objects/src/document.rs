//! The text of one file to objects.
//!
//! A file is cut at its document markers before anything is parsed: YAML allows `---` at the beginning of
//! a line nowhere else (YAML 1.2 §9.1.2, not even in a block scalar), so a broken document leaves the
//! others of its file readable, and every message knows its line.

mod head;
mod unknown;

use crate::convert::{self, WrongField};
use crate::{Kind, Object, ObjectRef};
use head::Head;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest file that is read: above it stands a mistake, not a manifest.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// So many unknown fields of one object are named.
const MAX_UNKNOWN_FIELDS: usize = 10;

/// What one document, or one item of a List, says.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// The document is this object.
    Object(ObjectRef, Object),
    /// An object that is named but cannot be served: what it was before stays.
    Broken(ObjectRef, String),
    /// Of a kind that is not read: its name, and which are read.
    OtherKind(String, String),
    /// Fields of an object, which is found beside it, that its type does not have.
    UnknownField(ObjectRef, String),
    /// Something that is not served.
    Unusable(String),
}

/// A document of a file.
#[derive(Debug, PartialEq)]
pub struct Document {
    /// Counted from 1, empty ones included.
    pub number: usize,
    /// Where it begins, counted from 1.
    pub line: usize,
    /// Its objects; more than one in a List. A document that is no YAML is the error.
    pub found: Result<Vec<Found>, String>,
}

/// Reads the text of a file.
pub fn read(text: &str, is_json: bool) -> Vec<Document> {
    if is_json {
        return vec![Document { number: 1, line: 1, found: json(text) }];
    }
    let parts: Vec<_> = split(text).into_iter().enumerate().collect();
    let read_part = |(index, (line, part)): &(usize, (usize, &str))| match yaml(part, *line) {
        Ok(Value::Null) => None,
        value => Some(Document {
            number: index + 1,
            line: *line,
            found: value.map(|value| objects(without_nulls(value), "")),
        }),
    };
    crate::parallel::map(&parts, read_part).into_iter().flatten().collect()
}

/// The documents of a YAML file and the lines where they begin.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let after = line.strip_prefix("---");
        if after.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])) {
            // What stands before the first marker is mostly nothing, and then no document.
            if !parts.is_empty() || !is_blank(&text[start..at]) {
                parts.push((start_line, &text[start..at]));
            }
            (start, start_line) = (at + 3, number + 1);
        }
        at += line.len();
    }
    parts.push((start_line, &text[start..]));
    parts
}

fn is_blank(text: &str) -> bool {
    let is_nothing = |line: &str| line.is_empty() || line.starts_with(['#', '%']);
    text.lines().all(|line| is_nothing(line.trim_start()))
}

/// `line` is where the document begins in its file.
fn yaml(text: &str, line: usize) -> Result<Value, String> {
    if is_blank(text) {
        return Ok(Value::Null);
    }
    let text = text.trim_start_matches('\u{feff}');
    // A List of everything in a cluster is one document: the only bound that means something is the
    // file's size. Aliases stay bounded by the crate's own limits.
    let options = serde_saphyr::options! {
        with_snippet: false,
        // As YAML 1.2 has it: `yes`, `no`, `on`, `off`, `y` and `n` are texts, also as hosts and names.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_nodes: text.len() + 1,
            max_events: 2 * text.len() + 16,
        },
    };
    serde_saphyr::from_str_with_options::<Value>(text, options).map_err(|error| {
        let mut message = error.to_string();
        let mut at = String::new();
        if let Some(location) = error.location() {
            // Its place counts from the beginning of the document; ours is the file's.
            let own = format!(" at line {}, column {}", location.line(), location.column());
            message = message.replace(&own, "");
            at = format!("line {}: ", line as u64 + location.line() - 1);
        }
        match over_limit(&message, text.len()) {
            Some(limit) => format!("is not read: {at}{limit}"),
            None => {
                let message = message.lines().next().unwrap_or_default().trim();
                format!("is not YAML: {at}{message}: correct it")
            }
        }
    })
}

/// Which limit a document of so many bytes exceeds, if that is what the reader says. It may say so within an error of its own
/// about an alias, as text alone.
fn over_limit(message: &str, bytes: usize) -> Option<String> {
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    let of_values =
        ["budget breached: Nodes", "budget breached: Events", "alias replay", "alias expansion"];
    if says(&of_values) {
        return Some(format!(
            "its aliases (`*name`) repeat so much that it has more values than the {bytes} that are read of a document of \
             {bytes} bytes: write the values out"
        ));
    }
    if says(&["budget breached: Depth"]) {
        return Some("its values are nested deeper than those of any object: correct it".into());
    }
    let limit = "it exceeds a limit of the YAML reader: use fewer anchors and aliases, or several documents";
    says(&["budget breached"]).then(|| limit.into())
}

fn json(text: &str) -> Result<Vec<Found>, String> {
    let mut all = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value {
            Ok(value) => all.extend(objects(without_nulls(value), "")),
            Err(error) => {
                return Err(format!("is not JSON: {error}: correct it"));
            }
        }
    }
    Ok(all)
}

/// A field that is null is absent, an entry of `data`, annotations or labels too. The
/// parsers bound the depth.
fn without_nulls(mut value: Value) -> Value {
    remove_nulls(&mut value);
    value
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn objects(value: Value, within: &str) -> Vec<Found> {
    let at =
        |field: &str| if within.is_empty() { field.into() } else { format!("{within}.{field}") };
    if !value.is_object() {
        let what = "is not a Kubernetes object: begin it with apiVersion and kind";
        return vec![Found::Unusable(format!("{within} {what}").trim_start().into())];
    }
    let head: Head = match serde_path_to_error::deserialize(&value) {
        Ok(head) => head,
        Err(error) => return vec![Found::Unusable(type_message(&at(""), &error))],
    };
    if head.kind.ends_with("List") && value.get("items").is_some() {
        let Some(Value::Array(items)) = take(value, "items") else {
            return vec![Found::Unusable(format!("{}: must be a list", at("items")))];
        };
        let numbered = items.into_iter().enumerate();
        return numbered.flat_map(|(i, item)| objects(item, &at(&format!("items[{i}]")))).collect();
    }
    let (kind, id) = match head.identity(&at(""), &at("metadata")) {
        Ok(known) => known,
        Err(found) => return vec![found],
    };
    let mut fields = Vec::new();
    let fields_of = &mut fields;
    let object = match kind {
        Kind::Ingress => typed(value, fields_of, convert::ingress),
        Kind::IngressClass => typed(value, fields_of, convert::ingress_class),
        Kind::Namespace => typed(value, fields_of, convert::namespace),
        Kind::Service => typed(value, fields_of, convert::service),
        Kind::Secret => typed(value, fields_of, convert::secret),
        Kind::ConfigMap => typed(value, fields_of, convert::config_map),
        Kind::EndpointSlice => typed(value, fields_of, convert::endpoint_slice),
        Kind::GatewayClass => typed(value, fields_of, convert::gateway_class),
        Kind::Gateway => typed(value, fields_of, convert::gateway),
        Kind::BackendTLSPolicy => typed(value, fields_of, convert::backend_tls_policy),
        Kind::ClusterTrustBundle => typed(value, fields_of, convert::cluster_trust_bundle),
        Kind::Policy => typed(value, fields_of, convert::policy),
        Kind::ListenerSet => typed(value, fields_of, convert::listener_set),
        Kind::HTTPRoute => typed(value, fields_of, convert::http_route),
        Kind::GRPCRoute => typed(value, fields_of, convert::grpc_route),
        Kind::TLSRoute => typed(value, fields_of, convert::tls_route),
        Kind::TCPRoute | Kind::UDPRoute => typed(value, fields_of, convert::port_route),
        Kind::ReferenceGrant => typed(value, fields_of, convert::reference_grant),
    };
    let mut found: Vec<_> = fields
        .into_iter()
        .map(|field| Found::UnknownField(id.clone(), format!("{id}: {field}")))
        .collect();
    found.push(match object {
        Ok(object) => Found::Object(id, object),
        Err(message) => {
            let message = format!("{id}: {message}");
            Found::Broken(id, message)
        }
    });
    found
}

/// Reads manifests to the JSON values that an API server would be sent, for a fake one in tests. Kinds that are not
/// read are left out; the error says which document is no YAML.
pub fn values(text: &str) -> Result<Vec<Value>, String> {
    let documents = split(text).into_iter();
    let all: Result<Vec<_>, _> =
        documents.map(|(line, part)| yaml(part, line).map(without_nulls)).collect();
    let mut all = all?;
    let mut values = Vec::new();
    while let Some(mut value) = all.pop() {
        if let Some(Value::Array(items)) = value.get_mut("items") {
            all.append(items);
        } else if !matches!(
            objects(value.clone(), "")[..],
            [Found::OtherKind(..) | Found::Unusable(_)]
        ) {
            values.push(value);
        }
    }
    values.reverse();
    Ok(values)
}

fn take(value: Value, field: &str) -> Option<Value> {
    match value {
        Value::Object(mut fields) => fields.remove(field),
        _ => None,
    }
}

fn typed<T: DeserializeOwned>(
    value: Value,
    unknown_fields: &mut Vec<String>,
    convert: impl Fn(T) -> Result<Object, WrongField>,
) -> Result<Object, String> {
    let mut note = |path: serde_ignored::Path<'_>| {
        if unknown_fields.len() < MAX_UNKNOWN_FIELDS {
            unknown_fields.push(unknown::describe(&path));
        }
    };
    let value = serde_ignored::Deserializer::new(value, &mut note);
    let typed = serde_path_to_error::deserialize(value).map_err(|e| type_message("", &e))?;
    convert(typed).map_err(|error| error.to_string())
}

fn type_message(within: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let field =
        [within.trim_matches('.'), &path].into_iter().filter(|part| !matches!(*part, "" | "."));
    let field = field.collect::<Vec<_>>().join(".");
    let mut message = error.inner().to_string();
    if message.contains("expected a string") {
        message.push_str(" (put it in quotes)");
    }
    if message.contains("expected a boolean") {
        message.push_str(" (write true or false)");
    }
    let base64 = ["Invalid symbol", "Invalid byte", "Invalid last symbol", "Invalid padding"];
    if base64.iter().any(|start| message.starts_with(start)) {
        return format!("{field} is not base64 ({message}): encode it, or use stringData");
    }
    format!("{}: {message}: correct its value", if field.is_empty() { "document" } else { &field })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{Offer, Secret};

    fn found(text: &str) -> Vec<Found> {
        read(text, false).into_iter().flat_map(|d| d.found.unwrap()).collect()
    }

    fn message(text: &str) -> String {
        match found(text).pop().unwrap() {
            Found::Unusable(message) | Found::OtherKind(_, message) | Found::Broken(_, message) => {
                message
            }
            Found::Object(id, _) | Found::UnknownField(id, _) => panic!("{id} was accepted"),
        }
    }

    #[test]
    fn documents_know_their_line_and_a_broken_one_leaves_the_others() {
        let text = "# shop\n---\nkind: Service\napiVersion: v1\nmetadata: {name: a}\n---\nkind: [\n\
                    ---\nkind: Service\napiVersion: v1\nmetadata: {name: b}\n";
        let documents = read(text, false);
        let places: Vec<_> =
            documents.iter().map(|d| (d.number, d.line, d.found.is_ok())).collect();
        assert_eq!(places, [(1, 2, true), (2, 6, false), (3, 8, true)]);
    }

    #[test]
    fn a_list_is_its_items() {
        let text = r#"{kind: List, apiVersion: v1, items: [
            {kind: Service, apiVersion: v1, metadata: {name: a}},
            {kind: ConfigMap, apiVersion: v1, metadata: {name: b, namespace: shop}}]}"#;
        let ids: Vec<_> = found(text)
            .into_iter()
            .map(|f| match f {
                Found::Object(id, _) => id.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, ["Service default/a", "ConfigMap shop/b"]);
    }

    #[test]
    fn a_wrong_type_names_its_field_and_the_remedy() {
        let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: a\n  \
                    annotations: {x/y: true}\n";
        let text = message(text);
        assert!(text.contains("metadata.annotations.x/y"), "{text}");
        assert!(text.contains("put it in quotes"), "{text}");
    }

    #[test]
    fn an_object_with_wrong_metadata_is_known_by_its_name() {
        let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: shop, \
                    labels: {version: 1.0}}\n";
        let Some(Found::Broken(id, message)) = found(text).pop() else { panic!("not kept") };
        assert_eq!(id.to_string(), "Ingress shop/a");
        assert!(message.contains("metadata.labels.version"), "{message}");
    }

    #[test]
    fn an_unknown_kind_names_the_known_ones() {
        let text = message("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}");
        assert!(text.contains("Deployment of apps/v1") && text.contains("EndpointSlice"), "{text}");
    }

    #[test]
    fn an_unknown_field_is_named_with_the_one_that_was_meant_and_the_object_is_read() {
        let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, annotation: {x/y: z}}\n\
                    spec: {rules: [{http: {paths: [{path: /, pathTyp: Exact, pathType: Prefix, backend: \
                    {service: {name: b, port: {number: 80}}}}]}}]}";
        let all = found(text);
        let [
            Found::UnknownField(_, annotation),
            Found::UnknownField(_, path),
            Found::Object(id, _),
        ] = &all[..]
        else {
            panic!("{all:?}")
        };
        assert_eq!(id.to_string(), "Ingress default/a");
        assert!(annotation.contains("metadata.annotation:"), "{annotation}");
        assert!(annotation.ends_with("did you mean annotations?"), "{annotation}");
        assert!(path.contains("spec.rules[0].http.paths[0].pathTyp:"), "{path}");
        assert!(path.ends_with("did you mean pathType?"), "{path}");
    }

    #[test]
    fn a_version_that_is_gone_names_the_one_to_write() {
        for version in ["extensions/v1beta1", "networking.k8s.io/v1beta1"] {
            let text =
                message(&format!("apiVersion: {version}\nkind: Ingress\nmetadata: {{name: a}}"));
            assert!(
                text.starts_with("Ingress default/a: ") && text.contains("v1, a pathType"),
                "{text}"
            );
        }
    }

    #[test]
    fn absent_null_and_empty_are_normal_input() {
        for spec in ["", "spec:", "spec: {rules: null, tls: [], defaultBackend: null}"] {
            let text = format!(
                "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: a, labels: null}}\n{spec}"
            );
            assert!(matches!(found(&text)[..], [Found::Object(..)]), "{spec}");
        }
    }

    #[test]
    fn an_alias_bomb_is_refused_and_a_long_list_is_not() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let items = vec![format!("*a{}", n - 1); 9].join(", ");
            bomb.push_str(&format!("a{n}: &a{n} [{items}]\n"));
        }
        let refusal = read(&bomb, false).remove(0).found.unwrap_err();
        assert!(refusal.starts_with("is not read: line "), "{refusal}");
        assert!(refusal.contains("its aliases (`*name`)"), "{refusal}");
        assert!(refusal.ends_with(": write the values out"), "{refusal}");
        let items = "- {kind: Service, apiVersion: v1, metadata: {name: a}}\n".repeat(26_000);
        let list = format!("kind: List\napiVersion: v1\nitems:\n{items}");
        assert_eq!(found(&list).len(), 26_000);
    }

    #[test]
    fn quoted_numbers_stay_texts() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {code: \"308\"}";
        assert!(matches!(found(text)[..], [Found::Object(..)]));
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {code: 308}";
        assert!(message(text).contains("data.code"));
    }

    #[test]
    fn words_that_were_booleans_in_yaml_1_1_are_texts() {
        let data = "{a: yes, b: no, c: on, d: off, e: y, f: n, g: Yes, h: NO}";
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: no}}\ndata: {data}");
        let [Found::Object(id, Object::ConfigMap(map))] = &found(&text)[..] else { panic!() };
        assert_eq!(id.to_string(), "ConfigMap default/no");
        let values: Vec<_> = map.data.values().map(String::as_str).collect();
        assert_eq!(values, ["yes", "no", "on", "off", "y", "n", "Yes", "NO"]);
    }

    #[test]
    fn a_boolean_is_true_or_false() {
        let slice = |word: &str| {
            format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: a}}\n\
                 addressType: IPv4\nendpoints: [{{addresses: [], conditions: {{ready: {word}}}}}]"
            )
        };
        for word in ["true", "True", "FALSE", "null"] {
            assert!(matches!(found(&slice(word))[..], [Found::Object(..)]), "{word}");
        }
        assert!(message(&slice("yes")).contains("write true or false"));
    }

    #[test]
    fn entries_that_are_null_are_absent() {
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {x: null}}\n\
                   data: {a: null, b: ~, c:, d: '', e: 'null'}";
        let [Found::Object(_, Object::ConfigMap(map))] = &found(map)[..] else { panic!() };
        assert_eq!(map.data.keys().collect::<Vec<_>>(), ["d", "e"]);
        let secret = r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "data": {"tls.crt": null, "tls.key": null}, "stringData": {"tls.crt": null}}"#;
        for is_json in [false, true] {
            let found = read(secret, is_json).pop().unwrap().found.unwrap();
            assert!(
                matches!(
                    &found[..],
                    [Found::Object(_, Object::Secret(Secret { offer: Offer::WithoutPair, .. }))]
                ),
                "{found:?}"
            );
        }
    }
}
