//! A strict reader of Prometheus' text format 0.0.4: what it takes, Prometheus takes.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// All samples of a page, by name and labels.
#[derive(Clone, Debug, Default)]
pub struct Page {
    samples: BTreeMap<(String, Labels), f64>,
    kinds: BTreeMap<String, String>,
}

impl Page {
    /// Reads a page; checks names, escapes, that a metric stands in one piece below its type, that no series
    /// stands twice, and that histograms add up.
    pub fn parse(text: &str) -> Result<Page> {
        ensure!(text.is_empty() || text.ends_with('\n'), "the last line has no end");
        let mut page = Page::default();
        let mut current = String::new();
        for (number, line) in text.lines().enumerate() {
            page.line(line, &mut current)
                .with_context(|| format!("line {}: {line}", number + 1))?;
        }
        page.check_histograms()?;
        Ok(page)
    }

    fn line(&mut self, line: &str, current: &mut String) -> Result<()> {
        if let Some(comment) = line.strip_prefix("# TYPE ") {
            let (name, kind) = comment.split_once(' ').context("a name and a type")?;
            check_name(name)?;
            ensure!(["counter", "gauge", "histogram", "untyped"].contains(&kind), "{kind}");
            ensure!(self.kinds.insert(name.into(), kind.into()).is_none(), "a second type");
            *current = name.into();
            return Ok(());
        }
        if line.starts_with('#') {
            return Ok(());
        }
        let end = line.find(['{', ' ']).context("a name and a value")?;
        let (name, rest) = line.split_at(end);
        check_name(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Labels::new(), rest),
        };
        let value = value.strip_prefix(' ').context("one blank before the value")?;
        let value = value.parse::<f64>().with_context(|| format!("the value {value:?}"))?;
        let suffixes = ["", "_bucket", "_sum", "_count"];
        let is_current = |suffix: &&str| name.strip_suffix(*suffix) == Some(current.as_str());
        let Some(suffix) = suffixes.into_iter().find(is_current) else {
            bail!("it stands below the type of {current:?}");
        };
        let is_histogram = self.kinds.get(current).is_some_and(|kind| kind == "histogram");
        ensure!(is_histogram != suffix.is_empty(), "a name that its type does not have");
        let is_new = self.samples.insert((name.into(), labels), value).is_none();
        ensure!(is_new, "this series stands twice");
        Ok(())
    }

    fn check_histograms(&self) -> Result<()> {
        for name in self.kinds.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name)
        {
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for (mut labels, value) in self.all(&format!("{name}_bucket")) {
                let bound = labels.remove("le").context("a bucket without le")?;
                series.entry(labels).or_default().push((bound.parse()?, value));
            }
            ensure!(!series.is_empty(), "{name} has no series");
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                ensure!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name}{labels:?} shrinks");
                let last = buckets.last().context("no bucket")?;
                ensure!(last.0 == f64::INFINITY, "{name}{labels:?} has no +Inf");
                let count = self.samples.get(&(format!("{name}_count"), labels.clone()));
                ensure!(count == Some(&last.1), "{name}{labels:?}: {count:?} is not {}", last.1);
                let sum = self.samples.get(&(format!("{name}_sum"), labels.clone()));
                ensure!(sum.is_some_and(|sum| *sum >= 0.0), "{name}{labels:?} has no sum");
            }
        }
        Ok(())
    }

    /// The samples of a name.
    pub fn all(&self, name: &str) -> Vec<(Labels, f64)> {
        let own = self.samples.iter().filter(|((own, _), _)| own == name);
        own.map(|((_, labels), value)| (labels.clone(), *value)).collect()
    }

    /// The sum of the samples of a name that have these labels, and how many there are.
    pub fn sum(&self, name: &str, wanted: &[(&str, &str)]) -> (f64, usize) {
        let has = |labels: &Labels| {
            wanted.iter().all(|(name, value)| labels.get(*name).is_some_and(|own| own == value))
        };
        let found = self.all(name).into_iter().filter(|(labels, _)| has(labels));
        found.fold((0.0, 0), |(sum, count), (_, value)| (sum + value, count + 1))
    }

    /// The names there are, without those of a histogram's parts.
    pub fn names(&self) -> BTreeSet<&str> {
        self.kinds.keys().map(String::as_str).collect()
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_good = |(place, byte): (usize, u8)| {
        byte.is_ascii_alphabetic()
            || byte == b'_'
            || byte == b':'
            || place > 0 && byte.is_ascii_digit()
    };
    ensure!(!name.is_empty() && name.bytes().enumerate().all(is_good), "the name {name:?}");
    Ok(())
}

/// What stands behind the opening brace: the labels, and what follows the closing one.
fn labels(mut rest: &str) -> Result<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (name, after) = rest.split_once("=\"").context("a label's name and value")?;
        check_name(name)?;
        let mut value = String::new();
        let mut characters = after.chars();
        loop {
            match characters.next().context("the value does not end")? {
                '"' => break,
                '\\' => value.push(match characters.next() {
                    Some('n') => '\n',
                    Some(escaped @ ('\\' | '"')) => escaped,
                    other => bail!("the escape {other:?}"),
                }),
                other => value.push(other),
            }
        }
        ensure!(labels.insert(name.into(), value).is_none(), "label {name} stands twice");
        rest = characters.as_str();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => ensure!(rest.starts_with('}'), "a comma or a brace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let text = "# HELP a x\n# TYPE a counter\na{b=\"c\\\"d\"} 1\na{b=\"e\"} 2\n# TYPE h histogram\n\
                    h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum{} 3\nh_count{} 2\n";
        let page = Page::parse(text).unwrap();
        assert_eq!(page.sum("a", &[]), (3.0, 2));
        assert_eq!(page.sum("a", &[("b", "c\"d")]), (1.0, 1));
    }

    #[test]
    fn what_prometheus_refuses_is_refused() {
        for text in [
            "a 1\n",
            "# TYPE a counter\na 1",
            "# TYPE a counter\na{} x\n",
            "# TYPE a counter\na{} 1\na{} 1\n",
            "# TYPE a counter\na{b=\"} 1\n",
            "# TYPE a counter\na{b=\"\\x\"} 1\n",
            "# TYPE a counter\n# TYPE b counter\na{} 1\n",
            "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_sum{} 3\nh_count{} 3\n",
            "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum{} 3\nh_count{} 2\n",
            "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum{} 3\nh_count{} 1\n",
        ] {
            assert!(Page::parse(text).is_err(), "{text}");
        }
    }
}
