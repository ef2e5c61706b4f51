//! Where the two programs run: on this host, or on two that are made of it.

use crosslane_benchkit::End;
use crosslane_ctl::lane::DEFAULT_RING_LINES;
use crosslane_sockbench::client;
use crosslane_sockbench::outcome::Outcome;
use crosslane_sockbench::span::Span;
use crosslane_window::backend::{FileWindow, Place, Window, open};
use crosslane_window::discover::Roots;

use super::super::hosts::Hosts;
use super::super::programs::Programs;
use super::super::window::between::round_trips;
use super::super::window::carrier::{Carrier, lane_bytes};
use super::super::window::stream::{by_carrier, by_copies};
use super::case::Case;

/// One host, or two with a window between them, and memory like that of their lanes for what needs no
/// programs.
pub struct Ground {
    hosts: Made,
    spare: &'static dyn Window,
}

enum Made {
    One(Programs),
    Two(Box<Hosts>),
}

impl Ground {
    /// This host, with the programs that lie beside this one.
    pub fn here() -> anyhow::Result<Self> {
        let (spare, _) = FileWindow::memfd(2 * lane_bytes(DEFAULT_RING_LINES))?;
        Ok(Self::new(Made::One(Programs::find()?), Box::new(spare)))
    }

    /// Two hosts, made now.
    pub fn between_hosts() -> anyhow::Result<Self> {
        let hosts = Hosts::start(&Programs::find()?)?;
        let place = Place::Path(hosts.spare_window()?);
        let spare = open(&place, &Roots::system(), false)?;
        Ok(Self::new(Made::Two(Box::new(hosts)), spare))
    }

    /// As all windows of lanes, the spare one stays mapped as long as the process lives.
    fn new(hosts: Made, spare: Box<dyn Window>) -> Self {
        let spare = Box::leak(spare);
        Self { hosts, spare }
    }

    pub fn server(&self) -> &Programs {
        match &self.hosts {
            Made::One(programs) => programs,
            Made::Two(hosts) => hosts.server(),
        }
    }

    pub fn client(&self) -> &Programs {
        match &self.hosts {
            Made::One(programs) => programs,
            Made::Two(hosts) => hosts.client(),
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> &'static str {
        match &self.hosts {
            Made::One(_) => "127.0.0.1",
            Made::Two(hosts) => hosts.address(),
        }
    }

    /// What the monitors know of their programs' connections.
    pub fn connections(&self) -> anyhow::Result<Vec<End>> {
        match &self.hosts {
            Made::One(programs) => Ok(programs.crosslane.connections()?),
            Made::Two(hosts) => hosts.connections(),
        }
    }

    /// The lanes that connections have here.
    pub fn lane(&self) -> Carrier {
        match self.hosts {
            Made::One(_) => Carrier::Grown,
            Made::Two(_) => Carrier::Coherent,
        }
    }

    /// What a carrier alone makes of a case, in memory like that of the lanes.
    pub fn carry(&self, carrier: Carrier, case: Case, span: Span) -> anyhow::Result<Outcome> {
        let bytes = usize::try_from(case.bytes)?;
        match case.kind {
            client::Case::Stream => by_carrier(self.spare, carrier, bytes, span),
            client::Case::Rtt | client::Case::Connect | client::Case::Brief => {
                round_trips(self.spare, carrier, bytes, span)
            }
        }
    }

    /// The most that copies into such memory and out again make of a stream.
    pub fn copies(&self, bytes: u64, span: Span) -> anyhow::Result<Outcome> {
        by_copies(self.spare, usize::try_from(bytes)?, span)
    }
}
