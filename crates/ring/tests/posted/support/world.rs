//! Two hosts and what lies between them, as bad as the rules allow.
//!
//! Allowed is, in each direction:
//! - writes gather in write-combining buffers of a line, which are emptied in whole or in part, in any
//!   order, when they like, and perhaps never; a fence empties them;
//! - what has left the buffers is a queue of transactions that arrive in order, arbitrarily late; the words
//!   of one transaction arrive in any order;
//! - a host's own stores reach its memory late, too, but in order, and before any transaction whose writes
//!   came after a fence behind them;
//! - where the memory is not kept coherent, a host reads what its caches hold, and they fetch lines when
//!   they like, until it refreshes them;
//! - nothing orders one direction against the other, or either against doorbells.
//!
//! A word of eight bytes is never torn. All comes from one seed, and nothing here knows of lanes but
//! the places of their words, which [`Fault`] needs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::posted::{RING, receiver, sender};
use crosslane_ring::posted::memory::{Local, Remote};

use super::dice::Dice;

const WORD: usize = 8;
const LINE_WORDS: usize = LINE_BYTES / WORD;

/// More open buffers than these force one to be emptied.
const BUFFERS: usize = 6;

/// What is done wrong on purpose, to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The header is written and fenced before the payload.
    HeaderBeforePayload,
    /// No fence between payload and header.
    HeaderUnfenced,
    /// No fence after the header: it stays in its buffer.
    HeaderNotPushed,
    /// Lines that were read are not cleared.
    NoClear,
    /// Lines are cleared after their credit was returned.
    ClearAfterCredit,
    /// No fence between clearing and credit.
    CreditUnfenced,
    /// No fence after credit.
    CreditNotPushed,
    /// No fence after a request or its answer.
    RequestNotPushed,
    /// An answer overtakes the records that it speaks of.
    AnswerOvertakes,
    /// Caches are not refreshed before a look.
    NoRefresh,
    /// The window itself delivers transactions in any order, against the rules.
    UnorderedWire,
}

/// How this world likes to behave.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// How often something happens beside each access, in 256.
    pub turmoil: u8,
    /// How often a word arrives rather than something else, in 256, by the host that sent it.
    pub delivery: [u8; 2],
    /// Whether memory is kept coherent with the caches of its host.
    pub coherent: bool,
}

/// A line of writes that has not left its processor.
struct Buffer {
    line: usize,
    words: [Option<u64>; LINE_WORDS],
    after: u64,
}

/// Words that arrive before any of the next transaction does.
struct Transaction {
    words: Vec<(usize, u64)>,
    /// How many of the host's own stores come before it.
    after: u64,
}

#[derive(Default)]
struct Host {
    /// Its own memory.
    words: Vec<u64>,
    /// Its own stores that have not reached its memory.
    stores: VecDeque<(usize, u64)>,
    /// How many have, ever.
    performed: u64,
    /// How many there had been at the last fence.
    fenced: u64,
    /// Lines that its caches hold, by number; used where memory is not coherent.
    cache: Vec<Option<[u64; LINE_WORDS]>>,
    /// Writes to the other host.
    buffers: Vec<Buffer>,
    wire: VecDeque<Transaction>,
    held: Held,
}

/// What a [`Fault`] keeps back, and what it has seen.
#[derive(Default)]
struct Held {
    payload: Vec<(usize, u64)>,
    clears: Vec<usize>,
    wrote_payload: bool,
    cleared: bool,
    last_store: Option<usize>,
}

/// Everything, behind the memories of both hosts.
pub struct World {
    hosts: [Host; 2],
    dice: Dice,
    habits: Habits,
    fault: Fault,
}

/// One host's access to the world.
#[derive(Clone)]
pub struct Access {
    world: Rc<RefCell<World>>,
    host: usize,
}

impl World {
    /// A world between two memories of so many bytes: each host's access to it.
    pub fn between(bytes: usize, seed: u64, habits: Habits, fault: Fault) -> [Access; 2] {
        let host = || Host {
            words: vec![0; bytes / WORD],
            cache: vec![
                None;
                if habits.coherent {
                    0
                } else {
                    bytes / LINE_BYTES
                }
            ],
            ..Host::default()
        };
        let world = Rc::new(RefCell::new(Self {
            hosts: [host(), host()],
            dice: Dice::new(seed),
            habits,
            fault,
        }));
        [0, 1].map(|host| Access {
            world: Rc::clone(&world),
            host,
        })
    }

    /// Something that the processors and the wires may do by themselves. Whether anything happened.
    fn stir(&mut self) -> bool {
        let host = self.dice.below(2);
        if self.dice.happens(self.habits.delivery[host]) {
            return self.deliver(host);
        }
        match self.dice.below(3) {
            0 => self.empty_some(host),
            1 => self.perform_store(host),
            _ => self.fetch(host),
        }
    }

