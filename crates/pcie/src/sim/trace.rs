//! What happened, one line per TLP, and the same for a trace viewer.

use std::fmt::Write as _;

use super::{Ps, ns};
use crate::model::TlpKind;
use crate::model::explain::Direction;

/// One TLP on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// First byte on the wire.
    pub start: Ps,
    /// Last byte at the other end.
    pub end: Ps,
    /// Which way.
    pub direction: Direction,
    /// Segment of the path, counted from the device.
    pub segment: u8,
    /// Kind.
    pub kind: TlpKind,
    /// Address.
    pub address: u64,
    /// Bytes carried or asked for.
    pub data_bytes: u32,
    /// All bytes.
    pub wire_bytes: u32,
    /// The transaction that it belongs to.
    pub transaction: u32,
}

/// The first records of a run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    records: Vec<Record>,
    limit: usize,
}

impl Trace {
    /// A trace of at most `limit` TLPs.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            records: Vec::with_capacity(limit.min(1 << 16)),
            limit,
        }
    }

    pub(crate) fn add(&mut self, record: Record) {
        if self.records.len() < self.limit {
            self.records.push(record);
        }
    }

    /// The records, in the order of sending.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// One line per TLP.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::from(
            "#    start_ns       end_ns  way  link kind      address  data  wire  transaction\n",
        );
        for r in &self.records {
            let way = if r.direction == Direction::Up {
                "up"
            } else {
                "down"
            };
            let _ = writeln!(
                text,
                "{:>13.3} {:>12.3}  {way:<4} {:>4} {:<4} {:#012x} {:>5} {:>5} {:>12}",
                ns(r.start),
                ns(r.end),
                r.segment,
                r.kind.name(),
                r.address,
                r.data_bytes,
                r.wire_bytes,
                r.transaction
            );
        }
        text
    }

    fn chrome_events(&self, process: usize) -> impl Iterator<Item = serde_json::Value> {
        self.records.iter().map(move |r| {
            let way = if r.direction == Direction::Up { "up" } else { "down" };
            serde_json::json!({
                "name": format!("{} {} B", r.kind.name(), r.data_bytes),
                "cat": "tlp",
                "ph": "X",
                "ts": ns(r.start) / 1000.0,
                "dur": ns(r.end - r.start) / 1000.0,
                "pid": process,
                "tid": format!("link {} {way}", r.segment),
                "args": { "address": r.address, "wire_bytes": r.wire_bytes, "transaction": r.transaction },
            })
        })
    }
}

/// The Trace Event Format that chrome://tracing and Perfetto open: one process per run, which has this
/// name, and in it one track per link direction.
#[must_use]
pub fn chrome_json(runs: &[(String, Trace)]) -> String {
    let mut events = Vec::new();
    for (index, (name, trace)) in runs.iter().enumerate() {
        let process = index + 1;
        events.push(serde_json::json!({
            "name": "process_name", "ph": "M", "pid": process, "args": { "name": name },
        }));
        events.extend(trace.chrome_events(process));
    }
    serde_json::json!({ "traceEvents": events, "displayTimeUnit": "ns" }).to_string()
}
