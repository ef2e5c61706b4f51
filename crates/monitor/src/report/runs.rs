//! What becomes of the connections of a run of `crosslane run --explain`: the ledgers of its
//! processes, kept beyond their end for as long as the command that watches the run lives.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crosslane_ctl::ledger::{EndRecord, LEDGER_RECORDS, RecordState, UNIX};
use crosslane_ctl::message::TEXT_BYTES;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::EndPhase;
use crosslane_window::slab::SlabMap;
use serde::{Deserialize, Serialize};

use super::connections::{ConnectionReport, LINE_BYTES, Names};
use super::families::{Families, Family, Process, SlabIdentity};
use super::{Seen, State, Step, judge};
use crate::endpoint::Name;
use crate::registry::FamilyId;

/// Ends of finished processes that are remembered for one run; further ones are counted.
const MOST_ENDED: usize = 1 << 14;

/// Runs of one user that are watched at a time.
const MOST_RUNS: usize = 32;

/// Records of a living slab that one step looks at.
const RECORDS_PER_STEP: u32 = 1024;

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RunLine {
    /// One end.
    End(Box<RunEnd>),
    /// The last line.
    Rest(RunRest),
}

/// An end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// As in `crosslane ss`; what it was at its end if it has ended.
    #[serde(flatten)]
    pub connection: ConnectionReport,
    /// Whether it, or its process, has ended.
    pub ended: bool,
    /// Bytes that were lost in its ring, as the counter `stranded_bytes` has them.
    pub stranded_bytes: u64,
}

/// What is to be said beside the ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRest {
    /// Whether this monitor has watched the run; if not, processes that have ended are forgotten.
    pub watched: bool,
    /// Ends of which nothing is known but their number.
    pub left_out: u64,
}

/// The runs that are watched.
#[derive(Default)]
pub struct Runs {
    watched: HashMap<u64, Watched>,
}

/// A run that is watched.
struct Watched {
    uid: u32,
    /// The control connection that watches it.
    by: u64,
    ended: Vec<EndedFamily>,
    remembered: usize,
}

/// What a family without processes has left.
struct EndedFamily {
    id: FamilyId,
    identity: SlabIdentity,
    ends: Vec<Remembered>,
    left_out: u64,
}

/// An end in a ledger.
struct Remembered {
    number: u32,
    program: String,
    names: Names,
    seen: Seen,
    ended: bool,
    stranded: u64,
}

impl Runs {
    /// Watch a run until the connection `by` ends. One that is watched already stays as it is.
    pub fn watch(&mut self, run: u64, uid: u32, by: u64) {
        let of_user = self.watched.values().filter(|watched| watched.uid == uid);
        if of_user.count() < MOST_RUNS {
            self.watched.entry(run).or_insert_with(|| Watched {
                uid,
                by,
                ended: Vec::new(),
                remembered: 0,
            });
        }
    }

    /// A control connection has ended.
    pub fn unwatch(&mut self, by: u64) {
        self.watched.retain(|_, watched| watched.by != by);
    }

    /// The last process of a family is gone.
    pub fn ended(&mut self, id: FamilyId, family: &Family, last: &Process) {
        let Some(watched) = self.of_family(family) else {
            return;
        };
        let mut left_out = left_out(&family.slab);
        let mut ends = Vec::new();
        for number in 0..recorded(&family.slab) {
            let Some(mut end) = Remembered::read(family, number, Some(last)) else {
                continue;
            };
            if watched.remembered == MOST_ENDED {
                left_out += 1;
                continue;
            }
            watched.remembered += 1;
            end.ended = true;
            ends.push(end);
        }
        watched.ended.push(EndedFamily {
            id,
            identity: family.identity(),
            ends,
            left_out,
        });
    }

    /// A child of a finished process has brought its slab back.
    pub fn revived(&mut self, identity: SlabIdentity) {
        for watched in self.watched.values_mut() {
            let again = |family: &mut EndedFamily| family.identity == identity;
            let gone = watched.ended.extract_if(.., again);
            let forgotten: usize = gone.map(|family| family.ends.len()).sum();
            watched.remembered -= forgotten;
        }
    }

    fn of_family(&mut self, family: &Family) -> Option<&mut Watched> {
        let watched = self.watched.get_mut(&run_of(&family.slab))?;
        (watched.uid == 0 || watched.uid == family.uid()).then_some(watched)
    }

    /// What is remembered of a run, if this user may know.
    fn visible(&self, run: u64, uid: u32) -> Option<&Watched> {
        let watched = self.watched.get(&run)?;
        (uid == 0 || watched.uid == uid).then_some(watched)
    }
}

impl Remembered {
    fn read(family: &Family, number: u32, last: Option<&Process>) -> Option<Self> {
        let record = family.slab.record(number)?;
        let state = RecordState::from_code(record.state.load(Acquire))?; // SYNC: record
        if state == RecordState::Blank {
            return None;
        }
        let generation = record.generation.load(Relaxed);
        let entry = family.slab.entry(record.entry.load(Relaxed));
        let live = entry
            .and_then(Seen::read)
            .filter(|seen| seen.generation == generation);
        let ended = live.is_none();
        let mut seen = live.unwrap_or_else(|| read_closed(record));
        let process = family.process(seen.pid).or(last);
        seen.pid = family.pid_of(seen.pid);
        Some(Self {
            number,
            program: process.map_or_else(String::new, |process| process.program.clone()),
            names: [0, 1].map(|side| name(record, side)),
            seen,
            ended,
            stranded: record.stranded.load(Relaxed),
        })
    }

