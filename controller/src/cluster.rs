//! The Kubernetes cluster around this program: the way to its API server, and which pod this is.
//!
//! Errors:  a [`ClusterError`] names the flag or variable, and the remedy. That the API server does not answer is none:
//!          whoever asks it tries again.
//! Source:  ingress-nginx's controller: --kubeconfig, --apiserver-host, then what a pod has, then $KUBECONFIG.

use crate::flags::cluster::{ClusterFlags, path_of};
use http::Uri;
use k8s_openapi::api::core::v1::Node;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client};
use oxigress_objects::Key;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A pod reaches its API server at this address.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
const KUBECONFIG: &str = "KUBECONFIG";
/// Mounted into every pod that may ask the API server.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Half of it would do in a data centre; with the 50 s of a silent watch it stays within the 60 s in which a dead watch
/// is noticed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the server lets a watch last ([`oxigress_provider::kubernetes::WATCH`]), so that only silence is cut off,
/// and within the 60 s in which a dead watch is noticed.
const READ_TIMEOUT: Duration = Duration::from_secs(55);

/// The label of a Node that says its zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// So long a start waits for the Node; without the API server there is nothing else to do.
const NODE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Neither flag nor variable nor pod.
    #[error(
        "no source of objects is configured: give --manifests DIR, --kubeconfig, --apiserver-host or $KUBECONFIG; in \
         a pod the service account is used"
    )]
    Nowhere,
    /// A kubeconfig that cannot be used.
    #[error("{from} {}: {why}: name a kubeconfig that can be read", .file.display())]
    Kubeconfig {
        /// The flag or the variable.
        from: &'static str,
        /// The path of the file that was read.
        file: PathBuf,
        /// What is wrong.
        why: Box<KubeconfigError>,
    },
    /// The URL is none.
    #[error("--apiserver-host {0}: write a URL such as https://10.0.0.1:6443")]
    Host(String),
    /// A file of certificates that cannot be used.
    #[error("--certificate-authority {}: {why}: name a file of PEM certificates", .file.display())]
    Authority {
        /// The path of the file that was read.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A pod that lacks what pods have.
    #[error(
        "the pod has no usable service account ({0}): set automountServiceAccountToken, or give --kubeconfig"
    )]
    ServiceAccount(#[from] kube::config::InClusterError),
    /// The API server does not answer.
    #[error(
        "the API server at {url} does not answer: {why}: start it, or name another one with --kubeconfig or \
         --apiserver-host"
    )]
    Silent {
        /// Where it should be.
        url: String,
        /// The first cause of the error.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("the API server at {url}: {why}: correct its certificates or credentials")]
    Client {
        /// Where it is.
        url: String,
        /// What is wrong.
        why: Box<kube::Error>,
    },
}

/// A client for the API server that the flags name. Connects when it is first used.
pub async fn connect(flags: &ClusterFlags) -> Result<Client, ClusterError> {
    client(config(flags).await?)
}

/// The same, for an API server that answers now.
pub async fn reach(flags: &ClusterFlags) -> Result<Client, ClusterError> {
    let config = config(flags).await?;
    let url = config.cluster_url.to_string();
    let client = client(config)?;
    match client.apiserver_version().await {
        // What it refuses is reported by whoever asks for it.
        Ok(_) | Err(kube::Error::Api(_)) => Ok(client),
        Err(error) => Err(ClusterError::Silent { url, why: first_cause(&error) }),
    }
}

fn first_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), first_cause)
}

fn client(mut config: Config) -> Result<Client, ClusterError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|why| ClusterError::Client { url, why: Box::new(why) })
}

