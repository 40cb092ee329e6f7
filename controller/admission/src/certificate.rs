//! The webhook's certificate, read again when its files change.
//!
//! Kubernetes changes a mounted Secret by exchanging one link, `..data`, in the folder of the files; cert-manager's and
//! people's ways differ, so whatever happens in the folders is a reason to read.
//!
//! Errors:  at start fatal; later the pair of before stays in use, with a line in the log.

use inotify::EventStream;
use openssl::pkey::PKey;
use openssl::ssl::{AlpnError, SslAcceptor, SslContext, SslMethod, SslVersion, select_next_proto};
use openssl::x509::X509;
use oxigress_net::changes;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::StreamExt;

/// Files are read again after this time all the same: a folder may have been replaced whole.
const LOOK: Duration = Duration::from_secs(60);
/// A longer file is refused.
const MAX_BYTES: u64 = 128 << 10;

/// Why a pair cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{flag} {}: {error}", path.display())]
    File {
        /// The flag that names the file.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// Its content is not what it should be.
    #[error("{flag} {}: {why}: write it anew", path.display())]
    Content {
        /// The flag that names the file.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with its content.
        why: String,
    },
    /// OpenSSL fails.
    #[error("the TLS of --validating-webhook cannot be set up: {0}")]
    Tls(#[from] openssl::error::ErrorStack),
}

/// Where certificate and key are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The chain, its leaf first.
    pub certificate: PathBuf,
    /// The private key of the leaf.
    pub key: PathBuf,
}

const CERTIFICATE: &str = "--validating-webhook-certificate";
const KEY: &str = "--validating-webhook-key";

impl Files {
    /// The pair as it is now: TLS 1.2 and 1.3, HTTP/1.1.
    pub fn load(&self) -> Result<SslContext, CertificateError> {
        let content = |flag, path: &Path, why: &str| CertificateError::Content {
            flag,
            path: path.into(),
            why: why.into(),
        };
        let chain = read(CERTIFICATE, &self.certificate)?;
        let key = read(KEY, &self.key)?;
        let mut chain = X509::stack_from_pem(&chain).unwrap_or_default().into_iter();
        let leaf = chain.next();
        let leaf =
            leaf.ok_or_else(|| content(CERTIFICATE, &self.certificate, "has no certificate"))?;
        let key = PKey::private_key_from_pem(&key);
        let key = key.map_err(|_| content(KEY, &self.key, "has no private key"))?;
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
        acceptor.set_min_proto_version(Some(SslVersion::TLS1_2))?;
        acceptor.set_certificate(&leaf)?;
        for authority in chain {
            acceptor.add_extra_chain_cert(authority)?;
        }
        let is_pair = acceptor.set_private_key(&key).and_then(|()| acceptor.check_private_key());
        is_pair.map_err(|_| {
            let why = format!("does not belong to {CERTIFICATE} {}", self.certificate.display());
            content(KEY, &self.key, &why)
        })?;
        acceptor.set_alpn_select_callback(|_, offered| {
            select_next_proto(b"\x08http/1.1", offered).ok_or(AlpnError::NOACK)
        });
        Ok(acceptor.build().into_context())
    }

    /// What decides whether there is something new; None: a file cannot be read.
    fn bytes(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((read(CERTIFICATE, &self.certificate).ok()?, read(KEY, &self.key).ok()?))
    }

    /// Folders where something happens when the files change: those of the paths, and those that links lead to.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let paths = [&self.certificate, &self.key].into_iter();
        let real = paths.clone().filter_map(|path| path.canonicalize().ok());
        let folders = paths.cloned().chain(real).filter_map(|path| {
            let folder = path.parent()?;
            Some(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.into() })
        });
        folders.collect()
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, CertificateError> {
    let wrong = |error| CertificateError::File { flag, path: path.into(), error };
    let mut file = std::fs::File::open(path).map_err(wrong)?;
    let mut bytes = Vec::new();
    let mut limited = io::Read::take(&mut file, MAX_BYTES + 1);
    io::Read::read_to_end(&mut limited, &mut bytes).map_err(wrong)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(wrong(io::Error::other(format!("has more than {MAX_BYTES} bytes")))),
        false => Ok(bytes),
    }
}

/// Sends the newest usable pair whenever the files change, until nobody listens.
pub async fn follow(files: Files, newest: watch::Sender<SslContext>) {
    let mut watch = Watch::new();
    // What was read before the watch began may have changed since.
    let mut last = None;
    while !newest.is_closed() {
        watch.renew(&files);
        let bytes = files.bytes();
        if last.as_ref() != Some(&bytes) {
            match files.load() {
                Ok(context) => {
                    if last.is_some() {
                        tracing::info!("admission: reloaded {}", files.certificate.display());
                    }
                    newest.send_replace(context);
                }
                Err(error) => tracing::warn!(
                    "admission: cannot reload: {}; the previous certificate stays in use",
                    oxigress_core::text::line::one_line(&error.to_string())
                ),
            }
            last = Some(bytes);
        }
        watch.next().await;
    }
}

/// inotify on the folders; where it cannot be had, the clock alone.
struct Watch(Option<EventStream<Vec<u8>>>);

impl Watch {
    fn new() -> Self {
        let events = changes::events(4096);
        if let Err(error) = &events {
            tracing::warn!(
                "admission: cannot watch the certificate: {error}; it is read once a minute"
            );
        }
        Watch(events.ok())
    }

    /// Watches where the files are now; repeating it is harmless.
    fn renew(&mut self, files: &Files) {
        let Some(events) = &mut self.0 else { return };
        for folder in files.folders() {
            // A folder that is gone is looked for again later.
            let _ = events.watches().add(folder, changes::IN_A_FOLDER);
        }
    }

    async fn next(&mut self) {
        let events = self.0.as_mut();
        let event = async {
            match events {
                Some(events) => drop(events.next().await),
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(LOOK, event).await;
    }
}
