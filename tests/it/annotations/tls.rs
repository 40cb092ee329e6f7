//! Annotations from a manifest to an answer, where a line of the table cannot say it: client certificates, TLS toward
//! endpoints, and what an auth server is asked.

mod auth_servers;
mod ciphers;
mod clients;
mod passthrough;
mod upstream;

use anyhow::{Context, Result, ensure};
use openssl::ssl::SslVersion;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, Response, handshake, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::manifest::{ingress_head, secret, service};
use oxigress_tests::mutual::{Answer, Caller, Identity, Seen, TlsEndpoint, VALID};
use oxigress_tests::pass;
use oxigress_tests::place::free_port;
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::block_on;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes an Ingress for the host `NAME.test`.
fn ingress(name: &str, service: &str, annotations: &[(&str, &str)], secret: &str) -> String {
    let mut text = ingress_head(name, annotations.iter().copied());
    text += "spec:\n";
    if !secret.is_empty() {
        let _ = writeln!(text, "  tls: [{{ hosts: [{name}.test], secretName: {secret} }}]");
    }
    let _ = writeln!(
        text,
        "  rules:\n  - host: {name}.test\n    http:\n      paths:\n      - {{ path: /, pathType: Prefix, \
         backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}"
    );
    text
}

/// What failed, all of it.
#[derive(Default)]
struct Verdicts(Vec<String>, usize);

impl Verdicts {
    fn add(&mut self, what: &str, verdict: Result<()>) {
        self.1 += 1;
        if let Err(why) = verdict {
            self.0.push(format!("{what}: {why:#}"));
        }
    }

    fn tell(self) -> Result<()> {
        println!("annotations::tls: {} cases", self.1);
        ensure!(self.0.is_empty(), "{} of {} cases:\n{}", self.0.len(), self.1, self.0.join("\n"));
        Ok(())
    }
}

/// What is shown: nothing, a client's certificate, that of another authority, one below two intermediate ones.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Nothing,
    Ours,
    Other,
    Deep,
}
use Shown::{Deep, Nothing, Other, Ours};

type Annotations<'a> = &'a [(&'a str, &'a str)];

/// What an answer holds; `!` what it does not hold.
fn check(answer: &Answer, status: u16, text: &str) -> Result<()> {
    ensure!(answer.status == status, "{} instead of {status}\n{}", answer.status, answer.head);
    let all = format!("{}{}", answer.head, answer.body);
    match text.strip_prefix('!') {
        Some(text) => ensure!(!all.contains(text), "{text:?} is in\n{all}"),
        None => ensure!(all.contains(text), "{text:?} is not in\n{all}"),
    }
    Ok(())
}

const SMALL: &str = "ECDHE-ECDSA-AES128-GCM-SHA256";
const LARGE: &str = "ECDHE-ECDSA-AES256-GCM-SHA384";
