//! Waiting for a direction that another thread or process holds, and inheriting it from a member that has ended.

use core::sync::atomic::AtomicU32;

use crate::End;
use crate::holders::Member;
use crate::lock::{self, Guard};

#[cold]
pub(crate) fn wait_for_tx(end: &End) -> Guard<'static> {
    wait(end, &end.entry.tx.lock)
}

#[cold]
pub(crate) fn wait_for_rx(end: &End) -> Guard<'static> {
    wait(end, &end.entry.rx.lock)
}

fn wait(end: &End, word: &'static AtomicU32) -> Guard<'static> {
    let table = end.table();
    let lives = |owner| table.is_alive(Member::of(owner));
    lock::wait(word, table.member().number(), lives)
}

/// Whether somebody who lives holds a direction.
pub(crate) fn is_held(end: &End) -> bool {
    let table = end.table();
    [&end.entry.tx.lock, &end.entry.rx.lock]
        .into_iter()
        .filter_map(lock::owner)
        .any(|owner| table.is_alive(Member::of(owner)))
}
