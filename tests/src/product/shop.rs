//! A running product with sample endpoints and certificates, and what it is to serve.

use crate::certificate::Certificate;
use crate::client::{Address, Request, handshake, send};
use crate::controller::Controller;
use crate::endpoint::{Behaviour, Endpoint};
use crate::variables::Variables;
use crate::wait::block_on;
use anyhow::{Context, Result, ensure};

/// Presented for names without a certificate.
pub const DEFAULT_CERTIFICATE: &str = "Kubernetes Ingress Controller Fake Certificate";

/// Endpoints and certificates by the names that manifests call them, and the product.
pub struct Shop {
    pub controller: Controller,
    variables: Variables,
}

impl Shop {
    /// With these endpoints, and certificates of a name and a host.
    pub fn new(
        controller: Controller,
        endpoints: &[&str],
        certificates: &[(&str, &str)],
    ) -> Result<Self> {
        let mut variables = Variables::default();
        for name in endpoints {
            variables.endpoints.insert((*name).into(), Endpoint::start(name)?);
        }
        for (name, host) in certificates {
            variables.certificates.insert((*name).into(), Certificate::new(name, &[host])?);
        }
        Ok(Shop { controller, variables })
    }

    /// Writes a manifest and returns when it is served.
    pub fn write(&mut self, name: &str, text: &str) -> Result<()> {
        let text = self.variables.expand(text)?;
        self.controller.serve(name, &text).with_context(|| name.to_owned())
    }

    pub fn write_only(&self, name: &str, text: &str) -> Result<()> {
        self.controller.write(name, &self.variables.expand(text)?)
    }

    /// Changes what an endpoint does.
    pub fn behave(&self, endpoint: &str, behaviour: Behaviour) -> Result<()> {
        self.endpoint(endpoint)?.change(behaviour);
        Ok(())
    }

    /// Requests that an endpoint has had.
    pub fn requests(&self, endpoint: &str) -> Result<u64> {
        Ok(self.endpoint(endpoint)?.requests())
    }

    fn endpoint(&self, name: &str) -> Result<&Endpoint> {
        self.variables.endpoints.get(name).with_context(|| format!("endpoint {name}"))
    }

    /// Removes a manifest and returns when it is no longer served.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.controller.remove(name).with_context(|| name.to_owned())
    }

    /// Status and endpoint of one request on a new connection.
    pub fn get(&self, host: &str, path: &str) -> Result<(u16, Option<String>)> {
        let address = Address::http(self.controller.http_port);
        let response = block_on(send(&address, &Request::get(host, path)))?;
        Ok((response.status, response.endpoint()))
    }

    /// Fails unless this endpoint answers.
    pub fn serves(&self, host: &str, path: &str, endpoint: &str) -> Result<()> {
        let found = self.get(host, path)?;
        ensure!(found == (200, Some(endpoint.into())), "{host}{path}: {found:?}, not {endpoint}");
        Ok(())
    }

    /// Fails unless this is the status.
    pub fn answers(&self, host: &str, path: &str, status: u16) -> Result<()> {
        let found = self.get(host, path)?;
        ensure!(found.0 == status, "{host}{path}: {found:?}, not {status}");
        Ok(())
    }

    /// Fails unless the host's certificate has this common name.
    pub fn presents(&self, host: &str, name: &str) -> Result<()> {
        let found = block_on(handshake(&Address::https(self.controller.https_port, host)))?;
        ensure!(found == name, "{host} presents {found}, not {name}");
        Ok(())
    }
}
