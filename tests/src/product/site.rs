//! nginx with the module on an nginx.conf of the tests' own: a router, a configuration endpoint, a static
//! certificate, and what a test adds.

use crate::certificate::Certificate;
use crate::client::Address;
use crate::dist;
use crate::nginx::{Configuration, Nginx};
use crate::place::{Directory, free_port};
use crate::process::signal_pid;
use crate::wait::{block_on, until};
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What stands in nginx.conf. Texts may name `$PORT`, `$TLS_PORT`, `$CONFIGURATION_PORT`, `$SOCKET` and `$DIR`.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: usize,
    pub worker_connections: usize,
    /// The module; without one nothing of ours stands in nginx.conf.
    pub module: Option<PathBuf>,
    pub zone_size: String,
    /// Of the shared memory of limits.
    pub limits_size: String,
    /// Directives outside of all blocks.
    pub main_config: String,
    pub http_config: String,
    /// In the `server` that clients use; a router when absent.
    pub config: Option<String>,
    pub location_config: String,
    /// In the configuration endpoint's location.
    pub configuration_config: String,
    pub environment: Vec<(String, PathBuf)>,
}

/// The upstream of the module, and the endpoint that is written to.
const OURS: &str = "upstream ingress {
        server 0.0.0.1;
        ingress_balancer;
        ingress_keepalive 32 requests=1000;
    }
    server {
        listen unix:$SOCKET;
        listen 127.0.0.1:$CONFIGURATION_PORT;
        location /configuration {
            ingress_configuration;
            $CONFIGURATION_CONFIG
        }
        location = /metrics {
            ingress_configuration;
        }
    }";

/// The locations of a server that the module routes.
const ROUTER: &str = "proxy_http_version 1.1;
        proxy_set_header Host $ingress_upstream_host;
        proxy_set_header Connection $ingress_connection;
        proxy_set_header ssl-client-verify $ingress_client_verify;
        proxy_set_header ssl-client-cert $ingress_client_cert;
        proxy_set_header ssl-client-subject-dn $ingress_client_subject_dn;
        proxy_set_header ssl-client-issuer-dn $ingress_client_issuer_dn;
        location / {
            ingress_router;
            proxy_pass http://ingress;
            client_max_body_size 0;
            $LOCATION_CONFIG
        }
        location @http {
            ingress_target http;
            proxy_pass http://ingress;
            $LOCATION_CONFIG
        }
        location @errors {
            ingress_error;
            proxy_pass http://ingress;
            proxy_set_header Host $best_http_host;
            proxy_set_header Connection \"\";
            proxy_set_header Content-Length $ingress_error_length;
            proxy_set_header X-Code $ingress_error_code;
            proxy_set_header X-Format $http_accept;
            proxy_set_header X-Original-URI $request_uri;
            proxy_set_header X-Namespace $namespace;
            proxy_set_header X-Ingress-Name $ingress_name;
            proxy_set_header X-Service-Name $service_name;
            proxy_set_header X-Service-Port $service_port;
            proxy_set_header X-Request-ID $req_id;
        }
        location @https {
            ingress_target https;
            proxy_pass https://ingress;
            proxy_ssl_name $host;
        }
        location @grpc {
            ingress_target grpc;
            grpc_pass grpc://ingress;
        }
        location @grpcs {
            ingress_target grpcs;
            grpc_pass grpcs://ingress;
            grpc_ssl_name $host;
        }
        location @fastcgi {
            ingress_target fastcgi;
            fastcgi_pass ingress;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
        }
        location ingress-auth {
            return 404;
            proxy_pass_request_body off;
            proxy_set_header Host $ingress_auth_host;
            proxy_set_header Connection \"\";
            proxy_set_header Content-Length \"\";
            proxy_cache $ingress_auth_cache;
            proxy_cache_key $ingress_auth_cache_key;
            proxy_cache_lock on;
            proxy_buffer_size 64k;
            proxy_buffers 4 64k;
            proxy_ignore_headers X-Accel-Redirect X-Accel-Limit-Rate X-Accel-Buffering X-Accel-Charset;
            proxy_read_timeout 2s;
            proxy_ssl_server_name on;
            proxy_ssl_name $ingress_auth_host;
            location = ingress-auth-http {
                ingress_auth http;
                proxy_pass http://ingress;
            }
            location = ingress-auth-https {
                ingress_auth https;
                proxy_pass https://ingress;
            }
        }
        location ingress-mirror {
            proxy_set_header Host $ingress_mirror_host;
            proxy_set_header CDN-Loop $ingress_cdn_loop;
            proxy_set_header X-Request-ID $req_id;
            proxy_set_header Connection \"\";
            proxy_ssl_server_name on;
            proxy_ssl_name $ingress_mirror_name;
            location = ingress-mirror-http {
                ingress_mirror http;
                proxy_pass http://ingress;
            }
            location = ingress-mirror-https {
                ingress_mirror https;
                proxy_pass https://ingress;
            }
        }";

impl Plan {
    /// A router with the module that is shipped.
    pub fn router(workers: usize) -> Result<Self> {
        Ok(Self::with_module(workers, Some(dist::module()?)))
    }

