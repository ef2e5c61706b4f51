//! A frame that is being written.

use std::net::{IpAddr, SocketAddr};

use super::Tuple;

/// Its bytes so far, the length left open.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new(kind: u16) -> Self {
        Self(vec![0; 4]).u16(kind)
    }

    pub(super) fn rest(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.rest(&value.to_le_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.rest(&value.to_le_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.rest(&value.to_le_bytes())
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.rest(text.as_bytes())
    }

    /// IPv4 as IPv4 in IPv6; scopes mean something on one host only.
    pub(super) fn address(self, address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.rest(&ip.octets()).u16(address.port())
    }

    pub(super) fn tuple(self, tuple: Tuple) -> Self {
        self.address(tuple.local).address(tuple.remote)
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).expect("frames are short");
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}
