//! The text that Prometheus reads, format 0.0.4.
//!
//! Written by hand: the crates `prometheus` and `prometheus-client` own the numbers that they expose, and ours are
//! in memory that many processes share.
//!
//! Series that were never counted are left out, as in the reference.

use super::buckets::{Bounds, Buckets};
use super::cell::{
    CONNECT, HEADER, Method, REQUEST, REQUEST_SIZE, RESPONSE, RESPONSE_SIZE, Totals,
};
use crate::text::line::is_special;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::AtomicU64;

/// The namespace of all names.
pub const PREFIX: &str = "nginx_ingress_controller_";

/// The metric families, without [`PREFIX`], and their help texts.
pub const FAMILIES: [(&str, &str); 8] = [
    ("requests", "Requests that were answered"),
    ("request_duration_seconds", "From the first byte of a request to the last of its answer"),
    ("response_duration_seconds", "Time with endpoints, all attempts of a request together"),
    (
        "connect_duration_seconds",
        "Time to connect to endpoints, all attempts of a request together",
    ),
    ("header_duration_seconds", "Time to the head of the answer, all attempts together"),
    ("request_size", "Bytes of a request, head and body"),
    ("response_size", "Bytes of an answer, head and body"),
    ("bytes_sent", "The same as response_size, which is to be used instead"),
];

/// The series that are exposed, and their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether series of requests have the label `host`.
    pub per_host: bool,
    /// Statuses as 2xx and so on.
    pub status_classes: bool,
    /// Names of [`FAMILIES`] that are left out.
    pub excluded: BTreeSet<String>,
    /// Names and values of labels that every series has.
    pub constant: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            per_host: true,
            status_classes: false,
            excluded: BTreeSet::new(),
            constant: Vec::new(),
        }
    }
}

impl Options {
    /// The labels of every series, as they stand between braces.
    pub fn constant_labels(&self) -> String {
        labels(&with_constant(&self.constant, &[]))
    }
}

/// Which requests a cell counts. None of it is the client's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a> {
    /// The host pattern of the server, `_` for all others.
    pub host: &'a [u8],
    /// The namespace of the Ingress.
    pub namespace: &'a [u8],
    /// The name of the Ingress.
    pub ingress: &'a [u8],
    /// The Service of the path.
    pub service: &'a [u8],
    /// The path as the Ingress has it.
    pub path: &'a [u8],
    /// The alternative backend that served instead; empty: none.
    pub canary: &'a [u8],
}

/// The samples of many cells, added up by labels.
pub struct Exposition {
    options: Options,
    constant: String,
    series: BTreeMap<String, Totals>,
}

impl Exposition {
    /// Begins a text to which families and their samples are added.
    pub fn new(options: Options) -> Self {
        let mut constant = options.constant_labels();
        if !constant.is_empty() {
            constant.push(',');
        }
        Exposition { options, constant, series: BTreeMap::new() }
    }

    /// Adds the counts of a cell. Cells with equal labels are added up.
    pub fn add(&mut self, labels: &Labels<'_>, cell: &[AtomicU64]) {
        let mut totals = Totals::default();
        totals.add(cell);
        if totals.is_empty() {
            return;
        }
        let mut text = self.constant.clone();
        label(&mut text, "canary", labels.canary);
        if self.options.per_host {
            label(&mut text, "host", labels.host);
        }
        label(&mut text, "ingress", labels.ingress);
        label(&mut text, "namespace", labels.namespace);
        label(&mut text, "path", labels.path);
        label(&mut text, "service", labels.service);
        match self.series.entry(text) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(totals);
            }
            std::collections::btree_map::Entry::Occupied(mut there) => {
                there.get_mut().merge(&totals)
            }
        }
    }

    /// All samples in Prometheus' text format.
    pub fn text(&self, buckets: &Buckets) -> String {
        let mut out = String::new();
        for (name, help) in FAMILIES {
            if self.series.is_empty() || self.options.excluded.contains(name) {
                continue;
            }
            title(&mut out, name, if name == "requests" { "counter" } else { "histogram" }, help);
            for (labels, totals) in &self.series {
                let seconds = |which: usize| Histogram {
                    bounds: &buckets.time,
                    words: &totals.times[which],
                    sum: totals.times[which].last().copied().unwrap_or_default() as f64 / 1e3,
                };
                let bytes = |which: usize| Histogram {
                    bounds: &buckets.length,
                    words: &totals.lengths[which],
                    sum: totals.lengths[which].last().copied().unwrap_or_default() as f64,
                };
                let histogram = match name {
                    "request_duration_seconds" => seconds(REQUEST),
                    "response_duration_seconds" => seconds(RESPONSE),
                    "connect_duration_seconds" => seconds(CONNECT),
                    "header_duration_seconds" => seconds(HEADER),
                    "request_size" => bytes(REQUEST_SIZE),
                    "response_size" => bytes(RESPONSE_SIZE),
                    "bytes_sent" => Histogram {
                        bounds: &buckets.size,
                        words: &totals.size,
                        sum: bytes(RESPONSE_SIZE).sum,
                    },
                    _ => {
                        self.requests(&mut out, labels, totals);
                        continue;
                    }
                };
                histogram.write(&mut out, name, labels);
            }
        }
        out
    }

    fn requests(&self, out: &mut String, labels: &str, totals: &Totals) {
        let mut all: BTreeMap<(String, &str), u64> = BTreeMap::new();
        for ((status, method), count) in &totals.requests {
            *all.entry((self.status(*status), Method::name(*method))).or_default() += count;
        }
        for ((status, method), count) in all {
            let _ = writeln!(
                out,
                "{PREFIX}requests{{{labels}method=\"{method}\",status=\"{status}\"}} {count}"
            );
        }
    }

    /// As nginx logs it: three digits; those that found no word by their class in any case.
    fn status(&self, status: u16) -> String {
        match status {
            1..6 => format!("{status}xx"),
            100..600 if self.options.status_classes => format!("{}xx", status / 100),
            _ => format!("{status:03}"),
        }
    }
}