async fn config(flags: &ClusterFlags) -> Result<Config, ClusterError> {
    let host = flags.apiserver_host.as_str();
    let mut config = match path_of(&flags.kubeconfig) {
        Some(file) => read("--kubeconfig", file).await?,
        None if !host.is_empty() => at(host)?,
        None if std::env::var_os(IN_CLUSTER).is_some() => Config::incluster()?,
        None => match std::env::var_os(KUBECONFIG).filter(|file| !file.is_empty()) {
            Some(file) => read("$KUBECONFIG", Path::new(&file)).await?,
            None => return Err(ClusterError::Nowhere),
        },
    };
    if !host.is_empty() {
        config.cluster_url = at(host)?.cluster_url;
        if let Some(file) = path_of(&flags.certificate_authority) {
            config.root_cert = Some(authorities(file)?);
            config.root_cert_file = None;
        }
    }
    Ok(config)
}

async fn read(from: &'static str, file: &Path) -> Result<Config, ClusterError> {
    let wrong = |why| ClusterError::Kubeconfig { from, file: file.into(), why: Box::new(why) };
    let kubeconfig = Kubeconfig::read_from(file).map_err(wrong)?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong)
}

/// The API server at a URL, with the credentials of the pod if there are any and nobody can read them on the way.
fn at(host: &str) -> Result<Config, ClusterError> {
    let full = if host.contains("://") { host.into() } else { format!("http://{host}") };
    let wrong = || ClusterError::Host(host.into());
    let url: Uri = full.parse().map_err(|_| wrong())?;
    if url.authority().is_none() || !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(wrong());
    }
    let is_secret = url.scheme_str() == Some("https");
    let mut config = Config::new(url);
    if is_secret && Path::new(TOKEN).exists() {
        config.auth_info.token_file = Some(TOKEN.into());
    }
    Ok(config)
}

fn authorities(file: &Path) -> Result<Vec<Vec<u8>>, ClusterError> {
    let wrong = |why: String| ClusterError::Authority { file: file.into(), why };
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let all =
        openssl::x509::X509::stack_from_pem(&text).map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() {
        return Err(wrong("holds no certificate".into()));
    }
    let all: Result<_, _> = all.iter().map(|one| one.to_der()).collect();
    all.map_err(|error| wrong(error.to_string()))
}

/// The zone of a Node, by its label. What cannot be had in time is told and done without: all endpoints are used then.
pub async fn zone(client: &Client, node: &str) -> Option<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let asked = async {
        loop {
            match nodes.get(node).await {
                // A refusal stays one.
                Err(error @ kube::Error::Api(_)) => return Err(error.to_string()),
                Err(error) => {
                    tracing::debug!("Node {node}: {error}: asked for again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Ok(found) => {
                    let zone = found.metadata.labels.unwrap_or_default().remove(ZONE);
                    return zone.ok_or_else(|| format!("it has no label {ZONE}"));
                }
            }
        }
    };
    let found = tokio::time::timeout(NODE_TIMEOUT, asked).await;
    match found.unwrap_or_else(|_| Err("the API server does not answer".into())) {
        Ok(zone) => Some(zone),
        Err(why) => {
            let why = oxigress_core::text::line::one_line(&why);
            tracing::warn!(
                "--enable-topology-aware-routing: the zone of Node {node} is not known ({why}): name it with --zone"
            );
            None
        }
    }
}

/// The pod that this program runs in, as POD_NAMESPACE and POD_NAME say; none: it runs in no pod.
pub fn pod() -> Option<Key> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    Some(Key::new(variable("POD_NAMESPACE")?, variable("POD_NAME")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_url_and_http_without_a_scheme() {
        assert_eq!(at("https://10.0.0.1:6443").unwrap().cluster_url, "https://10.0.0.1:6443/");
        assert_eq!(at("localhost:8001").unwrap().cluster_url, "http://localhost:8001/");
        for host in ["ftp://a", "https://", "a b"] {
            assert!(at(host).is_err(), "{host}");
        }
    }

    #[test]
    fn authorities_are_certificates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = authorities(file.path()).unwrap_err().to_string();
        assert!(error.contains("--certificate-authority"), "{error}");
    }
}
