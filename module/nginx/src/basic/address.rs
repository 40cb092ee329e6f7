//! Addresses of sockets.

use crate::sys::{AF_INET, AF_INET6, AF_UNIX, sockaddr, sockaddr_in, sockaddr_in6};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address of nginx's or the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of TCP or UDP.
    Ip(SocketAddr),
    /// Of a Unix socket.
    Unix,
    /// Of anything else.
    Other,
}

impl Address {
    /// Reads an address; `None` for a null pointer.
    ///
    /// # Safety
    /// It is null, or leads to an address that is as long as its family says.
    #[inline]
    pub unsafe fn read(from: *const sockaddr) -> Option<Self> {
        // SAFETY: null, or an address, which begins with its family.
        let family = u32::from(unsafe { from.as_ref() }?.sa_family);
        Some(match family {
            AF_INET => {
                // SAFETY: of this family, and so of this type.
                let v4 = unsafe { from.cast::<sockaddr_in>().read() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Address::Ip(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            AF_INET6 => {
                // SAFETY: of this family, and so of this type.
                let v6 = unsafe { from.cast::<sockaddr_in6>().read() };
                // SAFETY: every variant of the union is these 16 bytes.
                let octets = unsafe { *(&raw const v6.sin6_addr).cast::<[u8; 16]>() };
                Address::Ip(SocketAddr::new(
                    Ipv6Addr::from(octets).into(),
                    u16::from_be(v6.sin6_port),
                ))
            }
            AF_UNIX => Address::Unix,
            _ => Address::Other,
        })
    }

    /// The IP address and port, if it has them.
    #[inline]
    pub fn ip(self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(address),
            Address::Unix | Address::Other => None,
        }
    }
}

/// An address to connect to, in the kernel's form, where nginx can point at it.
#[derive(Clone, Copy)]
#[repr(C)]
pub union RawAddress {
    any: sockaddr,
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

impl RawAddress {
    /// No address.
    pub const fn none() -> Self {
        // SAFETY: a C struct of numbers, for which zeroes are a value.
        RawAddress { v6: unsafe { std::mem::zeroed() } }
    }

    /// The form of an address, and how long it is.
    pub fn new(address: SocketAddr) -> (Self, usize) {
        // SAFETY: C structs of numbers, for which zeroes are a value.
        let (mut raw_v4, mut raw_v6): (sockaddr_in, sockaddr_in6) = unsafe { std::mem::zeroed() };
        match address {
            SocketAddr::V4(v4) => {
                raw_v4.sin_family = AF_INET as _;
                raw_v4.sin_port = v4.port().to_be();
                raw_v4.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                (RawAddress { v4: raw_v4 }, size_of::<sockaddr_in>())
            }
            SocketAddr::V6(v6) => {
                raw_v6.sin6_family = AF_INET6 as _;
                raw_v6.sin6_port = v6.port().to_be();
                // SAFETY: every variant of the union is these 16 bytes.
                unsafe { *(&raw mut raw_v6.sin6_addr).cast::<[u8; 16]>() = v6.ip().octets() };
                (RawAddress { v6: raw_v6 }, size_of::<sockaddr_in6>())
            }
        }
    }
}
