//! Connections that a poll sleeps on, whatever their numbers name by now.
//!
//! The kernel keeps the files that a poll has begun to sleep on until it returns, and wakes it for what comes to them;
//! what it then tells is of what the numbers name by then. A doorbell or a passage between memory and TCP, of which
//! the program is to see nothing, must not have it look.

use crosslane_ctl::slab::Mode;
use crosslane_stream::ready::{self, SeenByTcp};
use crosslane_stream::stay::Stay;
use crosslane_stream::{End, gone};
use libc::pollfd;

/// The connections of one call.
#[derive(Default)]
pub struct Kept(Vec<One>);

struct One {
    /// Of its number in the call.
    place: usize,
    stay: Stay,
    /// What had come when it last woke the call in vain.
    woke: Option<Arrivals>,
    /// As [`gone::shutdowns`] tells, when the call last looked.
    shutdowns: u32,
}

#[derive(Clone, Copy)]
struct Arrivals {
    line: u64,
    tcp: SeenByTcp,
}

/// A connection whose number names something else, or nothing.
pub struct Stray {
    pub place: usize,
    pub end: End,
    /// Whether something has come that wakes the call.
    pub wakes: bool,
    /// Whether what is there has woken the call, now or before.
    pub has_woken: bool,
}

impl Kept {
    /// Before a sleep; the first of a call counts. Those without rings among them: the sleep is begun again for what
    /// comes to the others, and must not lose them then.
    pub fn begin_once(&mut self, fds: &[pollfd]) {
        if !self.0.is_empty() {
            return;
        }
        let stays = fds.iter().enumerate().filter_map(|(place, one)| {
            let stay = Stay::begin(&End::of(one.fd)?).ok()?;
            Some(One {
                place,
                shutdowns: gone::shutdowns(&stay.end()),
                stay,
                woke: None,
            })
        });
        self.0 = stays.collect();
    }

    /// Those whose number names something else. One that wakes the call does so once, as does a shutdown of any.
    pub fn strays(&mut self, fds: &[pollfd]) -> Vec<Stray> {
        let is_shut = self
            .0
            .iter_mut()
            .fold(false, |is_shut, one| is_shut | one.is_shut());
        let strays = self.0.iter_mut().filter(|one| !one.stay.has_name());
        let mut strays: Vec<Stray> = strays.map(|one| one.look(fds[one.place].events)).collect();
        strays.iter_mut().for_each(|stray| stray.wakes |= is_shut);
        strays
    }

    /// Whether there has been a shutdown since [`Kept::strays`].
    pub fn is_shut(&self) -> bool {
        let is_shut = |one: &One| one.shutdowns != gone::shutdowns(&one.stay.end());
        self.0.iter().any(is_shut)
    }

    /// Whether there was a connection at this place when the call began.
    pub fn has(&self, place: usize) -> bool {
        self.0.iter().any(|one| one.place == place)
    }

    /// What the call has begun with, with its places.
    pub fn ends(&self) -> impl Iterator<Item = (usize, End)> {
        self.0.iter().map(|one| (one.place, one.stay.end()))
    }
}

impl One {
    /// Whether it has been shut down since this was last asked, for which the kernel wakes everybody.
    fn is_shut(&mut self) -> bool {
        let shutdowns = gone::shutdowns(&self.stay.end());
        core::mem::replace(&mut self.shutdowns, shutdowns) != shutdowns
    }

    fn look(&mut self, wanted: i16) -> Stray {
        let end = self.stay.end();
        let is_ready = ready::look(&end, wanted, true) != 0;
        let wakes = is_ready && self.woke.is_none_or(|before| before.is_behind(&end));
        if wakes {
            self.woke = Some(Arrivals::now(&end));
        }
        Stray {
            place: self.place,
            end,
            wakes,
            has_woken: is_ready,
        }
    }
}

impl Arrivals {
    fn now(end: &End) -> Self {
        Self {
            line: ready::arrived_up_to(end, 0),
            tcp: ready::seen_by_tcp(end),
        }
    }

    /// Whether something has come since. What TCP brings beside a ring are doorbells.
    fn is_behind(&self, end: &End) -> bool {
        let tcp = ready::seen_by_tcp(end);
        let by_tcp = end.rx_mode() != Mode::Ring && tcp.arrived > self.tcp.arrived;
        by_tcp || tcp.ends & !self.tcp.ends != 0 || ready::has_arrived_since(end, self.line)
    }
}
