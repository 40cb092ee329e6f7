//! Where nginx's headers are: what `configure` wrote into its Makefile says it.

use std::env;
use std::path::{Path, PathBuf};

/// What a module's source begins with.
pub const INCLUDES: &str = "#include <ngx_config.h>\n#include <ngx_core.h>\n#include <ngx_crypt.h>\n\
                            #include <ngx_http.h>\n#include <ngx_stream.h>\n";

/// The arguments of a C compiler that finds them.
pub struct Headers {
    pub arguments: Vec<String>,
}

impl Headers {
    /// Reads `NGINX_SOURCE_DIR`, an nginx source tree, and `NGINX_BUILD_DIR`, where `configure` has put `objs`; without
    /// the second it is `objs` in the first.
    pub fn find() -> Self {
        for name in ["NGINX_SOURCE_DIR", "NGINX_BUILD_DIR"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let source = env::var_os("NGINX_SOURCE_DIR").map(PathBuf::from);
        let source = source.expect("NGINX_SOURCE_DIR is nginx's source (here: make configure)");
        let objs =
            env::var_os("NGINX_BUILD_DIR").map_or_else(|| source.join("objs"), PathBuf::from);
        let [source, objs] = [source, objs].map(|path| {
            path.canonicalize().unwrap_or_else(|error| {
                panic!("{}: {error}: configure nginx first", path.display())
            })
        });
        let makefile = objs.join("Makefile");
        for file in [&makefile, &objs.join("ngx_auto_config.h")] {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        let text = std::fs::read_to_string(&makefile).unwrap_or_else(|error| {
            panic!("{}: {error}: configure nginx first", makefile.display())
        });
        Headers { arguments: arguments(&text, &source) }
    }
}

/// The folders and definitions of `CFLAGS` and `ALL_INCS`.
fn arguments(makefile: &str, source: &Path) -> Vec<String> {
    let lines = makefile.replace("\\\n", " ");
    let of = |name: &str| {
        let line = lines.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once('=').map(|(_, words)| words.to_owned()).unwrap_or_default()
    };
    let all = format!("{} {}", of("CFLAGS"), of("ALL_INCS")).replace("-I ", "-I");
    let mut arguments = Vec::new();
    for word in all.split_whitespace() {
        if let Some(folder) = word.strip_prefix("-I") {
            arguments.push(format!("-I{}", source.join(folder).display()));
        } else if word.starts_with("-D") && !word.contains(['"', '\'']) {
            arguments.push(word.to_owned());
        }
    }
    arguments
}
