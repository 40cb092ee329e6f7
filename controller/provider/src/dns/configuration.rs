//! resolv.conf: who is asked, and for which names.
//!
//! Source:  resolv.conf(5) of glibc: the last `search` or `domain` counts, options may stand anywhere and in
//!          several lines. `nameserver [ADDRESS]:PORT` is OpenBSD's.
//! Errors:  none; a line that cannot be read is left out, as glibc does.
//! Units:   what the file does not say is as ingress-nginx has it: ndots 1, 2 s for an answer, 5 tries.

use oxigress_objects::service::external_name::{DnsName, MAX_NAME_BYTES};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const PORT: u16 = 53;
/// glibc's MAXNS, so that a file means the same to all who read it.
const MAX_SERVERS: usize = 3;
/// The bounds that glibc has for the options of resolv.conf.
const MAX_NDOTS: usize = 15;
const MAX_TIMEOUT_SECONDS: u64 = 30;
const MAX_ATTEMPTS: usize = 5;
/// Search domains that are used; more would only cost queries.
const MAX_SEARCH: usize = 32;

/// The settings of one resolv.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// In the order they are asked.
    pub servers: Vec<SocketAddr>,
    /// Domains that are put behind names, without dots at their ends.
    pub search: Vec<String>,
    /// A name with fewer dots is tried with the search domains first.
    pub ndots: usize,
    /// How long one server may take for an answer.
    pub timeout: Duration,
    /// How often a server is asked.
    pub attempts: usize,
    /// Ask with EDNS, for longer answers over UDP.
    pub edns0: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Configuration {
            servers: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(2),
            attempts: 5,
            edns0: false,
        }
    }
}

impl Configuration {
    /// Reads the text of a resolv.conf; what is unknown is skipped.
    pub fn parse(text: &str) -> Self {
        let mut configuration = Configuration::default();
        let mut servers = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => servers.extend(words.next().and_then(server)),
                Some("search" | "domain") => {
                    let domains = words.map(|word| word.trim_end_matches('.').to_ascii_lowercase());
                    let domains = domains.filter(|domain| DnsName::parse(domain).is_ok());
                    configuration.search = domains.take(MAX_SEARCH).collect();
                }
                Some("options") => words.for_each(|word| configuration.option(word)),
                _ => {}
            }
        }
        servers.truncate(MAX_SERVERS);
        if !servers.is_empty() {
            configuration.servers = servers;
        }
        configuration
    }

    fn option(&mut self, word: &str) {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        match (name, value.parse::<u64>()) {
            ("ndots", Ok(n)) => {
                self.ndots = usize::try_from(n).map_or(MAX_NDOTS, |n| n.min(MAX_NDOTS))
            }
            ("timeout", Ok(n)) => {
                self.timeout = Duration::from_secs(n.clamp(1, MAX_TIMEOUT_SECONDS))
            }
            ("attempts", Ok(n)) => {
                self.attempts =
                    usize::try_from(n).map_or(MAX_ATTEMPTS, |n| n.clamp(1, MAX_ATTEMPTS));
            }
            ("edns0", _) => self.edns0 = true,
            _ => {}
        }
    }

    /// The full names that `name` may mean, in the order they are tried, each with a dot at its end.
    pub fn candidates(&self, name: &DnsName) -> Vec<String> {
        let name = name.as_str();
        if name.ends_with('.') {
            return vec![name.into()];
        }
        let bare = std::iter::once(format!("{name}."));
        let searched = self.search.iter().map(|domain| format!("{name}.{domain}."));
        let searched = searched.filter(|full| full.len() <= MAX_NAME_BYTES + 1);
        match name.bytes().filter(|b| *b == b'.').count() < self.ndots {
            true => searched.chain(bare).collect(),
            false => bare.chain(searched).collect(),
        }
    }
}

fn server(word: &str) -> Option<SocketAddr> {
    if let Some((address, port)) = word.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        return Some(SocketAddr::new(
            address.parse().ok()?,
            port.parse().ok().filter(|p| *p != 0)?,
        ));
    }
    // A zone such as `%eth0` cannot be told to the library; without it the address still works where
    // there is one interface.
    let address = word.split('%').next().unwrap_or(word);
    Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(text: &str, name: &str) -> Vec<String> {
        Configuration::parse(text).candidates(&DnsName::parse(name).unwrap())
    }

    #[test]
    fn options_count_wherever_they_stand() {
        let read = Configuration::parse("options edns0 ndots:5\noptions timeout:7 attempts:1\n");
        assert_eq!((read.ndots, read.edns0, read.attempts), (5, true, 1));
        assert_eq!(read.timeout, Duration::from_secs(7));
        assert_eq!(Configuration::parse("options ndots:99 ndots: timeout:0").ndots, 15);
    }

    #[test]
    fn the_last_search_line_counts_and_a_comment_says_nothing() {
        let text = "# search a.test\n;search b.test\nsearch c.test d.test.\ndomain E.test -x\n";
        assert_eq!(Configuration::parse(text).search, ["e.test"]);
    }

    #[test]
    fn servers_have_addresses_and_may_have_ports() {
        let text = "nameserver 10.0.0.1\nnameserver x\nnameserver [::1]:5353\nnameserver fe80::1%eth0\nnameserver 10.0.0.9\n";
        let servers: Vec<_> =
            ["10.0.0.1:53", "[::1]:5353", "[fe80::1]:53"].map(|a| a.parse().unwrap()).into();
        assert_eq!(Configuration::parse(text).servers, servers);
        assert_eq!(Configuration::parse("").servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn few_dots_mean_the_search_domains_come_first() {
        let text = "search ns.svc.test svc.test\noptions ndots:2\n";
        assert_eq!(candidates(text, "db.x"), ["db.x.ns.svc.test.", "db.x.svc.test.", "db.x."]);
        assert_eq!(candidates(text, "a.b.c"), ["a.b.c.", "a.b.c.ns.svc.test.", "a.b.c.svc.test."]);
        assert_eq!(candidates(text, "db."), ["db."]);
        let long = format!("{}a", "a.".repeat(125));
        assert_eq!(candidates(text, &long), [format!("{long}.")]);
    }
}
