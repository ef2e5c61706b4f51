//! The entry of an end that begins.

use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndEntry, Ending, Mode, end_flags};

use crate::end::{End, Local};
use crate::process::Process;

/// Nothing of the end that had the entry before is left.
pub(crate) fn reset(process: &'static Process, index: u32, fd: RawFd, passive: bool) {
    let local = process.local(index);
    local.home.store(0, Ordering::Release);
    let entry = process.entry(index);
    let id = &entry.id;
    id.reason.store(Reason::TooYoung as u32, Ordering::Relaxed);
    id.generation.fetch_add(1, Ordering::Relaxed);
    id.fd.store(fd, Ordering::Relaxed);
    id.pid.store(process.pid(), Ordering::Relaxed);
    id.cookie.store(0, Ordering::Relaxed);
    id.calls.store(0, Ordering::Relaxed);
    id.nodelay.store(0, Ordering::Relaxed);
    id.record.store(0, Ordering::Relaxed);
    let flags = if passive { end_flags::PASSIVE } else { 0 };
    id.flags.store(flags, Ordering::Relaxed);
    reset_directions(entry);
    for total in [
        &entry.tx.tcp_bytes,
        &entry.tx.ring_bytes,
        &entry.tx.tcp_data,
        &entry.rx.tcp_bytes,
        &entry.rx.ring_bytes,
        &entry.rx.tcp_data,
    ] {
        total.store(0, Ordering::Relaxed);
    }
    let wait = &entry.wait;
    for word in [
        &wait.sleepers,
        &wait.epolls,
        &wait.empty_reads,
        &wait.rests,
        &entry.tx.raw_calls,
        &wait.away,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    entry.rx.raw_calls.store(0, Ordering::Relaxed);
    wait.error.store(0, Ordering::Relaxed);
    // Who finds the end in none of its lanes, and then its generation, finds the new one.
    for lanes in [&entry.rx.coming, &wait.pair, &wait.shipped] {
        lanes.store(0, Ordering::Release);
    }
    wait.ending.store(Ending::Open as u32, Ordering::Relaxed);
    local.fds.store(1, Ordering::Relaxed);
    for word in [
        &local.epoll_set,
        &local.plural,
        &local.registrations,
        &local.adopted,
        &local.blocked,
        &local.rung,
        &local.reserved,
        &local.kept,
        &local.calls,
        &local.polls,
        &local.stirred,
        &local.unleased,
        &local.chaos,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    local.twin.store(0, Ordering::Relaxed);
    forget_moments(local);
    End::at(process, index, fd).forget_waiting();
}

fn forget_moments(local: &Local) {
    local.shares.forget();
    local.stalled_at.store(u64::MAX, Ordering::Relaxed);
    local.life_seen.store(0, Ordering::Relaxed);
    local.death_heard.store(0, Ordering::Relaxed);
    local.heard.store(0, Ordering::Relaxed);
    local.unheard.forget();
    local.doubt.forget();
}

/// Both directions at the start of fresh lanes, on TCP.
pub(super) fn reset_directions(entry: &EndEntry) {
    entry.tx.mode.store(Mode::Tcp as u32, Ordering::Relaxed);
    entry.rx.mode.store(Mode::Tcp as u32, Ordering::Relaxed);
    for cell in [
        &entry.tx.tail,
        &entry.tx.credit,
        &entry.rx.head,
        &entry.wait.replayed,
    ] {
        cell.store(0, Ordering::Relaxed);
    }
    entry.rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
    entry.rx.taken.store(0, Ordering::Relaxed);
    let wait = &entry.wait;
    for word in [
        &wait.armed,
        &wait.replay_seen,
        &entry.tx.bells_owed,
        &entry.tx.unchecked_lines,
    ] {
        word.store(0, Ordering::Relaxed);
    }
}
