//! Bare copies: the least that carries a stream between two processors through memory.
//!
//! Messages are copied in one behind the other and copied out again, and each side tells the other how far it
//! is once in so many bytes. There are no headers, no checks, nobody sleeps, and nothing else is told. Whatever
//! copies each message in and out does this at least, so this is what a stream is compared with.

use std::hint::spin_loop;

use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

use crosslane_window::backend::{Window, lasting_halves};

use super::carrier::{End, clear};

/// Bytes between two words to the other side, as long as messages are shorter.
const GRAIN: u64 = 4096;

/// Where messages begin, behind the line of the other side's word.
const RING_AT: usize = 128;

/// Room for messages: so little that it stays in caches, and so much that lines have left the receiver's when they
/// are written again. Which is faster depends on the machine.
pub const RINGS: [usize; 2] = [256 << 10, 4 << 20];

pub struct Copies {
    local: Inbound,
    remote: Outbound,
    ring_bytes: usize,
    /// Bytes copied by this end.
    done: u64,
    /// Of these, what the other end has been told.
    told: u64,
    /// What the other end has told.
    known: u64,
}

impl Copies {
    /// Both ends, for messages of so many bytes. What is in the window is lost.
    pub fn ends(window: &'static dyn Window, ring_bytes: usize, bytes: usize) -> [Self; 2] {
        clear(window, RING_AT);
        [0, 1].map(|side| {
            let (local, remote) = lasting_halves(window, side);
            let room = ring_bytes.min(local.bytes() - RING_AT);
            Self {
                local,
                remote,
                ring_bytes: room / bytes * bytes,
                done: 0,
                told: 0,
                known: 0,
            }
        })
    }

    /// Where the next message lies.
    fn place(&self) -> usize {
        RING_AT + usize::try_from(self.done % self.ring_bytes as u64).unwrap_or(0)
    }

    /// Wait until the other end is `at` so many bytes.
    fn wait_for(&mut self, at: u64) {
        while self.known < at {
            self.known = self.local.load(0);
            if self.known < at {
                spin_loop();
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if self.done - self.told >= GRAIN {
            self.flush();
        }
    }
}

impl End for Copies {
    fn send(&mut self, message: &[u8]) {
        let end = self.done + message.len() as u64;
        self.wait_for(end.saturating_sub(self.ring_bytes as u64));
        self.remote.put_bytes(self.place(), message);
        self.advance(message.len());
    }

    fn receive(&mut self, message: &mut [u8]) {
        self.wait_for(self.done + message.len() as u64);
        self.local.take_bytes(self.place(), message);
        self.advance(message.len());
    }

    fn flush(&mut self) {
        self.told = self.done;
        self.remote.store(0, self.told);
    }
}
