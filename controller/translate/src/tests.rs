//! Tests of the translation as a whole, and the worlds and options that tests of its parts need.

mod fuzz;
mod properties;

use crate::HostOwnership;
use crate::Options;
use oxigress_objects::document::{self, Found};
use oxigress_objects::{Changed, Key, World};

/// A world of manifests, all of which can be read.
pub fn world(manifests: &str) -> World {
    let mut world = World::default();
    for document in document::read(manifests, false) {
        for found in document.found.unwrap() {
            let Found::Object(id, object) = found else { panic!("document {}", document.number) };
            world.apply((id, Some(object)), &mut Changed::default());
        }
    }
    world
}

/// Reads the flags that decide about translation, as people write them.
pub fn options(flags: &str) -> Options {
    let mut options = Options::default();
    for flag in flags.split_whitespace() {
        let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
        match name {
            "--annotations-prefix" => options.annotations_prefix = value.into(),
            "--configmap" => options.configmap = Key::parse(value),
            "--deep-inspect" => options.deep_inspect = value == "true",
            "--disable-catch-all" => options.disable_catch_all = value == "true",
            "--disable-full-test" => options.disable_full_test = value == "true",
            "--enable-ssl-passthrough" => options.ssl_passthrough = value == "true",
            "--host-ownership" if value == "strict" => {
                options.host_ownership = HostOwnership::Strict;
            }
            "--host-ownership" if value == "shared" => {
                options.host_ownership = HostOwnership::Shared;
            }
            "--tcp-services-configmap" => options.tcp_services_configmap = Key::parse(value),
            "--watch-namespace" => options.watch_namespace = Some(value.into()),
            _ => panic!("{flag} decides nothing here"),
        }
    }
    options
}