    /// A router with this module, or stock nginx.
    pub fn with_module(workers: usize, module: Option<PathBuf>) -> Self {
        Plan {
            workers,
            worker_connections: 512,
            module,
            zone_size: "4m".into(),
            limits_size: "1m".into(),
            main_config: String::new(),
            http_config: String::new(),
            config: None,
            location_config: String::new(),
            configuration_config: String::new(),
            environment: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let Plan { workers, worker_connections, zone_size, main_config, http_config, .. } = self;
        let limits_size = &self.limits_size;
        let (mut load, mut ours, mut router) = Default::default();
        if let Some(module) = &self.module {
            let zones = format!("ingress_zone ingress {zone_size};\ningress_limits {limits_size};");
            load = format!("load_module {};\n{zones}", module.display());
            ours = OURS.replace("$CONFIGURATION_CONFIG", &self.configuration_config);
            router = ROUTER.replace("$LOCATION_CONFIG", &self.location_config);
        }
        let config = self.config.as_ref().unwrap_or(&router);
        // Without reuseport idle workers take connections unevenly: tests want one on each.
        let reuseport = if *workers > 1 { " reuseport" } else { "" };
        format!(
            "{load}
daemon off;
master_process on;
worker_processes {workers};
pid $DIR/nginx.pid;
error_log $DIR/error.log notice;
{main_config}
events {{
    worker_connections {worker_connections};
}}
http {{
    access_log $DIR/access.log;
    default_type text/plain;
    {ours}
    {http_config}
    server {{
        listen 127.0.0.1:$PORT{reuseport};
        listen [::1]:$PORT{reuseport};
        listen 127.0.0.1:$TLS_PORT ssl{reuseport};
        ssl_certificate $DIR/static.pem;
        ssl_certificate_key $DIR/static.key;
        add_header X-Worker $pid always;
        {config}
    }}
}}
"
        )
    }
}

/// A running nginx with its ports.
pub struct Site {
    pub nginx: Nginx,
    /// Its configuration endpoint, on a unix socket.
    pub configuration: Configuration,
    pub http_port: u16,
    pub https_port: u16,
    /// Of the configuration endpoint on loopback TCP.
    pub configuration_port: u16,
    /// Replaces the names of this site in a text.
    fill: Box<dyn Fn(&str) -> String>,
}

impl Site {
    /// Writes another nginx.conf, for the next reload.
    pub fn write_conf(&self, plan: &Plan) -> Result<()> {
        self.nginx.write_conf(&(self.fill)(&plan.text()))
    }

    pub fn start(plan: &Plan, directory: &Directory) -> Result<Self> {
        let certificate = Certificate::new("static", &[])?;
        fs::write(directory.join("static.pem"), &certificate.chain)?;
        fs::write(directory.join("static.key"), &certificate.key)?;
        let socket = directory.join("configuration.sock");
        let environment: Vec<(&str, &Path)> =
            plan.environment.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
        // Another program may take a port between the look at it and nginx's bind.
        const TRIES: u32 = 3;
        for attempt in 1..=TRIES {
            let (http_port, https_port, configuration_port) =
                (free_port()?, free_port()?, free_port()?);
            let fill = {
                let (socket, directory) = (socket.clone(), directory.path().to_owned());
                move |text: &str| {
                    text.replace("$TLS_PORT", &https_port.to_string())
                        .replace("$CONFIGURATION_PORT", &configuration_port.to_string())
                        .replace("$PORT", &http_port.to_string())
                        .replace("$SOCKET", &socket.display().to_string())
                        .replace("$DIR", &directory.display().to_string())
                }
            };
            let text = fill(&plan.text());
            match Nginx::start_with(directory, &text, plan.workers, &environment) {
                Ok(nginx) => {
                    let configuration = Configuration::unix(socket);
                    let ports = (http_port, https_port, configuration_port);
                    return Ok(Site {
                        nginx,
                        configuration,
                        http_port: ports.0,
                        https_port: ports.1,
                        configuration_port: ports.2,
                        fill: Box::new(fill),
                    });
                }
                Err(error)
                    if attempt < TRIES && format!("{error:#}").contains("Address already") => {}
                Err(error) => return Err(error),
            }
        }
        bail!("no free ports")
    }

    /// Waits until all that is live stands in the journal.
    pub fn wait_for_journal(&self) -> Result<()> {
        until("the journal to be written", || {
            let status = block_on(self.configuration.status())?;
            ensure!(status.journal_generation == Some(status.generation), "{status:?}");
            Ok(())
        })
    }

    /// Kills master and workers at once, and starts nginx on the configuration it had; answers when it was
    /// started.
    pub fn kill_and_start(&mut self, directory: &Directory, workers: usize) -> Result<Instant> {
        let pids = self.nginx.worker_pids();
        // The master first: it would start other workers. Its own end ends them, too.
        signal_pid(self.nginx.pid(), Signal::KILL)?;
        for pid in &pids {
            let _ = signal_pid(*pid, Signal::KILL);
        }
        until("the processes to end", || {
            let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
            ensure!(!pids.iter().any(is_there), "{pids:?}");
            Ok(())
        })?;
        fs::remove_file(directory.join("configuration.sock"))?;
        let text = fs::read_to_string(directory.join("nginx.conf"))?;
        let started = Instant::now();
        self.nginx = Nginx::start(directory, &text, workers)?;
        Ok(started)
    }

    /// Where plain HTTP is served.
    pub fn http(&self) -> Address {
        Address::http(self.http_port)
    }
}
