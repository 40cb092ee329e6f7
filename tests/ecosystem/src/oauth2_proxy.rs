//! oauth2-proxy by its documented annotations: from a page that is not open to the page, over an OpenID Connect provider.
//!
//! The provider is a fake, of oauth2-proxy's authors: mockoidc lets everybody in without a form.

use crate::browser::{Browser, Step};
use crate::program::Start;
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::network::pod_address;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::Process;
use oxigress_tests::wait::{block_on, until};
use std::net::SocketAddr;

const HOST: &str = "app.test";
/// Whom mockoidc says everybody is.
const EMAIL: &str = "jane.doe@example.com";
const CLIENT: [&str; 2] = ["oxigress", "the-secret-of-the-client"];

/// The pair of Ingresses of oauth2-proxy's guide for ingress-nginx.
const INGRESSES: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: app
  annotations:
    nginx.ingress.kubernetes.io/auth-url: https://$host/oauth2/auth
    nginx.ingress.kubernetes.io/auth-signin: https://$host/oauth2/start?rd=$escaped_request_uri
    nginx.ingress.kubernetes.io/auth-response-headers: X-Auth-Request-User, X-Auth-Request-Email
spec:
  ingressClassName: $CLASS
  tls: [{hosts: [app.test], secretName: app}]
  rules:
    - host: app.test
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: app, port: {number: 80}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: oauth2-proxy}
spec:
  ingressClassName: $CLASS
  tls: [{hosts: [app.test], secretName: app}]
  rules:
    - host: app.test
      http: {paths: [{path: /oauth2, pathType: Prefix, backend: {service: {name: oauth2-proxy, port: {number: 80}}}}]}
";

pub fn run(directory: &Directory) -> Result<Vec<String>> {
    let site = Site::start("oauth2-proxy", directory, &[])?;
    let issuer = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let _provider =
        Start::new("mockoidc")?.args([&issuer.to_string(), CLIENT[0], CLIENT[1]]).run(directory)?;
    let metadata = "/oidc/.well-known/openid-configuration";
    answers(issuer, metadata, 200).context("mockoidc")?;
    let address = SocketAddr::from((pod_address(), 4180));
    let _proxy = start(directory, address, issuer)?;
    answers(address, "/ping", 200).context("oauth2-proxy")?;
    let page = site.tenant.pod("app")?;
    site.secret("app", HOST)?;
    site.service("app", page.address)?;
    site.service("oauth2-proxy", address)?;
    site.tenant.apply(INGRESSES)?;
    site.tenant.settle(&site.controller)?;
    sign_in(&format!("http://{issuer}"))
}

fn start(directory: &Directory, address: SocketAddr, issuer: SocketAddr) -> Result<Process> {
    let flags = [
        "--provider=oidc".into(),
        format!("--oidc-issuer-url=http://{issuer}/oidc"),
        format!("--client-id={}", CLIENT[0]),
        format!("--client-secret={}", CLIENT[1]),
        "--code-challenge-method=S256".into(),
        format!("--redirect-url=https://{HOST}/oauth2/callback"),
        "--cookie-secret=0123456789abcdef0123456789abcdef".into(),
        "--email-domain=*".into(),
        format!("--http-address={address}"),
        "--reverse-proxy=true".into(),
        "--trusted-proxy-ip=0.0.0.0/0".into(),
        "--set-xauthrequest=true".into(),
        "--upstream=static://202".into(),
    ];
    Start::new("oauth2-proxy")?.args(flags).run(directory)
}

fn answers(address: SocketAddr, target: &str, status: u16) -> Result<()> {
    until(target, || {
        let answer = block_on(send(&Address::Tcp(address), &Request::get("localhost", target)))?;
        ensure!(answer.status == status, "{answer}");
        Ok(())
    })
}

fn sign_in(provider: &str) -> Result<Vec<String>> {
    let wanted = format!("https://{HOST}/private?page=1&of=2");
    let mut browser = Browser::default();
    let steps = browser.follow(&wanted)?;
    let seen: Vec<_> = steps.iter().map(told).collect();
    let starts = [
        (302, wanted.clone()),
        (302, format!("https://{HOST}/oauth2/start?rd=%2Fprivate%3Fpage")),
        (302, format!("{provider}/oidc/authorize?")),
        (302, format!("https://{HOST}/oauth2/callback?code=")),
        (200, wanted.clone()),
    ];
    ensure!(steps.len() == starts.len(), "not the way to the page: {seen:#?}");
    for (step, (status, start)) in steps.iter().zip(&starts) {
        let is_right = step.answer.status == *status && step.url.starts_with(start);
        ensure!(is_right, "{} is not {status} {start}: {seen:#?}", told(step));
    }
    let page = steps.last().context("a page")?.answer.text();
    ensure!(page.contains(&format!("x-auth-request-email: {EMAIL}")), "{page}");
    ensure!(page.contains("x-auth-request-user: "), "{page}");
    // What the browser itself claims to be is not told to the page.
    let again = browser.get(&wanted)?;
    ensure!(again.answer.status == 200, "signed in, and asked again: {}", told(&again));
    let other = Browser::default().get(&wanted)?;
    ensure!(other.answer.status == 302, "another browser: {}", told(&other));
    let out = browser.get(&format!("https://{HOST}/oauth2/sign_out"))?;
    let after = browser.get(&wanted)?;
    ensure!(after.answer.status == 302, "after {}: {}", told(&out), told(&after));
    Ok(vec![
        "`auth-url`, `auth-signin` and `auth-response-headers` of its guide".into(),
        "302 to `/oauth2/start`, 302 to the provider, 302 to `/oauth2/callback`, 302 to the page"
            .into(),
        format!("the page got `X-Auth-Request-User` and `X-Auth-Request-Email: {EMAIL}`"),
        "another browser, and the same one after `/oauth2/sign_out`: 302".into(),
    ])
}

fn told(step: &Step) -> String {
    format!("{} {}", step.answer.status, step.url)
}
