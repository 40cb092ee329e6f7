//! An endpoint set's record.
//!
//! Layout: `count u32`, then per endpoint 24 bytes: `address [16]`, `port u16`, `family u8` (4 or 6),
//! `name_length u8`, `name_offset u32`; then the names, `address:port` as nginx logs them.

use super::{length, u16_at, u32_at};
use crate::model::EndpointSet;
use std::net::{IpAddr, SocketAddr};

const ENTRY: usize = 24;

/// The record's value of an endpoint set.
pub fn encode_endpoints(set: &EndpointSet) -> Vec<u8> {
    let endpoints = set.as_slice();
    let mut value = length(endpoints.len()).to_le_bytes().to_vec();
    let mut names = Vec::new();
    let names_at = value.len() + endpoints.len() * ENTRY;
    for endpoint in endpoints {
        let name = SocketAddr::new(endpoint.address, endpoint.port.get()).to_string();
        let (address, family) = match endpoint.address {
            IpAddr::V4(v4) => {
                let mut padded = [0; 16];
                padded[..4].copy_from_slice(&v4.octets());
                (padded, 4)
            }
            IpAddr::V6(v6) => (v6.octets(), 6),
        };
        value.extend(address);
        value.extend(endpoint.port.get().to_le_bytes());
        value.push(family);
        // The longest, an IPv6 address in brackets with a port, has 47 bytes.
        value.push(name.len().min(usize::from(u8::MAX)) as u8);
        value.extend(length(names_at + names.len()).to_le_bytes());
        names.extend(name.bytes());
    }
    value.extend(names);
    value
}

/// An endpoint set read in place.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointsView<'g> {
    value: &'g [u8],
}

impl<'g> EndpointsView<'g> {
    /// Reads `value`, which [`encode_endpoints`] wrote.
    pub fn new(value: &'g [u8]) -> Self {
        EndpointsView { value }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        u32_at(self.value, 0).map_or(0, |count| count as usize)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The endpoint at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<EndpointView<'g>> {
        if index >= self.len() {
            return None;
        }
        let start = 4 + index * ENTRY;
        Some(EndpointView { value: self.value, entry: self.value.get(start..)?.first_chunk()? })
    }

    /// One of them has this identity.
    pub fn contains(&self, identity: &[u8; 19]) -> bool {
        self.iter().any(|endpoint| endpoint.identity() == identity)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = EndpointView<'g>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

/// One endpoint read in place.
#[derive(Clone, Copy, Debug)]
pub struct EndpointView<'g> {
    value: &'g [u8],
    entry: &'g [u8; ENTRY],
}

impl<'g> EndpointView<'g> {
    /// What tells it from other endpoints: address, port and family.
    #[inline]
    pub fn identity(&self) -> &'g [u8; 19] {
        self.entry.first_chunk().unwrap_or(&[0; 19])
    }

    /// Where to connect to.
    #[inline]
    pub fn socket_address(&self) -> SocketAddr {
        let address: [u8; 16] = *self.entry.first_chunk().unwrap_or(&[0; 16]);
        let ip = match self.entry[18] {
            4 => IpAddr::from([address[0], address[1], address[2], address[3]]),
            _ => IpAddr::from(address),
        };
        SocketAddr::new(ip, u16_at(self.entry, 16).unwrap_or_default())
    }

    /// `address:port`, as nginx logs it.
    pub fn name(&self) -> &'g [u8] {
        let start = u32_at(self.entry, 20).unwrap_or_default() as usize;
        self.value
            .get(start..)
            .and_then(|v| v.get(..usize::from(self.entry[19])))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Endpoint;

    fn endpoint(address: &str, port: u16) -> Endpoint {
        Endpoint::new(address.parse().unwrap(), port.try_into().unwrap())
    }

    #[test]
    fn endpoints_are_read_as_they_were_written() {
        let set =
            EndpointSet::new([endpoint("10.0.0.1", 80), endpoint("2001:db8::1", 8080)]).unwrap();
        let value = encode_endpoints(&set);
        let view = EndpointsView::new(&value);
        let read: Vec<_> =
            view.iter().map(|e| (e.socket_address().to_string(), e.name().to_vec())).collect();
        assert_eq!(read[0], ("10.0.0.1:80".into(), b"10.0.0.1:80".to_vec()));
        assert_eq!(read[1], ("[2001:db8::1]:8080".into(), b"[2001:db8::1]:8080".to_vec()));
        assert_eq!(read.len(), 2);
        assert!(view.get(2).is_none());
        let second = *view.get(1).unwrap().identity();
        assert!(view.contains(&second));
        assert!(!EndpointsView::new(&value[..4 + ENTRY]).contains(&second));
    }

    #[test]
    fn cut_bytes_end_the_list_instead_of_panicking() {
        let value = encode_endpoints(&EndpointSet::new([endpoint("10.0.0.1", 80)]).unwrap());
        for cut in 0..value.len() {
            EndpointsView::new(&value[..cut]).iter().for_each(|e| drop(e.name().to_vec()));
        }
    }
}