struct Histogram<'a> {
    bounds: &'a Bounds,
    /// A bucket for each bound, then one without; what comes after is none.
    words: &'a [u64],
    sum: f64,
}

impl Histogram<'_> {
    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let buckets = self.words.get(..=self.bounds.all().len()).unwrap_or_default();
        if buckets.iter().all(|count| *count == 0) {
            return;
        }
        let mut below = 0;
        let bounds = self.bounds.all().iter().map(|bound| number(*bound));
        for (count, bound) in buckets.iter().zip(bounds.chain(["+Inf".into()])) {
            below += count;
            let _ = writeln!(out, "{PREFIX}{name}_bucket{{{labels}le=\"{bound}\"}} {below}");
        }
        let labels = labels.trim_end_matches(',');
        let _ = writeln!(out, "{PREFIX}{name}_sum{{{labels}}} {}", number(self.sum));
        let _ = writeln!(out, "{PREFIX}{name}_count{{{labels}}} {below}");
    }
}

/// The lines above a metric's samples.
pub fn title(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
}

/// Appends one sample, with its labels, as a line.
pub fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let labels = self::labels(labels);
    let _ = writeln!(out, "{PREFIX}{name}{{{labels}}} {}", number(value));
}

/// The labels of every series, then those of one.
pub fn with_constant<'a>(
    constant: &'a [(String, String)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let constant = constant.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    constant.chain(more.iter().copied()).collect()
}

/// Formats labels as `name="value",name="value"`, with values escaped.
pub fn labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        label(&mut text, name, value.as_bytes());
    }
    text.pop();
    text
}

fn label(out: &mut String, name: &str, value: &[u8]) {
    let _ = write!(out, "{name}=\"");
    for character in String::from_utf8_lossy(value).chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            // An escape of our own, which Prometheus reads as these very characters.
            special if is_special(special) => {
                let _ = write!(out, "\\{}", special.escape_default());
            }
            other => out.push(other),
        }
    }
    out.push_str("\",");
}

