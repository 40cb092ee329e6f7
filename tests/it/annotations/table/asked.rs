//! The request of a case, and what is expected of its answer.

use super::Fixture;
use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::wait::{block_on, runtime};

/// A request of a case.
pub struct Asked {
    pub address: Address,
    pub request: Request,
    pub times: usize,
    pub at_once: usize,
}

impl Asked {
    /// Of those that are sent at once, the answer with the highest status.
    pub fn worst_answer(&self) -> Result<Response> {
        let Asked { address, request, at_once, .. } = self;
        let others: Vec<_> = (1..*at_once)
            .map(|_| {
                let (address, request) = (address.clone(), request.clone());
                runtime().spawn(async move { send(&address, &request).await })
            })
            .collect();
        let mut answer = block_on(send(address, request))?;
        for other in others {
            let other = block_on(other)??;
            if other.status > answer.status {
                answer = other;
            }
        }
        Ok(answer)
    }
}

/// How many requests endpoints have got.
pub fn arrived(fixture: &Fixture, names: &str) -> Result<u64> {
    names.split(' ').try_fold(0, |sum, name| {
        let endpoint = fixture.variables.endpoints.get(name).context("an endpoint")?;
        Ok(sum + endpoint.requests())
    })
}

/// One expectation of a case.
pub fn expect(
    fixture: &Fixture,
    answer: &Response,
    part: &str,
    (address, host): (&Address, &str),
) -> Result<()> {
    let seen = answer.text();
    if let Some(target) = part.strip_prefix("logged ") {
        fixture.is_logged(target)?;
    } else if let Some(target) = part.strip_prefix("unlogged ") {
        // A later request is in the log already.
        let after = format!("/after{target}");
        block_on(send(address, &Request::get("copies.test", &after)))?;
        fixture.is_logged(&after)?;
        let log = fixture.controller.error_log();
        ensure!(!log.contains(&format!("GET {target} ")), "{target} is in the log");
    } else if let Some(text) = part.strip_prefix('~') {
        ensure!(seen.contains(text), "{text:?} is not in\n{seen}");
    } else if let Some(text) = part.strip_prefix('!') {
        ensure!(!seen.contains(text), "{text:?} is in\n{seen}");
    } else {
        let (name, value) = part.split_once(": ").context("a header")?;
        let value = value.replace("$HOST", host);
        let found = answer.header(name).unwrap_or_else(|| "-".into());
        let holds = match value.strip_prefix('^') {
            Some(start) => found.starts_with(start),
            None => found == value,
        };
        ensure!(holds, "{name}: {found:?} instead of {value:?}");
    }
    Ok(())
}
