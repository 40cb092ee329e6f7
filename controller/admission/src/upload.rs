//! The body of a request, read in two parts: its beginning, and all of it.

use super::{Refusal, head};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// What has been read of a body.
pub struct Upload {
    body: Incoming,
    bytes: Vec<u8>,
}

impl Upload {
    /// A body of which nothing has been read.
    pub fn new(body: Incoming) -> Self {
        Upload { body, bytes: Vec::new() }
    }

    /// What has been read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads on until there is enough for the beginning of a review, or no more.
    pub async fn begin(&mut self) -> Result<(), Refusal> {
        while self.bytes.len() < head::BYTES {
            match self.next().await? {
                Some(part) => self.bytes.extend_from_slice(&part),
                None => break,
            }
        }
        Ok(())
    }

    /// The whole body. One of more than `most` bytes is refused, at once or when it `ends` only.
    pub async fn read(mut self, most: usize, ends: bool) -> Result<Vec<u8>, Refusal> {
        while self.bytes.len() <= most {
            match self.next().await? {
                Some(part) => self.bytes.extend_from_slice(&part),
                None => return Ok(self.bytes),
            }
        }
        if ends {
            self.skip().await?;
        }
        Err(Refusal::TooLarge)
    }

    /// Reads what is left, and keeps none of it.
    pub async fn skip(mut self) -> Result<(), Refusal> {
        self.bytes = Vec::new();
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// The next part of the body.
    async fn next(&mut self) -> Result<Option<hyper::body::Bytes>, Refusal> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| Refusal::Broken(error.to_string()))?;
            // Trailers say nothing here.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}
