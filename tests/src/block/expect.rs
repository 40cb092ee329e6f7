//! Expectations.

use super::Step;
use super::actions::Answer;
use super::parse::Section;
use super::setup::{Fixture, pairs};
use crate::client::Response;
use crate::endpoint::Endpoint;
use crate::wait::{self, block_on};
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

/// What was before an action, as far as its expectations compare with it.
pub struct Before {
    connections: BTreeMap<String, u64>,
    requests: BTreeMap<String, u64>,
    generation: Option<(String, u64)>,
}

impl Before {
    pub fn take(step: &Step<'_>, fixture: &Fixture) -> Result<Self> {
        let endpoints = || fixture.variables.endpoints.values();
        let generation = match step.section("generation") {
            Some(_) => Some(generation(fixture)?),
            None => None,
        };
        Ok(Before {
            connections: endpoints().map(|e| (e.name.clone(), e.connections())).collect(),
            requests: endpoints().map(|e| (e.name.clone(), e.requests())).collect(),
            generation,
        })
    }
}

fn generation(fixture: &Fixture) -> Result<(String, u64)> {
    let status = block_on(fixture.configuration.status())?;
    Ok((status.epoch, status.generation))
}

/// Checks every expectation of a step.
pub fn look(step: &Step<'_>, fixture: &Fixture, answer: &Answer, before: &Before) -> Result<()> {
    if step.section("error_code").is_none() {
        for response in &answer.responses {
            let expected = answer.default_status;
            ensure!(response.status == expected, "status {}, not {expected}", response.status);
        }
    }
    for section in &step.expectations {
        let value = fixture.variables.expand(&section.value)?;
        check(section, &value, fixture, answer, before)
            .with_context(|| format!("--- {} (line {})", section.name, section.line))?;
    }
    Ok(())
}

fn check(
    section: &Section,
    value: &str,
    fixture: &Fixture,
    answer: &Answer,
    before: &Before,
) -> Result<()> {
    let last = || answer.responses.last().context("the action has no answer");
    match section.name.as_str() {
        "more_headers" | "no_error_log" => Ok(()),
        "error_code" => statuses(answer, value),
        "response_headers" => headers(last()?, value),
        "response_headers_like" => headers_like(last()?, value),
        "response_body" => body(last()?, value),
        "response_body_like" => patterns(value, |pattern| {
            ensure!(pattern.is_match(&last()?.text()), "the body has no match of {pattern}");
            Ok(())
        }),
        "response_body_unlike" => patterns(value, |pattern| {
            ensure!(!pattern.is_match(&last()?.text()), "the body has a match of {pattern}");
            Ok(())
        }),
        "response_json" => {
            let expected = serde_json::from_str(value).context("the expected JSON")?;
            contains("", &last()?.json()?, &expected)
        }
        "endpoint" => endpoint(last()?, value),
        "endpoint_connections" => {
            counts(value, &before.connections, fixture, |endpoint| endpoint.connections())
        }
        "open_connections" => wait::until("open connections", || {
            let nothing = BTreeMap::new();
            counts(value, &nothing, fixture, |endpoint| endpoint.open_connections())
        }),
        // What nginx asks behind an answer comes a moment later.
        "endpoint_requests" => wait::until("requests at the endpoints", || {
            counts(value, &before.requests, fixture, |endpoint| endpoint.requests())
        }),
        "access_log" => value.lines().try_for_each(|line| {
            wait::until("the access log", || {
                ensure!(fixture.access_log()?.contains(line), "no {line} in the access log");
                Ok(())
            })
        }),
        "no_access_log" => {
            let log = fixture.access_log()?;
            let found = value.lines().find(|line| log.contains(*line));
            found.map_or(Ok(()), |line| bail!("{line} is in the access log"))
        }
        "error_log" => value.lines().try_for_each(|line| fixture.wait_for_log(line)),
        "generation" => generation_is(value, fixture, before),
        name => bail!("no expectation {name}"),
    }
}

fn body(response: &Response, value: &str) -> Result<()> {
    ensure!(response.text().trim_end() == value.trim_end(), "another body");
    Ok(())
}

fn endpoint(response: &Response, value: &str) -> Result<()> {
    let found = response.endpoint();
    let found = found.as_deref().unwrap_or("-");
    ensure!(found == value, "endpoint {found}, not {value}");
    Ok(())
}

