//! The lanes between hosts that an end is in, as the monitor sees them: in the process's own table, by the end's token. So an
//! end whose state is in the table of who has lent it shows them in both. Each process that has such an end shows in its own
//! table what it has done itself.

use core::sync::atomic::{AtomicU64, Ordering};

use crosslane_ctl::slab::EndEntry;

use crate::End;

/// The end is about to take these lanes, or with 0 it has.
pub(crate) fn coming(end: &End, pair: u64) {
    show(end, |entry| &entry.rx.coming, pair);
}

/// The end has these lanes.
pub(crate) fn lanes(end: &End, pair: u64) {
    show(end, |entry| &entry.wait.pair, pair);
}

/// What stood unread in these lanes is about to be sent.
pub(crate) fn shipped(end: &End, pair: u64) {
    show(end, |entry| &entry.wait.shipped, pair);
}

/// The end has no lanes any more. Another process may have sent what stood there.
pub(crate) fn no_lanes(end: &End) {
    shipped(end, end.entry.wait.shipped.load(Ordering::SeqCst));
    lanes(end, 0);
}

fn show(end: &End, word: impl Fn(&EndEntry) -> &AtomicU64, pair: u64) {
    word(end.entry).store(pair, Ordering::SeqCst);
    let process = end.process();
    let own = process.own_entry(end.index);
    // Another thread may have closed the end, and its place be another's.
    let is_still = core::ptr::eq(process.entry(end.index), end.entry);
    if is_still && !core::ptr::eq(own, end.entry) {
        word(own).store(pair, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, IntoRawFd};

    use crosslane_ctl::slab::EndPhase;
    use crosslane_window::slab::SlabMap;

    use super::*;
    use crate::adopt::identity_of;
    use crate::control::OwnFd;
    use crate::family::Family;
    use crate::register;
    use crate::table::{Home, Table};

    const PAIR: u64 = 70;

    /// What two entries show.
    fn seen(entries: [&EndEntry; 2]) -> [[u64; 3]; 2] {
        entries.map(|entry| {
            let words = [&entry.rx.coming, &entry.wait.pair, &entry.wait.shipped];
            words.map(|word| word.load(Ordering::SeqCst))
        })
    }

    #[test]
    fn who_has_adopted_an_end_shows_its_lanes_by_its_own_token() {
        crosslane_sys::process::resolve();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = socket.as_raw_fd();
        let own = register::track(fd, Family::Tcp, false, None).unwrap();
        let process = own.process();
        let (map, slab) = SlabMap::create(1).unwrap();
        let (identity, slab) = identity_of(slab).unwrap();
        let table = Table::join(map, OwnFd::new(slab.into_raw_fd()), identity);
        let table = process.welcome(table).unwrap();
        let index = 3;
        own.local
            .home
            .store(Home { table, index }.word(), Ordering::Release);
        let end = End::at(process, own.index, fd);
        assert!(!core::ptr::eq(end.entry, own.entry));
        let both = [end.entry, own.entry];

        coming(&end, PAIR);
        lanes(&end, PAIR);
        assert_eq!(seen(both), [[PAIR, PAIR, 0]; 2]);
        coming(&end, 0);
        shipped(&end, PAIR);
        assert_eq!(seen(both), [[0, PAIR, PAIR]; 2]);
        // Another process has sent what stood in later lanes.
        lanes(&end, PAIR + 1);
        end.entry.wait.shipped.store(PAIR + 1, Ordering::SeqCst);
        no_lanes(&end);
        assert_eq!(seen(both), [[0, 0, PAIR + 1]; 2]);

        // It has been closed since.
        own.local.home.store(0, Ordering::Release);
        lanes(&end, PAIR);
        assert_eq!(own.entry.wait.pair.load(Ordering::SeqCst), 0);
        own.set_phase(EndPhase::Plain);
    }
}
