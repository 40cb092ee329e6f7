//! `documented.yaml`: the differences that the documentation has, beside those that `oxigress compare` knows by itself.

use anyhow::{Context, Result, ensure};
use oxigress_compare::answer::Difference;
use oxigress_compare::requests::Request;
use regex::Regex;
use serde::Deserialize;
use std::path::Path;

/// A line of the table. What is absent is anything; expressions are of the whole text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// The page that has the difference and its reason.
    page: String,
    #[serde(default)]
    block: Option<String>,
    #[serde(default)]
    request: Option<String>,
    aspect: String,
    #[serde(default)]
    old: Option<String>,
    #[serde(default)]
    new: Option<String>,
}

struct Rule {
    name: String,
    page: String,
    /// Block, request, aspect, old and new value.
    texts: [Regex; 5],
}

/// All of them.
pub struct Table(Vec<Rule>);

impl Table {
    /// Reads the table; its pages must exist.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let rows: Vec<Row> = serde_saphyr::from_str(&text).context("documented.yaml")?;
        let rules = rows.into_iter().map(|row| {
            let page = oxigress_tests::dist::repository().join(&row.page);
            ensure!(page.exists(), "{}: there is no page {}", row.name, row.page);
            let whole = |text: Option<String>| {
                let text = text.unwrap_or_else(|| "(?s).*".into());
                Regex::new(&format!("^(?:{text})$")).with_context(|| row.name.clone())
            };
            let texts = [
                whole(row.block)?,
                whole(row.request)?,
                whole(Some(row.aspect))?,
                whole(row.old)?,
                whole(row.new)?,
            ];
            Ok(Rule { name: row.name.clone(), page: row.page, texts })
        });
        Ok(Table(rules.collect::<Result<_>>()?))
    }

    /// The name of the documented difference that this one is.
    pub fn find(&self, block: &str, request: &Request, one: &Difference) -> Option<&str> {
        let (request, aspect) = (request.to_string(), one.aspect.to_string());
        let texts = [block, &request, &aspect, &one.old, &one.new];
        let is =
            |rule: &&Rule| rule.texts.iter().zip(texts).all(|(regex, text)| regex.is_match(text));
        self.0.iter().find(is).map(|rule| &*rule.name)
    }

    /// Names and pages.
    pub fn pages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|rule| (&*rule.name, &*rule.page))
    }
}