fn statuses(answer: &Answer, value: &str) -> Result<()> {
    let found: Vec<_> = answer.responses.iter().map(|r| r.status.to_string()).collect();
    let found = found.join(" ");
    ensure!(value.split('|').any(|one| one == found), "status {found}, not {value}");
    Ok(())
}

fn generation_is(value: &str, fixture: &Fixture, before: &Before) -> Result<()> {
    let (epoch, number) = before.generation.as_ref().context("no generation before")?;
    let (now_epoch, now) = generation(fixture)?;
    let told = format!("it was {epoch}.{number} and is {now_epoch}.{now}");
    match value {
        "unchanged" => ensure!((epoch, *number) == (&now_epoch, now), "{told}"),
        "newer" => ensure!(*epoch != now_epoch || now > *number, "{told}"),
        "next" => ensure!(*epoch == now_epoch && now == number + 1, "{told}"),
        "new epoch" => ensure!(*epoch != now_epoch, "{told}"),
        other => bail!("generation: unchanged, newer, next or new epoch, not {other}"),
    }
    Ok(())
}

/// `Name: value` is what stands there, `!Name` is absent.
fn headers(response: &Response, value: &str) -> Result<()> {
    for line in value.lines() {
        if let Some(name) = line.strip_prefix('!') {
            let found = response.header(name.trim());
            ensure!(found.is_none(), "{name}: {}", found.unwrap_or_default());
        } else {
            let (name, expected) = line.split_once(':').context("`Name: value`")?;
            let found = response.header(name.trim());
            ensure!(
                found.as_deref().unwrap_or("") == expected.trim(),
                "{name}: {found:?}, not {expected}"
            );
        }
    }
    Ok(())
}

fn headers_like(response: &Response, value: &str) -> Result<()> {
    for line in value.lines() {
        let (name, pattern) = line.split_once(':').context("`Name: pattern`")?;
        let found = response.header(name.trim()).unwrap_or_default();
        let pattern = Regex::new(&format!("^(?:{})$", pattern.trim()))?;
        ensure!(pattern.is_match(&found), "{name}: {found}, which is not {pattern}");
    }
    Ok(())
}

/// One pattern a line; `^` and `$` are the ends of a line of the body.
fn patterns(value: &str, mut look: impl FnMut(&Regex) -> Result<()>) -> Result<()> {
    ensure!(!value.is_empty(), "no pattern");
    for line in value.lines() {
        look(&Regex::new(&format!("(?m){line}"))?)?;
    }
    Ok(())
}

/// Lines `endpoint: how many since the action began`; `*` is the sum over all.
fn counts(
    value: &str,
    before: &BTreeMap<String, u64>,
    fixture: &Fixture,
    count: impl Fn(&Endpoint) -> u64,
) -> Result<()> {
    for (name, expected) in pairs(value)? {
        let endpoints = &fixture.variables.endpoints;
        let since = |e: &Endpoint| count(e) - before.get(&e.name).copied().unwrap_or_default();
        let found = match name.as_str() {
            "*" => endpoints.values().map(since).sum(),
            name => since(endpoints.get(name).context("no such endpoint")?),
        };
        ensure!(found == expected.parse::<u64>()?, "{name}: {found}, not {expected}");
    }
    Ok(())
}

/// Objects of the answer may have more members than the expected ones.
fn contains(pointer: &str, found: &Value, expected: &Value) -> Result<()> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().try_for_each(|(key, value)| {
                let pointer = format!("{pointer}/{key}");
                let found = found.get(key).with_context(|| format!("{pointer} is absent"))?;
                contains(&pointer, found, value)
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let both = found.iter().zip(expected).enumerate();
            both.into_iter().try_for_each(|(index, (found, expected))| {
                contains(&format!("{pointer}/{index}"), found, expected)
            })
        }
        _ => {
            ensure!(found == expected, "{pointer} is {found}, not {expected}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_may_have_more_members_but_not_other_values() {
        let found = json!({"a": [1, {"b": 2, "c": 3}], "d": null});
        assert!(contains("", &found, &json!({"a": [1, {"b": 2}]})).is_ok());
        let error = contains("", &found, &json!({"a": [1, {"b": 3}]})).unwrap_err();
        assert_eq!(error.to_string(), "/a/1/b is 2, not 3");
        assert!(contains("", &found, &json!({"a": [1]})).is_err());
        assert!(contains("", &found, &json!({"e": 1})).is_err());
    }
}
