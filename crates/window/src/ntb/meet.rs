//! How two drivers learn of each other: each writes who it is into the other's scratchpads, and who it
//! has seen. Both have met when each has been seen in its present life.
//!
//! Scratchpads keep what was written by drivers that are long gone. So each opening has a number of its
//! own, the epoch, and what does not answer to it means nothing.

use std::time::{Duration, Instant};

use super::bridge::Bridge;
use super::error::NtbError;

/// The version of what is in the scratchpads, and of what goes through the window.
pub const VERSION: u32 = 1;

/// "XLNT" as a little-endian word.
const MARK: u32 = 0x544e_4c58;

// Which scratchpad has what.
const MARK_AT: usize = 0;
const VERSION_AT: usize = 1;
const BYTES_LOW_AT: usize = 2;
const BYTES_HIGH_AT: usize = 3;
/// Zero while the others are being written.
const EPOCH_AT: usize = 4;
/// The epoch that the writer has seen of the reader.
const SEEN_AT: usize = 5;

/// The least that is worth lending: two pages.
pub(super) const LEAST_BYTES: u64 = 8192;

const LOOK: Duration = Duration::from_millis(1);
/// What was said while the link was down has to be said again.
const REPEAT: Duration = Duration::from_millis(50);

/// What the two agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// What each can write of the other's memory.
    pub bytes: u64,
    /// Our number.
    pub epoch: u32,
    /// Theirs.
    pub their_epoch: u32,
}

/// What the other host says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    mark: u32,
    version: u32,
    bytes: u64,
    epoch: u32,
    seen: u32,
}

/// Say that `bytes` may be written here, under a number that was never used before and is not 0, and wait
/// until the other host has heard it and said the same.
///
/// # Errors
/// If it says nothing, or something that does not fit.
pub fn meet(bridge: &Bridge, bytes: u64, epoch: u32, patience: Duration) -> Result<Met, NtbError> {
    let start = Instant::now();
    let mut said_at: Option<Instant> = None;
    loop {
        if said_at.is_none_or(|at| at.elapsed() >= REPEAT) {
            say(bridge, bytes, epoch);
            said_at = Some(Instant::now());
        }
        let heard = hear(bridge);
        let is_there = heard.mark == MARK && heard.epoch != 0;
        if is_there {
            bridge.set_peer_scratchpad(SEEN_AT, heard.epoch);
        }
        // What an earlier driver left there, of another version, has not seen us.
        if is_there && heard.seen == epoch {
            return agree(bridge, bytes, epoch, heard);
        }
        if start.elapsed() >= patience {
            // Or that is why.
            bridge.wait_for_link(Duration::ZERO)?;
            return Err(NtbError::Silent {
                address: bridge.address().to_owned(),
                waited: patience,
                mark: heard.mark,
                epoch: heard.epoch,
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether the other host's driver is still the one that we met.
///
/// # Errors
/// If it is not, or the link or the device is gone.
pub fn check(bridge: &Bridge, met: Met) -> Result<(), NtbError> {
    bridge.wait_for_link(Duration::ZERO)?;
    let theirs = bridge.scratchpad(EPOCH_AT);
    // Zero for a moment, while it says the same again.
    match theirs == met.their_epoch || theirs == 0 {
        true => Ok(()),
        false => Err(NtbError::Restarted {
            address: bridge.address().to_owned(),
            met: met.their_epoch,
            theirs,
        }),
    }
}

fn agree(bridge: &Bridge, bytes: u64, epoch: u32, heard: Said) -> Result<Met, NtbError> {
    let address = || bridge.address().to_owned();
    if heard.version != VERSION {
        return Err(NtbError::Version {
            address: address(),
            theirs: heard.version,
        });
    }
    if !heard.bytes.is_power_of_two() || heard.bytes < LEAST_BYTES {
        return Err(NtbError::TheirSize {
            address: address(),
            bytes: heard.bytes,
            least: LEAST_BYTES,
        });
    }
    Ok(Met {
        bytes: bytes.min(heard.bytes),
        epoch,
        their_epoch: heard.epoch,
    })
}

/// Writes arrive in order, so whoever finds the epoch finds the rest.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of a number"
)]
fn say(bridge: &Bridge, bytes: u64, epoch: u32) {
    bridge.set_peer_scratchpad(EPOCH_AT, 0);
    bridge.set_peer_scratchpad(MARK_AT, MARK);
    bridge.set_peer_scratchpad(VERSION_AT, VERSION);
    bridge.set_peer_scratchpad(BYTES_LOW_AT, bytes as u32);
    bridge.set_peer_scratchpad(BYTES_HIGH_AT, (bytes >> 32) as u32);
    bridge.set_peer_scratchpad(EPOCH_AT, epoch);
}

/// What the other host says; nothing if it changes while it is read.
fn hear(bridge: &Bridge) -> Said {
    let epoch = bridge.scratchpad(EPOCH_AT);
    let low = u64::from(bridge.scratchpad(BYTES_LOW_AT));
    let high = u64::from(bridge.scratchpad(BYTES_HIGH_AT));
    let said = Said {
        mark: bridge.scratchpad(MARK_AT),
        version: bridge.scratchpad(VERSION_AT),
        bytes: high << 32 | low,
        epoch,
        seen: bridge.scratchpad(SEEN_AT),
    };
    match bridge.scratchpad(EPOCH_AT) == epoch {
        true => said,
        false => Said::default(),
    }
}
