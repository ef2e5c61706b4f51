//! What `crosslane run --explain` shows of connections that have ended: a record of each in the
//! slab. Written where a connection begins and ends, and only if the process has been told to.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::net::{IpAddr, SocketAddr};

use crosslane_ctl::ledger::{EndRecord, LEDGER_RECORDS, RecordState, UNIX};
use crosslane_ctl::slab::Mode;
use crosslane_sys::kernel;

use crate::family::Family;
use crate::{End, config};

/// An end begins. One that finds the ledger full is only counted.
pub(crate) fn open(end: &End) {
    if config::get().run.is_none() {
        return;
    }
    let (table, at) = end.process().home(end.index);
    let number = table.header().recorded.fetch_add(1, Ordering::Relaxed);
    if number >= LEDGER_RECORDS {
        // Not to wrap, ever.
        table
            .header()
            .recorded
            .fetch_min(u32::MAX / 2, Ordering::Relaxed);
        return;
    }
    let Some(record) = table.record(number) else {
        return;
    };
    let id = &end.entry.id;
    record.entry.store(at, Ordering::Relaxed);
    copy(&id.generation, &record.generation);
    copy(&id.pid, &record.pid);
    record.fd.store(end.fd, Ordering::Relaxed);
    id.record.store(number + 1, Ordering::Relaxed);
    name(end);
    record
        .state
        .store(RecordState::Open as u32, Ordering::Release); // SYNC: record
}

/// Note the names that the kernel knows by now: of a connect that is under way, only the own one.
pub(crate) fn name(end: &End) {
    let Some(record) = record_of(end) else { return };
    if end.family() == Family::Unix {
        return name_unix(end, record);
    }
    if record.ports[1].load(Ordering::Relaxed) != 0 {
        return;
    }
    let names = [kernel::own_name(end.fd), kernel::peer_name(end.fd)];
    for (at, name) in names.into_iter().enumerate() {
        let Some(name) = name else { continue };
        let words = &record.addresses[at];
        let octets = octets(name).map(u64::from_ne_bytes);
        words[0].store(octets[0], Ordering::Relaxed);
        words[1].store(octets[1], Ordering::Relaxed);
        record.ports[at].store(name.port().into(), Ordering::Relaxed);
    }
}

fn name_unix(end: &End, record: &EndRecord) {
    let [family, number] = &record.addresses[0];
    if family.load(Ordering::Relaxed) != UNIX
        && let Some(inode) = kernel::inode(end.fd)
    {
        number.store(inode, Ordering::Relaxed);
        family.store(UNIX, Ordering::Relaxed);
    }
}

/// An end is let go, by this process at least. If another one keeps it, its entry goes on telling.
pub(crate) fn close(end: &End) {
    let Some(record) = record_of(end) else { return };
    let (id, tx, rx) = (&end.entry.id, &end.entry.tx, &end.entry.rx);
    let modes = [end.tx_mode(), end.rx_mode()];
    let rings = modes.iter().map(|mode| u32::from(*mode == Mode::Ring));
    record.rings.store(rings.sum(), Ordering::Relaxed);
    copy(&id.phase, &record.phase);
    copy(&id.reason, &record.reason);
    let totals = [
        (&tx.ring_bytes, &record.ring_bytes[0]),
        (&rx.ring_bytes, &record.ring_bytes[1]),
        (&tx.tcp_data, &record.tcp_bytes[0]),
        (&rx.tcp_data, &record.tcp_bytes[1]),
    ];
    for (from, to) in totals {
        let total: &AtomicU64 = from;
        to.store(total.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    record
        .state
        .store(RecordState::Closed as u32, Ordering::Release); // SYNC: record
}

/// So many bytes of the end are lost.
pub(crate) fn note_stranded(end: &End, bytes: u64) {
    if let Some(record) = record_of(end) {
        record.stranded.store(bytes, Ordering::Relaxed);
    }
}

fn record_of(end: &End) -> Option<&'static EndRecord> {
    let number = end.entry.id.record.load(Ordering::Relaxed).checked_sub(1)?;
    end.process().home(end.index).0.record(number)
}

fn copy(from: &AtomicU32, to: &AtomicU32) {
    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The address in two halves, IPv4 within IPv6.
fn octets(name: SocketAddr) -> [[u8; 8]; 2] {
    let whole = match name.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let mut halves = [[0; 8]; 2];
    halves[0].copy_from_slice(&whole[..8]);
    halves[1].copy_from_slice(&whole[8..]);
    halves
}