    /// Let a word arrive that `host` has sent.
    fn deliver(&mut self, host: usize) -> bool {
        let waiting = self.hosts[host].wire.len();
        let ordered = self.fault != Fault::UnorderedWire;
        let first = match waiting {
            0 => return false,
            _ if ordered => 0,
            _ => self.dice.below(waiting),
        };
        let performed = self.hosts[host].performed;
        let Transaction { words, after } = &mut self.hosts[host].wire[first];
        if *after > performed {
            return self.perform_store(host);
        }
        let (index, word) = words.swap_remove(self.dice.below(words.len()));
        if words.is_empty() {
            self.hosts[host].wire.remove(first);
        }
        self.hosts[1 - host].words[index] = word;
        true
    }

    /// Let a part of a buffer leave.
    fn empty_some(&mut self, host: usize) -> bool {
        let Self { hosts, dice, .. } = self;
        let Host { buffers, wire, .. } = &mut hosts[host];
        if buffers.is_empty() {
            return false;
        }
        let chosen = dice.below(buffers.len());
        let everything = dice.happens(128);
        let mut leaving = Vec::new();
        let Buffer { line, words, after } = &mut buffers[chosen];
        let after = *after;
        for (index, word) in words.iter_mut().enumerate() {
            if word.is_some() && (everything || dice.happens(128)) {
                leaving.extend(word.take().map(|word| (*line * LINE_WORDS + index, word)));
            }
        }
        if words.iter().all(Option::is_none) {
            buffers.swap_remove(chosen);
        }
        if leaving.is_empty() {
            return false;
        }
        let words = leaving;
        wire.push_back(Transaction { words, after });
        true
    }

    /// Let a host's own store reach its memory.
    fn perform_store(&mut self, host: usize) -> bool {
        let Host {
            stores,
            words,
            cache,
            performed,
            ..
        } = &mut self.hosts[host];
        let Some((index, word)) = stores.pop_front() else {
            return false;
        };
        words[index] = word;
        *performed += 1;
        if let Some(line) = cache.get_mut(index / LINE_WORDS) {
            *line = None;
        }
        true
    }

    /// Let a cache fetch a line.
    fn fetch(&mut self, host: usize) -> bool {
        let Host { cache, words, .. } = &mut self.hosts[host];
        if cache.is_empty() {
            return false;
        }
        let line = self.dice.below(cache.len());
        Self::fill(cache, words, line);
        true
    }

    fn fill(
        cache: &mut [Option<[u64; LINE_WORDS]>],
        words: &[u64],
        line: usize,
    ) -> [u64; LINE_WORDS] {
        *cache[line].get_or_insert_with(|| {
            let words = &words[line * LINE_WORDS..(line + 1) * LINE_WORDS];
            words.try_into().expect("a line")
        })
    }

    fn disturb(&mut self) {
        while self.dice.happens(self.habits.turmoil) {
            self.stir();
        }
    }

    fn post(&mut self, host: usize, index: usize, word: u64) {
        let line = index / LINE_WORDS;
        let buffers = &mut self.hosts[host].buffers;
        let open = buffers.iter_mut().find(|buffer| buffer.line == line);
        if let Some(buffer) = open {
            buffer.words[index % LINE_WORDS] = Some(word);
            return;
        }
        let mut words = [None; LINE_WORDS];
        words[index % LINE_WORDS] = Some(word);
        let after = self.hosts[host].fenced;
        self.hosts[host].buffers.push(Buffer { line, words, after });
        while self.hosts[host].buffers.len() > BUFFERS {
            self.empty_some(host);
        }
    }

    fn fence(&mut self, host: usize) {
        let Host {
            performed, stores, ..
        } = &self.hosts[host];
        self.hosts[host].fenced = performed + stores.len() as u64;
        while !self.hosts[host].buffers.is_empty() {
            self.empty_some(host);
        }
    }

    fn load(&mut self, host: usize, index: usize) -> u64 {
        let Host {
            stores,
            words,
            cache,
            ..
        } = &mut self.hosts[host];
        let own = stores.iter().rev().find(|(at, _)| *at == index);
        if let Some((_, word)) = own {
            return *word;
        }
        match cache.is_empty() {
            true => words[index],
            false => Self::fill(cache, words, index / LINE_WORDS)[index % LINE_WORDS],
        }
    }

    fn is_header(at: usize) -> bool {
        at >= RING && at.is_multiple_of(LINE_BYTES)
    }

    fn is_answer(at: usize) -> bool {
        [sender::ACKNOWLEDGED, receiver::ACKNOWLEDGED].contains(&at)
    }

