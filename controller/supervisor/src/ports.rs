//! Whether nginx can have its ports, asked before it starts.
//!
//! nginx itself would not tell: it listens with SO_REUSEPORT, and so gets a port that another such program
//! of the same user has already, and then a part of that program's connections.

use crate::options::Ports;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::time::Instant;

/// How often a busy port is tried.
const PAUSE: Duration = Duration::from_millis(50);

/// Why nginx is not started.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Another program listens on the port.
    #[error("port {port} is in use: stop the program that listens there, or choose another {flag}")]
    Busy {
        /// The port that the flag names.
        port: u16,
        /// The flag that names it.
        flag: &'static str,
    },
    /// Two listeners cannot have one port.
    #[error("{first} and {flag} both name port {port}: choose another port for one of them")]
    Twice {
        /// The port that the flag names.
        port: u16,
        /// The flag that names the port first.
        first: &'static str,
        /// The flag that names the same port again.
        flag: &'static str,
    },
    /// Mostly that a port below 1024 needs a privilege.
    #[error("port {port} cannot be opened: {error}: choose another {flag}")]
    Refused {
        /// The port that the flag names.
        port: u16,
        /// The flag that names it.
        flag: &'static str,
        /// The error of the system call.
        error: io::Error,
    },
}

/// Looks at each port once; while one is busy, again and again for `timeout`.
pub async fn check(ports: &Ports, has_ipv6: bool, timeout: Duration) -> Result<(), PortError> {
    if let Some((port, first, flag)) = ports.named_twice() {
        return Err(PortError::Twice { port, first, flag });
    }
    let deadline = Instant::now() + timeout;
    for (port, flag) in ports.nginx.iter().copied() {
        while let Err(error) = open(port, has_ipv6) {
            if error.kind() != ErrorKind::AddrInUse {
                return Err(PortError::Refused { port, flag, error });
            }
            if Instant::now() >= deadline {
                return Err(PortError::Busy { port, flag });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Binds and does not listen: nobody gets a connection that is then reset. SO_REUSEADDR, so connections
/// that are ending are not in the way; no SO_REUSEPORT, so every listener is.
fn open(port: u16, has_ipv6: bool) -> io::Result<()> {
    let bind = |socket: TcpSocket, address: IpAddr| {
        socket.set_reuseaddr(true)?;
        socket.bind((address, port).into())
    };
    bind(TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into())?;
    match has_ipv6 {
        true => bind(TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn ports(http: u16, https: u16) -> Ports {
        let own = vec![(10254, "--healthz-port")];
        Ports { nginx: vec![(http, "--http-port"), (https, "--https-port")], own }
    }

    fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn a_busy_port_is_named_with_its_flag() {
        let (_http, http) = listener();
        let (free, https) = listener();
        drop(free);
        let error = check(&ports(http, https), false, Duration::ZERO).await.unwrap_err();
        let expected = format!(
            "port {http} is in use: stop the program that listens there, or choose another --http-port"
        );
        assert_eq!(error.to_string(), expected);
        let error = check(&ports(https, http), false, Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().ends_with("another --https-port"), "{error}");
    }

    #[tokio::test]
    async fn a_port_that_two_flags_name_is_told_before_anything_is_opened() {
        let error = check(&ports(81, 81), false, Duration::ZERO).await.unwrap_err();
        let expected =
            "--http-port and --https-port both name port 81: choose another port for one of them";
        assert_eq!(error.to_string(), expected);
        let error = check(&ports(10254, 81), false, Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().starts_with("--healthz-port and --http-port both"), "{error}");
    }

    #[tokio::test]
    async fn a_port_that_gets_free_in_time_is_waited_for() {
        let (busy, http) = listener();
        let (free, https) = listener();
        drop(free);
        let ports = ports(http, https);
        let check = check(&ports, false, Duration::from_secs(20));
        let release = async {
            tokio::time::sleep(PAUSE).await;
            drop(busy);
        };
        assert!(tokio::join!(check, release).0.is_ok());
    }

    #[tokio::test]
    async fn connections_that_are_ending_are_not_in_the_way() {
        let (listener, http) = listener();
        let client = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, http)).unwrap();
        // This side closes first, so TIME_WAIT stays with it.
        drop(listener.accept().unwrap());
        drop((listener, client));
        let (free, https) = self::listener();
        drop(free);
        assert!(check(&ports(http, https), false, Duration::ZERO).await.is_ok());
    }
}
