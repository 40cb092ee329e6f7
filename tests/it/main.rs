//! The tests that run nginx, the controller and a Kubernetes API server: one program, one module a file, by what they
//! are about. tests/README.md says how a test is chosen and added.

/// Annotations and the ConfigMap, from a manifest to an answer.
mod annotations {
    mod balancing;
    mod configmap;
    mod snippets;
    mod table;
    mod tls;
}

/// Who may see a page: external authentication and client certificates.
mod auth {
    mod access;
    mod client_certificates;
    mod sign_in;
}

/// Which endpoint gets a request, and how many it gets.
mod balancing {
    mod counts;
    mod kept_connections;
    mod limits;
    mod rolling;
}

mod chart {
    mod cluster;
    mod moved;
    mod rendered;
    mod rights;
    mod schema;
    mod table;
}

/// The documentation: what it names exists, and what it shows runs.
mod docs {
    mod examples;
    mod folder;
    mod page;
    mod pages;
    mod run_example;
}

/// The controller at a real API server.
mod kubernetes {
    mod conformance;
    mod faults;
    pub mod gateway;
    mod objects;
    mod outage;
    mod status;
    mod webhook;
}

/// What the module does by itself, with or without the controller.
mod module {
    mod balancer_only;
    mod brotli;
    mod interim;
    mod lost_logs;
    mod metrics;
    mod mirror;
    mod nginx_layer;
    mod one_piece;
}

/// What an operator does to the product, and what happens to it.
mod operate {
    mod check;
    mod cold_start;
    mod commands;
    mod compare;
    mod connections;
    mod dashboard;
    mod disk;
    mod draining;
    mod kills;
    mod migrate;
    mod no_reload;
    mod pressure;
    mod upgrade;
}

/// What clients and endpoints speak.
mod protocols {
    mod changes;
    mod fastcgi;
    mod grpc;
    mod grpc_route;
    mod http2;
    mod services;
    mod session_routes;
    mod stream;
    mod tracing;
    mod uploads;
    mod websocket;
}

/// How a configuration gets into nginx and stays there.
mod publish {
    mod event_loop;
    mod failpoints;
    mod freshness;
    mod fuzz;
    mod invalid_posts;
    mod journal;
    mod one_generation;
    mod poison;
    mod refused;
    mod writers;
    mod zone;
}

/// Where a request may be sent.
mod routing {
    mod destinations;
    mod external_name;
}

/// The repository itself: its crates, and the nginx that is taken.
mod structure {
    mod crates;
    mod files;
    mod nginx_source;
    mod sizes;
    mod unsafe_code;
    mod workflows;
}

/// What one tenant can do to another.
mod tenants {
    mod bounds;
    mod hostile;
    mod hostile_values;
    mod injection;
    mod isolation;
    mod ownership;
}

mod tls {
    mod gateway;
    mod secrets;
    mod upstream_tls;
}
