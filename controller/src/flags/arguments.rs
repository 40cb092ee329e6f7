//! What the program was started with.

use std::ffi::OsString;

/// The program ingress-nginx's manifests name.
const REFERENCE: &str = "/nginx-ingress-controller";

/// The arguments of this process. The entry point of ingress-nginx's image executes its first argument, so a pod's
/// arguments begin with a program there; the entry point of ours is this program.
pub fn arguments() -> impl Iterator<Item = OsString> {
    without_program(std::env::args_os())
}

fn without_program(all: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    all.enumerate().filter(|(at, text)| *at != 1 || text != REFERENCE).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_a_pod_of_ingress_nginx_mean_the_same() {
        let left =
            |all: &[&str]| without_program(all.iter().map(OsString::from)).collect::<Vec<_>>();
        assert_eq!(
            left(&["oxigress", REFERENCE, "--http-port=81"]),
            ["oxigress", "--http-port=81"]
        );
        assert_eq!(left(&["oxigress", "nginx", REFERENCE]), ["oxigress", "nginx", REFERENCE]);
        assert_eq!(left(&[REFERENCE, "--http-port=81"]), [REFERENCE, "--http-port=81"]);
    }
}