    /// Whether the fault leaves this fence out.
    fn is_left_out(&self, host: usize) -> bool {
        let held = &self.hosts[host].held;
        let last = held.last_store;
        let requests = [receiver::ARMED, sender::SPACE_WANTED];
        match self.fault {
            Fault::HeaderUnfenced => held.wrote_payload,
            Fault::HeaderNotPushed => last.is_some_and(Self::is_header),
            Fault::CreditUnfenced => held.cleared,
            Fault::CreditNotPushed => last == Some(receiver::CONSUMED),
            Fault::RequestNotPushed => {
                last.is_some_and(|at| Self::is_answer(at) || requests.contains(&at))
            }
            _ => false,
        }
    }

    fn write_word(&mut self, host: usize, at: usize, word: u64) {
        self.hosts[host].held.wrote_payload = true;
        self.hosts[host].held.last_store = None;
        if self.fault == Fault::HeaderBeforePayload {
            self.hosts[host].held.payload.push((at / WORD, word));
        } else {
            self.post(host, at / WORD, word);
        }
    }

    fn store_word(&mut self, host: usize, at: usize, word: u64) {
        if self.fault == Fault::AnswerOvertakes && Self::is_answer(at) {
            let words = vec![(at / WORD, word)];
            let overtaking = Transaction { words, after: 0 };
            self.hosts[host].wire.push_front(overtaking);
            return;
        }
        self.post(host, at / WORD, word);
        self.hosts[host].held.last_store = Some(at);
        self.hosts[host].held.wrote_payload = false;
        if !self.hosts[host].held.payload.is_empty() && Self::is_header(at) {
            self.fence(host);
            for (index, word) in std::mem::take(&mut self.hosts[host].held.payload) {
                self.post(host, index, word);
            }
        }
        if self.fault == Fault::ClearAfterCredit && at == receiver::CONSUMED {
            self.fence(host);
            let clears = std::mem::take(&mut self.hosts[host].held.clears);
            let stores = clears.into_iter().map(|index| (index, 0));
            self.hosts[host].stores.extend(stores);
        }
    }

    fn clear_word(&mut self, host: usize, at: usize) {
        self.hosts[host].held.cleared = true;
        match self.fault {
            Fault::NoClear => {}
            Fault::ClearAfterCredit => self.hosts[host].held.clears.push(at / WORD),
            _ => self.hosts[host].stores.push_back((at / WORD, 0)),
        }
    }
}

impl Access {
    /// Let the world do something. Whether it did.
    pub fn stir(&self) -> bool {
        self.world.borrow_mut().stir()
    }

    /// Put a word into this host's memory before anything begins.
    pub fn preset(&self, at: usize, word: u64) {
        self.world.borrow_mut().hosts[self.host].words[at / WORD] = word;
    }

    /// Whether nothing is under way.
    pub fn is_settled(&self) -> bool {
        let world = self.world.borrow();
        let idle = |host: &Host| host.wire.is_empty() && host.stores.is_empty();
        world.hosts.iter().all(idle)
    }

    fn with<T>(&self, act: impl FnOnce(&mut World, usize) -> T) -> T {
        let world = &mut *self.world.borrow_mut();
        world.disturb();
        act(world, self.host)
    }
}

impl Local for Access {
    fn refresh(&self, at: usize, bytes: usize) {
        self.with(|world, host| {
            let cache = &mut world.hosts[host].cache;
            if !cache.is_empty() && world.fault != Fault::NoRefresh {
                cache[at / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES)].fill(None);
            }
        });
    }

    fn load(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(WORD));
        self.with(|world, host| world.load(host, at / WORD))
    }

    unsafe fn copy_out(&self, at: usize, to: *mut u8, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            let (index, skipped) = ((at + done) / WORD, (at + done) % WORD);
            let word = self
                .with(|world, host| world.load(host, index))
                .to_le_bytes();
            let piece = (WORD - skipped).min(bytes - done);
            // SAFETY: the caller's promise, for bytes `done` on.
            unsafe {
                to.wrapping_add(done)
                    .copy_from_nonoverlapping(word[skipped..].as_ptr(), piece)
            };
            done += piece;
        }
    }

    fn clear(&self, at: usize) {
        self.with(|world, host| world.clear_word(host, at));
    }
}

impl Remote for Access {
    unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        for index in 0..words {
            let from = from.wrapping_add(index * WORD).cast::<u64>();
            // SAFETY: the caller's promise, for word `index`.
            let word = unsafe { from.read_unaligned() };
            self.with(|world, host| world.write_word(host, at + index * WORD, word));
        }
    }

    fn store(&self, at: usize, word: u64) {
        self.with(|world, host| world.store_word(host, at, word));
    }

    fn fence(&self) {
        self.with(|world, host| {
            let left_out = world.is_left_out(host);
            let held = &mut world.hosts[host].held;
            (held.wrote_payload, held.cleared, held.last_store) = (false, false, None);
            if !left_out {
                world.fence(host);
            }
        });
    }
}