/// A number as Go writes it, so that `le` keeps the texts that queries name: `0.005`, `100000`, `1e+06`.
pub fn number(value: f64) -> String {
    let exponent = format!("{value:e}");
    match exponent.split_once('e').map(|(digits, power)| (digits, power.parse::<i32>())) {
        Some((digits, Ok(power))) if power < -4 && value != 0.0 => {
            format!("{digits}e-{:02}", power.unsigned_abs())
        }
        // Go changes over at 21 digits for numbers, at 6 for `le`: Prometheus reads both alike, and a sum
        // with all its digits is easier on the eyes.
        Some((digits, Ok(power))) if power >= 6 && digits.len() == 1 => {
            format!("{digits}e+{power:02}")
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attempts, Observation, WORDS, observe};
    use super::*;

    fn cell(requests: &[Observation]) -> Vec<AtomicU64> {
        let cell: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        requests.iter().for_each(|seen| observe(&cell, &Buckets::default(), seen));
        cell
    }

    fn get(status: u16) -> Observation {
        Observation { method_mask: 2, status, request_ms: 7, ..Observation::default() }
    }

    const SHOP: Labels = Labels {
        host: b"shop.test",
        namespace: b"default",
        ingress: b"shop",
        service: b"web",
        path: b"/",
        canary: b"",
    };

    fn text(options: Options, cells: &[(Labels<'_>, Vec<AtomicU64>)]) -> String {
        let mut exposition = Exposition::new(options);
        cells.iter().for_each(|(labels, cell)| exposition.add(labels, cell));
        exposition.text(&Buckets::default())
    }

    #[test]
    fn a_rule_s_requests_are_told_as_the_reference_does() {
        let options = Options {
            constant: vec![("controller_class".into(), "k8s.io/ingress-nginx".into())],
            ..Options::default()
        };
        let sizes = Observation { request_bytes: 80, response_bytes: 3_000, ..get(200) };
        let attempts = Attempts { response_ms: Some(3), connect_ms: Some(0), header_ms: None };
        let text = text(options, &[(SHOP, cell(&[Observation { attempts, ..sizes }, get(404)]))]);
        let labels = "controller_class=\"k8s.io/ingress-nginx\",canary=\"\",host=\"shop.test\",\
                      ingress=\"shop\",namespace=\"default\",path=\"/\",service=\"web\"";
        for line in [
            "# TYPE nginx_ingress_controller_requests counter".to_owned(),
            format!("{PREFIX}requests{{{labels},method=\"GET\",status=\"200\"}} 1"),
            format!("{PREFIX}requests{{{labels},method=\"GET\",status=\"404\"}} 1"),
            "# TYPE nginx_ingress_controller_request_duration_seconds histogram".to_owned(),
            format!("{PREFIX}request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 0"),
            format!("{PREFIX}request_duration_seconds_bucket{{{labels},le=\"0.01\"}} 2"),
            format!("{PREFIX}request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("{PREFIX}request_duration_seconds_sum{{{labels}}} 0.014"),
            format!("{PREFIX}request_duration_seconds_count{{{labels}}} 2"),
            format!("{PREFIX}response_duration_seconds_count{{{labels}}} 1"),
            format!("{PREFIX}connect_duration_seconds_bucket{{{labels},le=\"0.005\"}} 1"),
            format!("{PREFIX}request_size_bucket{{{labels},le=\"80\"}} 2"),
            format!("{PREFIX}response_size_bucket{{{labels},le=\"100\"}} 1"),
            format!("{PREFIX}bytes_sent_bucket{{{labels},le=\"1e+06\"}} 2"),
            format!("{PREFIX}bytes_sent_sum{{{labels}}} 3000"),
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        assert!(!text.contains("header_duration_seconds_"), "nothing was measured: {text}");
    }

    #[test]
    fn without_hosts_the_series_of_a_path_are_added_up() {
        let options = Options { per_host: false, status_classes: true, ..Options::default() };
        let other = Labels { host: b"other.test", ..SHOP };
        let cells = [(SHOP, cell(&[get(200), get(201)])), (other, cell(&[get(200)]))];
        let text = text(options, &cells);
        assert!(!text.contains("host="), "{text}");
        let requests: Vec<_> = text.lines().filter(|l| l.contains("_requests{")).collect();
        assert_eq!(requests.len(), 1, "{text}");
        assert!(requests[0].ends_with("method=\"GET\",status=\"2xx\"} 3"), "{text}");
    }

    #[test]
    fn label_values_are_escaped() {
        let labels = Labels { path: b"/a\"b\\c\nd", ..SHOP };
        let text = text(Options::default(), &[(labels, cell(&[get(200)]))]);
        assert!(text.contains(r#"path="/a\"b\\c\nd""#), "{text}");
    }

    #[test]
    fn what_was_never_counted_or_is_excluded_is_not_told() {
        assert_eq!(text(Options::default(), &[(SHOP, cell(&[]))]), "");
        let excluded = FAMILIES.map(|(name, _)| name.to_owned()).into_iter().skip(1).collect();
        let options = Options { excluded, ..Options::default() };
        let text = text(options, &[(SHOP, cell(&[get(200)]))]);
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, written) in [
            (0.005, "0.005"),
            (10.0, "10"),
            (1e5, "100000"),
            (1e6, "1e+06"),
            (1e7, "1e+07"),
            (0.0, "0"),
            (1234567.5, "1234567.5"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(number(value), written);
        }
    }
}
