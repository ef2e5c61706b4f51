//! Where the two programs run: on this host, or on two that are made of it.

use anyhow::bail;
use crosslane_benchkit::End;
use crosslane_sockbench::outcome::Outcome;
use crosslane_sockbench::span::Span;
use crosslane_window::backend::{Place, Window, open};
use crosslane_window::discover::Roots;

use super::super::hosts::Hosts;
use super::super::programs::Programs;
use super::super::window::between::round_trips;
use super::super::window::carrier::Carrier;

/// One host, or two with a window between them.
pub enum Ground {
    One(Programs),
    Two(Box<Pair>),
}

/// Two hosts, and memory like their window for what needs no programs.
pub struct Pair {
    hosts: Hosts,
    spare: &'static dyn Window,
}

impl Ground {
    /// This host, with the programs that lie beside this one.
    pub fn here() -> anyhow::Result<Self> {
        Ok(Self::One(Programs::find()?))
    }

    /// Two hosts, made now.
    pub fn between_hosts() -> anyhow::Result<Self> {
        let hosts = Hosts::start(&Programs::find()?)?;
        let place = Place::Path(hosts.spare_window()?);
        let spare = open(&place, &Roots::system(), false)?;
        Ok(Self::Two(Box::new(Pair {
            hosts,
            // As all windows of lanes, it stays mapped as long as the process lives.
            spare: Box::leak(spare),
        })))
    }

    pub fn server(&self) -> &Programs {
        match self {
            Self::One(programs) => programs,
            Self::Two(pair) => pair.hosts.server(),
        }
    }

    pub fn client(&self) -> &Programs {
        match self {
            Self::One(programs) => programs,
            Self::Two(pair) => pair.hosts.client(),
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> &'static str {
        match self {
            Self::One(_) => "127.0.0.1",
            Self::Two(pair) => pair.hosts.address(),
        }
    }

    /// What the monitors know of their programs' connections.
    pub fn connections(&self) -> anyhow::Result<Vec<End>> {
        match self {
            Self::One(programs) => Ok(programs.crosslane.connections()?),
            Self::Two(pair) => pair.hosts.connections(),
        }
    }

    /// Round trips by a carrier alone, in memory like the window's.
    pub fn round_trips(&self, carrier: Carrier, bytes: u64, span: Span) -> anyhow::Result<Outcome> {
        match self {
            Self::One(_) => bail!("there is a window between two hosts only"),
            Self::Two(pair) => round_trips(pair.spare, carrier, usize::try_from(bytes)?, span),
        }
    }
}
