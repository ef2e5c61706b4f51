//! What lies between the two hosts of a schedule, as PCIe and the processors allow it: what is posted between two fences
//! arrives in any order and in parts, what stands behind a fence after all that stands before it, and a word at once. Words
//! at one place keep their order.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use crosslane_ctl::lane::receiver_flags::ARMED;
use crosslane_ctl::lane::{LANE_CONTROL_BYTES, LINE_BYTES, posted_flags};

use super::super::dice::Dice;
pub(super) use super::super::wire::name;
use super::super::{CONSUMED, ECHO, GEOMETRY, PLACE, POSTED, TCP_TOTAL};

const WORD: usize = size_of::<u64>();

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// A header leaves, fenced, before its payload.
    HeaderFirst,
    /// No fence between payload and header.
    HeaderUnfenced,
    /// What a sender has merged is not echoed.
    NoEcho,
    /// A request to be rung is lost now and then.
    RequestLost,
    /// Credit is lost now and then.
    CreditLost,
    /// All of it is.
    NoCredit,
    /// It is told for half a ring only, whatever stands in the lane.
    CreditForHalf,
    /// How much is on TCP is not told.
    NoTotal,
    /// The window does not keep its order across fences.
    Unordered,
    /// Doorbells go before the receiver has found the START before them.
    BellBeforeFound,
    /// The library's thread does not look.
    NoThread,
}

/// Words of one line that were posted at once.
#[derive(Clone, Copy, Default)]
struct Post {
    /// Where the line begins.
    at: usize,
    /// Which words are yet to arrive.
    words: u8,
    content: [u64; LINE_BYTES / WORD],
}

/// How much arrives at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A posted write, of those that may be the next.
    One,
    /// Some of its words.
    Part,
    /// All up to the next fence.
    ToFence,
    All,
}

/// One way, from the host that has this outbound memory.
pub(super) struct Way {
    from: usize,
    /// Where the other host's memory begins here.
    to: usize,
    fault: Fault,
    chance: Dice,
    /// The line of the last credit that has not been lost.
    credited: u64,
    /// By fences. The last one is being filled.
    under_way: VecDeque<Vec<Post>>,
    spare: Vec<Vec<Post>>,
    /// Words of records, of credit, and others, that were posted in all.
    pub(super) posted: Posted,
}

/// How many words were posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) records: u64,
    pub(super) credit: u64,
    pub(super) others: u64,
}

impl Posted {
    pub(super) fn add(&mut self, other: Self) {
        self.records += other.records;
        self.credit += other.credit;
        self.others += other.others;
    }
}

impl Way {
    pub(super) fn new((from, to): (usize, usize), fault: Fault, seed: u64) -> Self {
        Self {
            from,
            to,
            fault,
            chance: Dice::new(!seed),
            credited: 0,
            under_way: VecDeque::from([Vec::new()]),
            spare: Vec::new(),
            posted: Posted::default(),
        }
    }

    pub(super) fn is_from(&self, from: usize) -> bool {
        self.from == from
    }

    pub(super) fn take(&mut self, words: impl Iterator<Item = (usize, u64)>) {
        let mut post = Post::default();
        let (mut count, mut first) = (0, 0);
        for (at, word) in words {
            let line = at - at % LINE_BYTES;
            if line != post.at {
                self.put(post);
                post = Post {
                    at: line,
                    ..Post::default()
                };
            }
            if count == 0 {
                first = at;
            }
            count += 1;
            let index = at % LINE_BYTES / WORD;
            post.words |= 1 << index;
            post.content[index] = word;
        }
        let place = first % GEOMETRY.lane_bytes();
        let is_header = count == 1 && place >= LANE_CONTROL_BYTES && first == post.at;
        self.count(place, count);
        match is_header && post.content[0] != 0 {
            true => self.put_header(post),
            false if count == 1 && self.is_lost(place, post) => {}
            false => self.put(post),
        }
    }

    fn count(&mut self, place: usize, words: u64) {
        match place {
            CONSUMED => self.posted.credit += words,
            LANE_CONTROL_BYTES.. => self.posted.records += words,
            // Which processor this is changes by itself.
            PLACE => {}
            _ => self.posted.others += words,
        }
    }

