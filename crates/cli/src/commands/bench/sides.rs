//! Where the programs of a bench run: on this host, or servers and clients on two that are made of it.

use crosslane_benchkit::End;

use super::hosts::{Hosts, Kind};
use super::programs::Programs;

/// What a heading adds to what was measured between two hosts.
pub const BETWEEN: &str = ", between two network namespaces";

/// The host of servers, and that of their clients.
pub enum Sides {
    One(Programs),
    Two(Box<Hosts>),
}

impl Sides {
    /// This host, with the programs that lie beside this one.
    pub fn on_one_host() -> anyhow::Result<Self> {
        Ok(Self::One(Programs::find()?))
    }

    /// Two hosts, made now, with a window of so many bytes, which both map.
    pub fn on_two_hosts(window_bytes: u64) -> anyhow::Result<Self> {
        let hosts = Hosts::start(&Programs::find()?, Kind::Shared, window_bytes)?;
        Ok(Self::Two(Box::new(hosts)))
    }

    /// The programs as servers run.
    pub fn server(&self) -> &Programs {
        match self {
            Self::One(programs) => programs,
            Self::Two(hosts) => hosts.server(),
        }
    }

    /// The programs as clients run.
    pub fn client(&self) -> &Programs {
        match self {
            Self::One(programs) => programs,
            Self::Two(hosts) => hosts.client(),
        }
    }

    /// What the monitors know of their programs' connections.
    pub fn connections(&self) -> anyhow::Result<Vec<End>> {
        match self {
            Self::One(programs) => Ok(programs.crosslane.connections()?),
            Self::Two(hosts) => hosts.connections(),
        }
    }
}
