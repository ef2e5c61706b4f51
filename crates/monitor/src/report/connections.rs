//! The answer to `crosslane ss`: one JSON object per line.

use crosslane_ctl::message::TEXT_BYTES;
use crosslane_ctl::reason::Reason;
use serde::{Deserialize, Serialize};

use super::{Family, Seen, Step, Walk, World};
use crate::arenas::Backing;
use crate::endpoint::Name;
use crate::registry::FamilyId;

/// Most bytes of one line: a program's name can be 15 bytes of which each needs an escape.
pub(super) const LINE_BYTES: usize = 1024;

/// A socket's name and its peer's, as far as they are known.
pub(super) type Names = [Option<Name>; 2];

/// One end of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// The program's name.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// The first descriptor of the connection.
    pub fd: i32,
    /// The socket's name; empty where nobody could tell. The monitor knows those of registered
    /// ends, the command asks the kernel for others.
    pub local: String,
    /// Its peer's name.
    pub peer: String,
    /// `accelerated`, `partly`, `switching` or `tcp`.
    pub state: String,
    /// Why not all of it is accelerated.
    pub reason: Option<String>,
    /// The same in words.
    pub reason_text: Option<String>,
    /// What would change it.
    pub remedy: Option<String>,
    /// The window to another host over which it goes, or would if it were accelerated.
    #[serde(default)]
    pub window: Option<String>,
    /// Bytes sent through the ring.
    pub ring_bytes_sent: u64,
    /// Bytes received through the ring.
    pub ring_bytes_received: u64,
    /// Bytes sent through TCP.
    pub tcp_bytes_sent: u64,
    /// Bytes received through TCP.
    pub tcp_bytes_received: u64,
}

impl ConnectionReport {
    fn new<B: Backing>(
        world: &World<'_, B>,
        id: FamilyId,
        family: &Family,
        index: u32,
        seen: &Seen,
    ) -> Self {
        let process = family.process(seen.pid);
        let token = u64::from(seen.generation) << 32 | u64::from(index);
        let key = world.registry.key_of(id, token);
        let program = process.map_or("", |process| &process.program);
        let names = [key.map(|key| key.local), key.map(|key| key.remote)];
        let window = world.registry.window_of(seen.pair);
        let window = window.and_then(|window| world.rack?.window_name(window));
        let report = Self {
            pid: family.pid_of(seen.pid),
            window: window.map(str::to_owned),
            ..Self::of(program, names, seen)
        };
        // Of an end that only waits for its partner, the rack may know more.
        let waits = matches!(seen.reason, Reason::NoPeer | Reason::WindowFull);
        let standing = key.filter(|_| waits);
        match standing.and_then(|key| world.rack?.standing(key)) {
            Some(reason) => report.because(reason),
            None => report,
        }
    }

    fn because(self, reason: Reason) -> Self {
        Self {
            reason: Some(reason.slug().to_owned()),
            reason_text: Some(reason.text().to_owned()),
            remedy: Some(reason.remedy().to_owned()),
            ..self
        }
    }

    pub(super) fn of(program: &str, names: Names, seen: &Seen) -> Self {
        let [local, peer] = names.map(|name| name.map_or_else(String::new, |n| n.to_string()));
        let report = Self {
            program: program.to_owned(),
            pid: seen.pid,
            fd: seen.fd,
            local,
            peer,
            state: seen.state.slug().to_owned(),
            reason: None,
            reason_text: None,
            remedy: None,
            window: None,
            ring_bytes_sent: seen.ring_bytes[0],
            ring_bytes_received: seen.ring_bytes[1],
            tcp_bytes_sent: seen.tcp_bytes[0],
            tcp_bytes_received: seen.tcp_bytes[1],
        };
        match seen.reason {
            Reason::None => report,
            reason => report.because(reason),
        }
    }
}

/// The list under way.
#[derive(Debug)]
pub struct Listing {
    walk: Walk,
}

impl Listing {
    /// List the connections of these families.
    pub fn new(families: Vec<FamilyId>) -> Self {
        Self {
            walk: Walk::new(families),
        }
    }

    /// Make the next piece.
    pub fn step<B: Backing>(&mut self, world: &World<'_, B>) -> Step {
        let mut text = Vec::new();
        let more = self.walk.step(world.families, |id, family, index, seen| {
            let report = ConnectionReport::new(world, id, family, index, seen);
            if serde_json::to_writer(&mut text, &report).is_ok() {
                text.push(b'\n');
            }
            text.len() + LINE_BYTES <= TEXT_BYTES
        });
        match (text.is_empty(), more) {
            (false, _) => Step::Text(text),
            (true, true) => Step::Working,
            (true, false) => Step::Done,
        }
    }
}
