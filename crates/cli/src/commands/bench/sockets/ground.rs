//! Where the two programs run: on this host, or on two that are made of it.

use crosslane_ctl::lane::DEFAULT_RING_LINES;
use crosslane_sockbench::client;
use crosslane_sockbench::outcome::Outcome;
use crosslane_sockbench::span::Span;
use crosslane_window::backend::{FileWindow, Place, Window, open};
use crosslane_window::discover::Roots;

use super::super::hosts::{Hosts, WINDOW_BYTES};
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
    spare: &'static dyn Window,
}

impl Ground {
    /// This host, with the programs that lie beside this one.
    pub fn here() -> anyhow::Result<Self> {
        let (spare, _) = FileWindow::memfd(2 * lane_bytes(DEFAULT_RING_LINES))?;
        Ok(Self::new(Sides::on_one_host()?, Box::new(spare)))
    }

    /// Two hosts, made now.
    pub fn between_hosts() -> anyhow::Result<Self> {
        let hosts = Hosts::start(&Programs::find()?, WINDOW_BYTES)?;
        let place = Place::Path(hosts.spare_window()?);
        let spare = open(&place, &Roots::system(), false)?;
        Ok(Self::new(Sides::Two(Box::new(hosts)), spare))
    }

    /// As all windows of lanes, the spare one stays mapped as long as the process lives.
    fn new(sides: Sides, spare: Box<dyn Window>) -> Self {
        let spare = Box::leak(spare);
        Self { sides, spare }
    }

    /// The lanes that connections have here.
    pub fn lane(&self) -> Carrier {
        match self.sides {
            Sides::One(_) => Carrier::Grown,
            Sides::Two(_) => Carrier::Coherent,
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