    /// Whether a word at this place of a lane does not arrive.
    fn is_lost(&mut self, place: usize, post: Post) -> bool {
        let word = post.content[place % LINE_BYTES / WORD];
        match (place, self.fault) {
            // A hint, and not the same in each run of a seed.
            (PLACE, _) | (ECHO, Fault::NoEcho) | (TCP_TOTAL, Fault::NoTotal) => true,
            (POSTED, Fault::RequestLost) => {
                posted_flags::of(word).1 & ARMED != 0 && self.chance.below(4) == 0
            }
            (CONSUMED, Fault::CreditLost) => self.chance.below(4) == 0,
            (CONSUMED, Fault::NoCredit) => true,
            (CONSUMED, Fault::CreditForHalf) => {
                let line = word >> 16;
                let is_half = line >= self.credited + u64::from(GEOMETRY.ring_lines / 2);
                if is_half {
                    self.credited = line;
                }
                !is_half
            }
            _ => false,
        }
    }

    fn put(&mut self, post: Post) {
        if post.words != 0
            && let Some(last) = self.under_way.back_mut()
        {
            last.push(post);
        }
    }

    /// The header of a record, whose payload has been put and fenced just before.
    fn put_header(&mut self, post: Post) {
        let last = self.under_way.len() - 1;
        match self.fault {
            Fault::HeaderFirst => {
                let payload = last.saturating_sub(1);
                self.under_way.insert(payload, vec![post]);
            }
            Fault::HeaderUnfenced if last > 0 => self.under_way[last - 1].push(post),
            _ => self.put(post),
        }
    }

    pub(super) fn fence(&mut self) {
        if self.fault == Fault::Unordered {
            return;
        }
        if self.under_way.back().is_some_and(|last| !last.is_empty()) {
            let next = self.spare.pop().unwrap_or_default();
            self.under_way.push_back(next);
        }
    }

    /// Have something arrive. False if nothing was under way.
    pub(super) fn deliver(&mut self, dice: &mut Dice, arrival: Arrival) -> bool {
        match arrival {
            Arrival::All => self.deliver_all(),
            Arrival::ToFence => self.deliver_first(),
            Arrival::One | Arrival::Part => self.deliver_one(dice, arrival == Arrival::Part),
        }
    }

    fn deliver_all(&mut self) -> bool {
        let mut any = false;
        while self.deliver_first() {
            any = true;
        }
        any
    }

    /// All up to the next fence, of which nobody sees the order.
    fn deliver_first(&mut self) -> bool {
        let Some(first) = self.under_way.front_mut() else {
            return false;
        };
        let any = !first.is_empty();
        for post in first.drain(..) {
            arrive(self.to, &post, post.words);
        }
        self.drop_empty();
        any
    }

    fn deliver_one(&mut self, dice: &mut Dice, in_part: bool) -> bool {
        let Some(first) = self.under_way.front_mut().filter(|first| !first.is_empty()) else {
            return false;
        };
        let mut index = dice.below(first.len());
        // What was written to the same words before comes before.
        while let Some(older) = first[..index]
            .iter()
            .position(|older| older.at == first[index].at && older.words & first[index].words != 0)
        {
            index = older;
        }
        let post = first[index];
        let some = post.words & dice.next().to_le_bytes()[0];
        let words = if in_part && some != 0 {
            some
        } else {
            post.words
        };
        arrive(self.to, &post, words);
        first[index].words &= !words;
        if first[index].words == 0 {
            first.remove(index);
        }
        self.drop_empty();
        true
    }

    fn drop_empty(&mut self) {
        while self.under_way.len() > 1 && self.under_way[0].is_empty() {
            self.spare.extend(self.under_way.pop_front());
        }
    }
}

fn arrive(to: usize, post: &Post, words: u8) {
    for (index, word) in post.content.iter().enumerate() {
        if words >> index & 1 != 0 {
            let cell = core::ptr::with_exposed_provenance_mut(to + post.at + index * WORD);
            // SAFETY: an aligned word of memory that is never unmapped.
            unsafe { AtomicU64::from_ptr(cell) }.store(*word, Ordering::Release);
        }
    }
}
