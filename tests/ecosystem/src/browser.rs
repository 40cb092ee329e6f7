//! What a browser does: it keeps cookies, and follows redirects.

use anyhow::{Context, Result, ensure};
use http::Uri;
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::wait::block_on;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Redirects that it follows before it gives up.
const REDIRECTS: usize = 10;

/// Every name is loopback; a certificate is not looked at.
#[derive(Default)]
pub struct Browser {
    /// By host and name.
    cookies: BTreeMap<(String, String), String>,
}

/// An answer, and the address that it is of.
pub struct Step {
    pub url: String,
    pub answer: Response,
}

impl Browser {
    /// Asks for one page, without following.
    pub fn get(&mut self, url: &str) -> Result<Step> {
        let uri: Uri = url.parse().with_context(|| format!("the address {url}"))?;
        let host = uri.host().with_context(|| format!("no host in {url}"))?;
        let address = match (uri.scheme_str(), uri.port_u16()) {
            (Some("https"), port) => Address::https(port.unwrap_or(443), host),
            (_, port) => Address::Tcp((Ipv4Addr::LOCALHOST, port.unwrap_or(80)).into()),
        };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let mut request = Request::get(authority, target);
        let own = self.cookies.iter().filter(|((of, _), _)| of == host);
        let cookies: Vec<_> = own.map(|((_, name), value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header("Cookie", &cookies.join("; "));
        }
        let answer = block_on(send(&address, &request)).with_context(|| url.to_owned())?;
        for cookie in answer.headers.get_all("set-cookie") {
            let pair = cookie.to_str()?.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').context("a cookie without a value")?;
            self.cookies.insert((host.into(), name.trim().into()), value.into());
        }
        Ok(Step { url: url.into(), answer })
    }

    /// Follows redirects to the first other answer; all of them, in order.
    pub fn follow(&mut self, url: &str) -> Result<Vec<Step>> {
        let (mut steps, mut next) = (Vec::new(), url.to_owned());
        loop {
            let step = self.get(&next)?;
            let location = step.location();
            steps.push(step);
            match location {
                Some(location) => next = location,
                None => return Ok(steps),
            }
            let seen = || steps.iter().map(|step| step.url.as_str()).collect::<Vec<_>>();
            ensure!(steps.len() <= REDIRECTS, "redirects without an end: {:#?}", seen());
        }
    }
}

impl Step {
    /// Where a redirect leads, as a whole address.
    pub fn location(&self) -> Option<String> {
        let location = self.answer.header("location").filter(|_| self.answer.status / 100 == 3)?;
        if !location.starts_with('/') {
            return Some(location);
        }
        let uri: Uri = self.url.parse().ok()?;
        Some(format!("{}://{}{location}", uri.scheme()?, uri.authority()?))
    }
}
