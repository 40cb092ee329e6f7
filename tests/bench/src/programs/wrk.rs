//! The load generator `wrk`, and what it says.

use crate::snapshot::HOST;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// What a run of `wrk` came to.
#[derive(Debug)]
pub struct Wrk {
    pub rate: f64,
    pub count: f64,
    /// Latencies, as wrk writes them.
    pub p50: String,
    pub p90: String,
    pub p99: String,
}

impl Wrk {
    /// Sends requests over so many connections for so long. Anything but 200 is an error.
    pub fn run(port: u16, connections: usize, seconds: u32) -> Result<Self> {
        let output = Command::new("wrk")
            .args(["-t1", "--latency"])
            .arg(format!("-c{connections}"))
            .arg(format!("-d{seconds}s"))
            .args(["-H", &format!("Host: {HOST}")])
            .arg(format!("http://127.0.0.1:{port}/"))
            .output()
            .context("wrk (Debian's package wrk)")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "wrk: {}", String::from_utf8_lossy(&output.stderr));
        for bad in ["Non-2xx", "Socket errors"] {
            ensure!(!text.contains(bad), "{text}");
        }
        Self::parse(&text)
    }

    fn parse(wrk: &str) -> Result<Self> {
        let after = |name: &str| {
            let line = wrk.lines().find_map(|line| line.trim().strip_prefix(name));
            line.map(|rest| rest.trim().to_owned()).with_context(|| format!("{name} in: {wrk}"))
        };
        let count = wrk.lines().find_map(|line| line.trim().split_once(" requests in "));
        Ok(Wrk {
            rate: after("Requests/sec:")?.parse()?,
            count: count.with_context(|| format!("requests in: {wrk}"))?.0.parse()?,
            p50: after("50%")?,
            p90: after("90%")?,
            p99: after("99%")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_is_understood() {
        let text = "Running 1s test @ http://127.0.0.1:1/\n  Latency Distribution\n     50%    1.20ms\n     \
                    75%    1.30ms\n     90%    1.40ms\n     99%    2.50ms\n  \
                    20000 requests in 1.00s, 4MB read\nRequests/sec:  20000.10\nTransfer/sec: 4MB\n";
        let wrk = Wrk::parse(text).unwrap();
        assert_eq!((wrk.rate, wrk.count), (20_000.1, 20_000.0));
        assert_eq!([&*wrk.p50, &*wrk.p90, &*wrk.p99], ["1.20ms", "1.40ms", "2.50ms"]);
    }
}
