//! Waits until what was sent has arrived, by looks at the kernel that no library sees.
//!
//! A set that has news in memory asks the kernel for that of other descriptors every 20 us only (docs/design.md, 3.4).
//!
//! On one machine TCP delivers at once but for a few cases (Nagle, an acknowledgement that is
//! delayed, of a FIN, too, a busy softirq); without this, those would be taken for differences.

use std::time::{Duration, Instant};

use crosslane_exercise::calls::TcpLook;

use super::Player;
use crate::call::Call;
use crate::cast::Hung;
use crate::world::{Connection, Kind, Sleeper};

/// Then something is stuck for good, such as bytes that find no room.
const PATIENCE: Duration = Duration::from_millis(600);
/// Longer than a set with news in memory leaves the kernel unasked.
const UNASKED: Duration = Duration::from_micros(30);
const BETWEEN_LOOKS: Duration = Duration::from_micros(150);
/// So often must nothing have changed where it is not known what to wait for.
const STILL: u32 = 4;
/// Longer than Nagle's algorithm holds bytes back for an acknowledgement that is delayed.
const HELD_BACK: Duration = Duration::from_millis(250);

// From <netinet/tcp.h>.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

type Looks = [Option<TcpLook>; 2];

impl Player<'_> {
    pub(super) fn rest(&mut self) -> Result<(), Hung> {
        self.rest_of_connections()?;
        self.await_stuck_polls()?;
        self.rest_of_connections()
    }

    fn rest_of_connections(&mut self) -> Result<(), Hung> {
        std::thread::sleep(UNASKED);
        for number in 0..self.world.connections.len() {
            if std::mem::take(&mut self.world.connections[number].dirty) {
                self.rest_of_threads(number, Sleeper::is_send)?;
                self.rest_of(number)?;
                self.rest_of_threads(number, |it| {
                    let is_several =
                        matches!(it.call, Call::Recvmmsg { .. } | Call::StdioRead { .. });
                    it.is_send() || is_several
                })?;
            }
        }
        Ok(())
    }

    /// Whoever receives one message after another is to have taken what has come before more does, and whoever sends is
    /// to have made use of the room.
    fn rest_of_threads(
        &mut self,
        number: usize,
        is_it: impl Fn(&Sleeper) -> bool,
    ) -> Result<(), Hung> {
        let is_of =
            |kind: &Kind| matches!(kind, Kind::End { connection, .. } if *connection == number);
        let files = &self.world.files;
        let sleepers = self
            .world
            .sleepers
            .iter()
            .filter(|sleeper| is_it(sleeper) && is_of(&files[sleeper.file].kind));
        let threads: Vec<_> = sleepers.map(|it| (it.process, it.thread)).collect();
        for (process, thread) in threads {
            self.cast.has_come_back(process, thread)?;
        }
        Ok(())
    }

    fn rest_of(&mut self, number: usize) -> Result<(), Hung> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = [None; 2];
        let (mut still, mut since) = (0, Instant::now());
        while Instant::now() < deadline {
            let looks = self.looks(number)?;
            let connection = &self.world.connections[number];
            (still, since) = match looks == last {
                true => (still + 1, since),
                false => (0, Instant::now()),
            };
            let rests = if connection.is_full() {
                // What is held back is so until there is room.
                still >= STILL
            } else if connection.wild {
                let is_done = have_arrived(&looks) && !looks.iter().flatten().any(is_moving);
                still >= STILL && (is_done || since.elapsed() >= HELD_BACK)
            } else {
                is_at_rest(connection, &looks)
                    && self.has_reached_listener(number)?
                    && (!is_held_back(&looks) || since.elapsed() >= HELD_BACK)
            };
            if rests {
                return Ok(());
            }
            last = looks;
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    fn looks(&mut self, number: usize) -> Result<Looks, Hung> {
        let mut looks = [None; 2];
        for (side, look) in looks.iter_mut().enumerate() {
            if let Some((process, fd)) = self.world.window(number, side)
                && self.cast.is_alive(process)
            {
                *look = self.cast.look(process, fd)?;
            }
        }
        Ok(looks)
    }

    /// Whether a connection that waits to be accepted can be.
    fn has_reached_listener(&mut self, number: usize) -> Result<bool, Hung> {
        let listener = self.world.names.iter().find(|(_, entry)| {
            matches!(&self.world.files[entry.file].kind,
                Kind::Listener { backlog, .. } if backlog.contains(&number))
        });
        let Some(((process, _), entry)) = listener.map(|(name, entry)| (*name, *entry)) else {
            return Ok(true);
        };
        let look = self.cast.look(process, entry.fd)?;
        Ok(look.is_none_or(|look| look.events & libc::POLLIN != 0))
    }
}

fn is_at_rest(connection: &Connection, looks: &Looks) -> bool {
    let are_told = (0..2).all(|side| {
        let Some(look) = looks[side] else { return true };
        let (own, other) = (connection.ends[side], connection.ends[1 - side]);
        let knows_end =
            !(other.gone || other.shut_writing) || !matches!(look.state, ESTABLISHED | FIN_WAIT2);
        let knows_reset = !own.reset || look.state == CLOSE;
        let has_told = !own.shut_writing || look.state != ESTABLISHED;
        !is_moving(&look) && knows_end && knows_reset && has_told
    });
    are_told && have_arrived(looks)
}

/// Whether the other host has yet to acknowledge that a connection begins or ends, which is an event, too.
fn is_moving(look: &TcpLook) -> bool {
    matches!(look.state, SYN_SENT | FIN_WAIT1 | LAST_ACK | CLOSING)
}

/// Whether something is held back from an end that only a call has, into which nobody can look.
fn is_held_back(looks: &Looks) -> bool {
    let [one, other] = *looks;
    match (one, other) {
        (Some(look), None) | (None, Some(look)) => look.held_back > 0 && look.state != CLOSE,
        _ => false,
    }
}

/// Whether what each end has sent has arrived at the other, or never will.
fn have_arrived(looks: &Looks) -> bool {
    (0..2).all(|side| match (looks[side], looks[1 - side]) {
        (Some(look), Some(peer)) => {
            peer.received >= look.sent || peer.state == CLOSE || look.state == CLOSE
        }
        _ => true,
    })
}
