//! [`Options`] as the query of `GET /metrics`: the controller writes it, the module reads it.
//!
//! Errors:  a name that is not known or a value that cannot be read is refused, with the names there are.

use super::Options;
use crate::text::percent;
use std::fmt::Write;

/// Labels that a query may add to every series.
const CONSTANT: [&str; 3] = ["controller_class", "controller_namespace", "controller_pod"];

/// A query that is not understood, and what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not understood: write per_host=false, status_classes=true, exclude=NAME,NAME, \
     controller_class=TEXT, controller_namespace=TEXT, controller_pod=TEXT, percent-encoded"
)]
pub struct InvalidQuery(String);

impl Options {
    /// Reads a query, without its question mark.
    pub fn from_query(query: &[u8]) -> Result<Options, InvalidQuery> {
        let mut options = Options::default();
        for pair in query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            let refuse = || InvalidQuery(String::from_utf8_lossy(pair).into_owned());
            let pair = percent::decode_text(pair).ok_or_else(refuse)?;
            let (name, value) = pair.split_once('=').ok_or_else(refuse)?;
            let flag = || value.parse::<bool>().map_err(|_| refuse());
            match CONSTANT.iter().find(|known| **known == name) {
                Some(_) => options.constant.push((name.into(), value.into())),
                None if name == "per_host" => options.per_host = flag()?,
                None if name == "status_classes" => options.status_classes = flag()?,
                None if name == "exclude" => {
                    options.excluded.extend(value.split(',').map(Into::into));
                }
                None => return Err(refuse()),
            }
        }
        // Prometheus refuses a text with a repeated label.
        options.constant.sort();
        options.constant.dedup_by(|a, b| a.0 == b.0);
        Ok(options)
    }

    /// The query that [`Options::from_query`] reads as these options.
    pub fn to_query(&self) -> String {
        let Options { per_host, status_classes, excluded, constant } = self;
        let mut query = format!("per_host={per_host}&status_classes={status_classes}");
        let excluded: Vec<_> = excluded.iter().map(String::as_str).collect();
        let excluded = excluded.join(",");
        let excluded = ("exclude", excluded.as_str());
        let constant = constant.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in constant.chain(Some(excluded)).filter(|(_, value)| !value.is_empty()) {
            let _ = write!(query, "&{name}=");
            query.extend(percent::escaped(value.as_bytes(), b",").map(char::from));
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let options = Options {
            per_host: false,
            status_classes: true,
            excluded: ["request_size".into(), "bytes_sent".into()].into(),
            constant: vec![
                ("controller_class".into(), "k8s.io/ingress-nginx & \"ü\"=1".into()),
                ("controller_pod".into(), "pod-0".into()),
            ],
        };
        let query = options.to_query();
        assert!(query.contains("controller_class=k8s.io%2Fingress-nginx%20%26"), "{query}");
        assert_eq!(Options::from_query(query.as_bytes()), Ok(options));
        assert_eq!(Options::from_query(b""), Ok(Options::default()));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for query in
            ["x", "host=a", "per_host=yes", "controller_pod=%", "controller_pod=%f", "a=%ff"]
        {
            let error = Options::from_query(query.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("per_host=false"), "{error}");
        }
        let twice = Options::from_query(b"controller_pod=a&controller_pod=b").unwrap();
        assert_eq!(twice.constant.len(), 1);
    }
}
