//! Instructions per full TLS handshake: a name of 10,000 in the store, against one certificate in nginx.conf.

use crate::bench::Bench;
use crate::conf::Route;
use crate::instructions::{fill, start};
use crate::report::{Table, percent, thousands};
use crate::snapshot::{self, host};
use anyhow::{Context, Result, ensure};
use openssl::ssl::{SslConnector, SslMethod, SslSessionCacheMode, SslVerifyMode};
use oxigress_core::model;
use oxigress_tests::certificate::{Certificate, common_name};
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};

const NAMES: usize = 10_000;
/// Each takes milliseconds to be checked under valgrind, so ten names share one.
const CERTIFICATES: usize = 1_000;
/// Pairs that are made; a divisor of [`CERTIFICATES`], whose records they are in turn.
const PAIRS: usize = 20;
const HANDSHAKES: usize = 60;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let (fixed, _) = count(bench, "tls-static", Route::Static)?;
    let (many, first) = count(bench, "tls-10000", Route::Router)?;
    table.row("TLS handshake, stock nginx, one static certificate", thousands(fixed));
    table
        .row("TLS handshake, 10,000 names of 1,000 certificates", thousands(many))
        .peer(format!("{} ({})", percent(many / fixed), thousands(many - fixed)))
        .budget("+ 1 %", many <= 1.01 * fixed);
    table.row("the same, first of its name in a worker: parses", thousands(first)).peer(format!(
        "{} ({})",
        percent(first / fixed),
        thousands(first - fixed)
    ));
    table.note("handshakes: TLS 1.3, ECDSA P-256, no resumption, accept and close included");
    Ok(())
}

/// Instructions per handshake for names that were asked for before, and for names that were not.
fn count(bench: &Bench, name: &str, route: Route) -> Result<(f64, f64)> {
    let (mut callgrind, ports, folder) = start(bench, name, route, true)?;
    if route.has_store() {
        let pairs = (0..PAIRS).map(|number| {
            let made = Certificate::new(&format!("pair-{number}"), &["*.bench.test"])?;
            Ok(model::Certificate { chain: made.chain, key: made.key })
        });
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        let mut snapshot = snapshot::hosts(1, 1, &bench.endpoints, 0)?;
        snapshot::certify(&mut snapshot, NAMES, CERTIFICATES, &pairs)?;
        fill(&folder, &snapshot::whole(snapshot)?)?;
    }
    let client = Client::new(ports.https)?;
    let shake = |hosts: std::ops::Range<usize>| -> Result<()> {
        for number in hosts {
            let shown = client.shake(&host(number))?;
            let expected = match route.has_store() {
                true => format!("pair-{}", number % PAIRS),
                false => "static".into(),
            };
            ensure!(shown == expected, "{}: certificate {shown}, not {expected}", host(number));
        }
        Ok(())
    };
    callgrind.begin()?;
    shake(100..104)?;
    let profile = |part| bench.profiles.join(format!("{name}{part}.callgrind"));
    let first = callgrind.count(&profile("-first"), || shake(0..HANDSHAKES))?;
    let again = callgrind.count(&profile(""), || shake(0..HANDSHAKES))?;
    callgrind.stop()?;
    Ok((again as f64 / HANDSHAKES as f64, first as f64 / HANDSHAKES as f64))
}

/// A client that never resumes.
pub struct Client {
    connector: SslConnector,
    port: u16,
}

impl Client {
    /// For a port on loopback.
    pub fn new(port: u16) -> Result<Self> {
        let mut builder = SslConnector::builder(SslMethod::tls_client())?;
        builder.set_verify(SslVerifyMode::NONE);
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        Ok(Client { connector: builder.build(), port })
    }

    /// One handshake, ended in good order; answers the common name of the certificate.
    pub fn shake(&self, name: &str) -> Result<String> {
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        tcp.set_nodelay(true)?;
        let mut configuration = self.connector.configure()?;
        configuration.set_verify_hostname(false);
        let mut stream = configuration.connect(name, tcp).context("TLS handshake")?;
        let certificate = stream.ssl().peer_certificate().context("no certificate")?;
        stream.shutdown()?;
        // The server's end, so that its work for this connection is done.
        let _ = stream.get_mut().read_to_end(&mut Vec::new());
        Ok(common_name(&certificate))
    }
}