    fn report(&self) -> RunLine {
        RunLine::End(Box::new(RunEnd {
            connection: ConnectionReport::of(&self.program, self.names, &self.seen),
            ended: self.ended,
            stranded_bytes: self.stranded,
        }))
    }
}

fn read_closed(record: &EndRecord) -> Seen {
    let phase = EndPhase::from_code(record.phase.load(Relaxed)).unwrap_or(EndPhase::Plain);
    let told = Reason::from_code(record.reason.load(Relaxed)).unwrap_or(Reason::None);
    let rings = usize::try_from(record.rings.load(Relaxed)).unwrap_or(0);
    let ring_bytes = [0, 1].map(|at| record.ring_bytes[at].load(Relaxed));
    // Nothing spoke against it, and the last words of a connection may go by TCP.
    let ended_in_rings = told == Reason::None && ring_bytes != [0, 0];
    let (state, reason) = match ended_in_rings {
        true => (State::Accelerated, Reason::None),
        false => judge(phase, rings, told),
    };
    Seen {
        generation: record.generation.load(Relaxed),
        fd: record.fd.load(Relaxed),
        pid: record.pid.load(Relaxed),
        state,
        reason,
        pair: 0,
        ring_bytes,
        tcp_bytes: [0, 1].map(|at| record.tcp_bytes[at].load(Relaxed)),
    }
}

fn name(record: &EndRecord, side: usize) -> Option<Name> {
    let [family, number] = [0, 1].map(|half| record.addresses[side][half].load(Relaxed));
    if family == UNIX {
        let inode = u32::try_from(number).ok()?;
        return Some(Name::Unix { inode, cookie: 0 });
    }
    let port = u16::try_from(record.ports[side].load(Relaxed)).ok()?;
    let halves = [family, number].map(u64::to_ne_bytes);
    let octets: [u8; 16] = halves.concat().try_into().ok()?;
    let address = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
    (port != 0).then(|| Name::Ip(SocketAddr::new(address, port)))
}

fn run_of(slab: &SlabMap) -> u64 {
    slab.header().run.load(Relaxed)
}

/// Records that have been taken, and those that there was no room for.
fn recorded(slab: &SlabMap) -> u32 {
    slab.header().recorded.load(Relaxed).min(LEDGER_RECORDS)
}

fn left_out(slab: &SlabMap) -> u64 {
    let taken = slab.header().recorded.load(Relaxed);
    taken.saturating_sub(LEDGER_RECORDS).into()
}

/// The list under way. A family that ends meanwhile goes on being listed from what it has left.
#[derive(Debug)]
pub struct RunListing {
    run: u64,
    uid: u32,
    families: Vec<FamilyId>,
    next: u32,
    left_out: u64,
    done: bool,
}

impl RunListing {
    /// List the ends of a run.
    pub fn new(run: u64, uid: u32, families: &Families) -> Self {
        let lives = |id: &FamilyId| {
            let family = families.find(*id);
            run != 0 && family.is_some_and(|family| run_of(&family.slab) == run)
        };
        let mut ids = families.visible_to(uid);
        ids.retain(lives);
        let ended = families.runs.visible(run, uid).into_iter();
        ids.extend(
            ended
                .flat_map(|watched| &watched.ended)
                .map(|family| family.id),
        );
        Self {
            run,
            uid,
            families: ids,
            next: 0,
            left_out: 0,
            done: false,
        }
    }

    /// Make the next piece.
    pub fn step(&mut self, families: &Families) -> Step {
        if self.done {
            return Step::Done;
        }
        let mut text = Vec::new();
        let watched = families.runs.visible(self.run, self.uid);
        match self.families.last().copied() {
            None => {
                self.done = true;
                let rest = RunRest {
                    watched: watched.is_some(),
                    left_out: self.left_out,
                };
                write_line(&mut text, &RunLine::Rest(rest));
            }
            Some(id) => {
                let ended = watched.and_then(|run| run.ended.iter().find(|ended| ended.id == id));
                let rest = match (families.find(id), ended) {
                    (Some(family), _) => self.list_living(family, &mut text),
                    (None, Some(ended)) => self.list_ended(ended, &mut text),
                    (None, None) => Some(0),
                };
                if let Some(left_out) = rest {
                    self.left_out = self.left_out.saturating_add(left_out);
                    self.families.pop();
                    self.next = 0;
                }
            }
        }
        match text.is_empty() {
            true => Step::Working,
            false => Step::Text(text),
        }
    }

    /// Go on with a family. When it has been listed, how many of its ends were not.
    fn list_living(&mut self, family: &Family, text: &mut Vec<u8>) -> Option<u64> {
        let recorded = recorded(&family.slab);
        let end = recorded.min(self.next + RECORDS_PER_STEP);
        while self.next < end && text.len() + LINE_BYTES <= TEXT_BYTES {
            if let Some(found) = Remembered::read(family, self.next, None) {
                write_line(text, &found.report());
            }
            self.next += 1;
        }
        (self.next >= recorded).then(|| left_out(&family.slab))
    }

    fn list_ended(&mut self, ended: &EndedFamily, text: &mut Vec<u8>) -> Option<u64> {
        let first = ended.ends.partition_point(|end| end.number < self.next);
        for end in &ended.ends[first..] {
            if text.len() + LINE_BYTES > TEXT_BYTES {
                return None;
            }
            write_line(text, &end.report());
            self.next = end.number + 1;
        }
        Some(ended.left_out)
    }
}

fn write_line(text: &mut Vec<u8>, line: &RunLine) {
    if serde_json::to_writer(&mut *text, line).is_ok() {
        text.push(b'\n');
    }
}
