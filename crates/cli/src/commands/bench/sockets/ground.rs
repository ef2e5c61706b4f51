//! Where the two programs run: on this host, or on two that are made of it.

use crosslane_ctl::lane::DEFAULT_RING_LINES;
use crosslane_sockbench::client;
use crosslane_sockbench::outcome::Outcome;
use crosslane_sockbench::span::Span;
use crosslane_window::backend::{FileWindow, Place, Window, open};
use crosslane_window::discover::Roots;

use super::super::hosts::{Hosts, Kind, WINDOW_BYTES};
use super::super::programs::Programs;
use super::super::sides::Sides;
use super::super::window::between::round_trips;
use super::super::window::carrier::{Carrier, lane_bytes};
use super::super::window::stream::{by_carrier, by_copies};
use super::case::Case;

/// One host, or two with a window between them, and memory like that of their lanes for what needs no
/// programs.
pub struct Ground {
    pub sides: Sides,
    lane: Carrier,
    spare: &'static dyn Window,
}

impl Ground {
    /// This host, with the programs that lie beside this one.
    pub fn here() -> anyhow::Result<Self> {
        let (spare, _) = FileWindow::memfd(2 * lane_bytes(DEFAULT_RING_LINES))?;
        let sides = Sides::on_one_host()?;
        Ok(Self::new(sides, Carrier::Grown, Box::new(spare)))
    }

    /// Two hosts, made now, with a window of that kind.
    pub fn between_hosts(kind: Kind) -> anyhow::Result<Self> {
        let hosts = Hosts::start(&Programs::find()?, kind, WINDOW_BYTES)?;
        let place = Place::Path(hosts.spare_window()?);
        let spare = open(&place, &Roots::system(), false)?;
        let lane = match kind {
            Kind::Shared => Carrier::Coherent,
            Kind::Posted => Carrier::Posted,
        };
        Ok(Self::new(Sides::Two(Box::new(hosts)), lane, spare))
    }

    /// As all windows of lanes, the spare one stays mapped as long as the process lives.
    fn new(sides: Sides, lane: Carrier, spare: Box<dyn Window>) -> Self {
        let spare = Box::leak(spare);
        Self { sides, lane, spare }
    }

    /// The lanes that connections have here.
    pub fn lane(&self) -> Carrier {
        self.lane
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
