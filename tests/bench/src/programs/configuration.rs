//! The configuration endpoint, as the controller uses it: one kept connection, `If-Match` on deltas.

use crate::http::{Answer, Client};
use anyhow::{Context, Result, ensure};
use oxigress_core::wire::native::Status;
use oxigress_tests::wait;
use std::path::Path;

/// A writer and the generation it knows.
pub struct Configuration {
    client: Client,
    tag: String,
}

impl Configuration {
    /// Connects. nginx opens its listeners one after the other, slowly under valgrind: this one may come
    /// after the one that was waited for.
    pub fn open(socket: &Path) -> Result<Self> {
        let client = wait::until("the configuration endpoint", || Client::unix(socket))?;
        Ok(Configuration { client, tag: String::new() })
    }

    /// Sends the whole; returns when it is live.
    pub fn put(&mut self, body: &[u8]) -> Result<()> {
        let answer = self.client.send_json("PUT", "/configuration", None, body)?;
        self.keep(answer)
    }

    /// As [`Self::put`], with pauses, so that each callback of nginx is followed by a wait.
    pub fn put_slowly(&mut self, body: &[u8]) -> Result<()> {
        self.client.set_slow(true);
        let put = self.put(body);
        self.client.set_slow(false);
        put
    }

    /// Sends a delta; returns when it is live.
    pub fn patch(&mut self, body: &[u8]) -> Result<()> {
        let answer = self.client.send_json("PATCH", "/configuration", Some(&self.tag), body)?;
        self.keep(answer)
    }

    fn keep(&mut self, answer: Answer) -> Result<()> {
        let said = || String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status == 200, "the write is answered with {}: {}", answer.status, said());
        self.tag = answer.etag.context("no ETag")?;
        Ok(())
    }

    /// What the store says of itself.
    pub fn status(&mut self) -> Result<Status> {
        let answer = self.client.get_ok("localhost", "/configuration")?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Bytes of the zone in use once replaced records are freed.
    pub fn used_bytes(&mut self) -> Result<u64> {
        let mut last = None;
        loop {
            let status = self.status()?;
            let used = status.capacity_bytes - status.free_bytes;
            if last == Some(used) {
                return Ok(used);
            }
            last = Some(used);
            // Longer than a worker's tick, which frees.
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
    }
}
