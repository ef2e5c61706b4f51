//! Edges that are told once more.
//!
//! A connection that enters or leaves its rings has its registration with the kernel's set renewed,
//! and what is there is told again: whether the program has been told of it already, nobody can
//! know for sure, and an edge too many is what epoll(7) has programs expect, one too few stops them.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::Names;
use crate::side::Trace;

/// Whether `other` shows what `native` does, but for edges that it tells once more.
pub fn are_alike(native: &Trace, other: &Trace) -> bool {
    let mut edges = Edges::default();
    native.lines.len() == other.lines.len()
        && lines(native, other).all(|(native, line, is_full)| {
            edges.note(native, is_full);
            let is_alike = native == line || edges.are_once_more(native, line);
            edges.learn(native);
            is_alike
        })
}

/// The step that sleeps, or sleeps on, in one of the two, and that in the other an edge told once more has ended, if that
/// is where they part.
pub fn ended_once_more(native: &Trace, other: &Trace) -> Option<String> {
    let mut edges = Edges::default();
    for (native, other, is_full) in lines(native, other) {
        edges.note(native, is_full);
        if native != other && !edges.are_once_more(native, other) {
            let step = edges.ended_here(native, other);
            let step = step.or_else(|| edges.ended_natively(native, other));
            return step.map(|step| step.trim_start().to_owned());
        }
        edges.learn(native);
    }
    None
}

/// The lines of both, and whether a send of the other has found no room there: natively there may be less of it.
fn lines<'a>(
    native: &'a Trace,
    other: &'a Trace,
) -> impl Iterator<Item = (&'a String, &'a String, bool)> {
    let pairs = native.lines.iter().zip(&other.lines).enumerate();
    pairs.map(|(at, (native, line))| (native, line, other.full.contains(&at)))
}

/// By a set and the data of each registration there, its last one.
type Registered = BTreeMap<(String, String), Registration>;

/// What has been registered for edges.
#[derive(Default)]
struct Edges {
    of: Registered,
    names: Names,
    /// Ends by which a send has found no room, each by one of its names.
    were_blocked: BTreeSet<String>,
    /// What was registered when a call fell asleep, by its step: what has ended it is told later, when that may be gone.
    at_sleep: BTreeMap<String, Registered>,
    /// The parents of forked processes, as `@0`.
    parents: BTreeMap<String, String>,
}

/// One registration.
#[derive(Clone, Default)]
struct Registration {
    /// Whose it is, as `@0`.
    process: String,
    /// The handle it was made by.
    handle: String,
    /// Whether it is for edges, and not for one only.
    for_edges: bool,
    /// Whether its last event was of what can be read, and nothing can have come since.
    knows_all: bool,
    /// Whether a send has found no room, and no event has told of any since.
    misses_room: bool,
    /// What it has been told of since it was made or changed.
    told: BTreeSet<String>,
    /// How many there may be with this data: another socket can have been added by the same handle.
    count: usize,
}

impl Edges {
    /// Takes note of a step, as `@0 epoll-add h5 h1 IN|ET 1 => 0`, before it is compared.
    fn note(&mut self, native: &str, is_full: bool) {
        let words: Vec<_> = native.split_whitespace().collect();
        if let [
            process,
            call @ ("epoll-add" | "epoll-mod"),
            set,
            handle,
            wishes,
            data,
            "=>",
            "0",
        ] = words[..]
        {
            let has = |name| wishes.split('|').any(|event| event == name);
            let for_edges = has("ET") && !has("ONESHOT");
            let is_its = |name: &String| self.names.are_one(name, handle);
            let misses_room = self.were_blocked.iter().any(is_its);
            let key = self.key(set, data).cloned();
            let key = key.unwrap_or_else(|| (set.to_owned(), data.to_owned()));
            let registration = self.of.entry(key).or_default();
            registration.misses_room |= misses_room;
            (registration.handle, registration.for_edges) = (handle.to_owned(), for_edges);
            registration.told.clear();
            registration.process = process.to_owned();
            registration.count += usize::from(call == "epoll-add");
        }
        if let [_, "epoll-del", set, handle, "=>", "0"] = words[..] {
            let names = &self.names;
            self.of.retain(|(known, _), registration| {
                !names.are_one(known, set) || registration.handle != handle
            });
        }
        if let ["fork", parent, child, ..] = words[..] {
            self.parents.insert(child.to_owned(), parent.to_owned());
        }
        self.names.note(&words);
        if let Some(sender) = sender(&words)
            && (is_full || words[0] == "fill-and-drain" || native.ends_with("EAGAIN"))
        {
            self.were_blocked.insert(sender.to_owned());
            let at_sleep = self.at_sleep.values_mut().flat_map(BTreeMap::values_mut);
            for registration in self.of.values_mut().chain(at_sleep) {
                registration.misses_room |= self.names.are_one(sender, &registration.handle);
            }
        }
    }

    /// Who has been told what, and who knows of all that can be read, after a step: an event that differs itself is judged
    /// by what was known before.
    fn learn(&mut self, line: &str) {
        if let Some(step) = line.strip_suffix(" => sleeps") {
            self.at_sleep.insert(step.to_owned(), self.of.clone());
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let words = &words[..];
        if let Some((step, events)) = events(line) {
            for (data, bits) in events.iter().filter_map(|event| event.split_once(':')) {
                let key = self.key(set_of(step), data).cloned();
                if let Some(registration) = key.and_then(|key| self.of.get_mut(&key)) {
                    let has = |name| bits.split('|').any(|bit| bit == name);
                    registration.knows_all = has("IN");
                    registration.misses_room &= !has("OUT");
                    registration.told.extend(bits.split('|').map(str::to_owned));
                }
            }
        } else if !brings_nothing(words) {
            let (sender, refused) = (sender(words), refused(words));
            for registration in self.of.values_mut() {
                let handle = &registration.handle;
                let may_reach = match refused {
                    Some(refused) => self.names.are_one(refused, handle),
                    None => sender.is_none_or(|from| self.names.may_reach(from, handle)),
                };
                registration.knows_all &= !may_reach;
            }
        }
    }

    /// The registration with this data in a set, by any of its names.
    fn key(&self, set: &str, data: &str) -> Option<&(String, String)> {
        let is_it =
            |(known, its): &&(String, String)| its == data && self.names.are_one(known, set);
        self.of.keys().find(is_it)
    }

    /// The registration that an event of a step is of.
    fn registration(&self, step: &str, event: &str) -> Option<&Registration> {
        let data = event.split(':').next()?;
        self.of.get(self.key(set_of(step), data)?)
    }

    /// As [`Self::registration`]; where that is gone by now, or no longer for edges, as it was when the call of the step fell asleep.
    fn registration_at_sleep(&self, step: &str, event: &str) -> Option<&Registration> {
        let now = self.registration(step, event);
        let is_its = |(key, _): &(&(String, String), &Registration)| {
            event.split(':').next() == Some(&key.1) && self.names.are_one(&key.0, set_of(step))
        };
        match step.strip_prefix("  ") {
            Some(slept) if now.is_none_or(|registration| !registration.for_edges) => {
                let then = self.at_sleep.get(slept)?.iter().find(is_its);
                then.map(|(_, registration)| registration).or(now)
            }
            _ => now,
        }
    }

    fn are_once_more(&self, native: &str, other: &str) -> bool {
        if self.is_set_once_more(native, other) {
            return true;
        }
        let are_signals_same = signals(native) == signals(other);
        let (Some((step, native)), Some((same_step, other))) = (events(native), events(other))
        else {
            return false;
        };
        let missing = beyond(&native, &other);
        let added = beyond(&other, &native);
        step == same_step
            && are_signals_same
            && !(missing.is_empty() && added.is_empty())
            && missing.iter().all(|event| self.is_needless(step, event))
            && added.iter().all(|event| self.is_edge(step, event))
            && added.iter().all(|event| {
                let registration = self.registration(step, event);
                let most = registration.map_or(1, |registration| registration.count.max(1));
                times(&other, event) <= times(&native, event).max(most)
            })
    }

    /// The step, if an edge has ended a sleep that natively goes on.
    fn ended_here<'a>(&self, native: &str, other: &'a str) -> Option<&'a str> {
        let (step, answer) = other.split_once(" => ")?;
        let slept_on = step.starts_with(' ');
        let sleeps = slept_on || native.strip_prefix(step) == Some(" => sleeps");
        let is_it = match events(other) {
            Some((_, told)) => {
                !told.is_empty() && told.iter().all(|event| self.is_edge(step, event))
            }
            None => {
                let goes_on = native.ends_with(" => sleeps") || native.ends_with(" => sleeps on");
                let is_told = matches!(answer, "IN" | "1 IN" | "[r]");
                goes_on && is_told && self.is_poll_of_edges(step)
            }
        };
        (sleeps && is_it).then_some(step)
    }

    /// Whether `@1/2 poll h5 IN -1` is a poll of a set with registrations for edges.
    fn is_poll_of_edges(&self, step: &str) -> bool {
        let words: Vec<_> = step.split_whitespace().collect();
        let [who, call, set, ..] = words[..] else {
            return false;
        };
        let call = call.trim_end_matches("-masked");
        matches!(call, "poll" | "ppoll" | "select" | "pselect") && self.has_edges(who, set)
    }

    /// The step, if room that no send has missed has ended a sleep natively.
    fn ended_natively<'a>(&self, native: &'a str, other: &str) -> Option<&'a str> {
        let (step, told) = events(native)?;
        let answer = other.strip_prefix(step)?.strip_prefix(" => ")?;
        // At the end of a program those who sleep are sent a signal.
        let is_sent_home = step.starts_with(' ') && answer.starts_with("EINTR SIG");
        let sleeps = is_sent_home || matches!(answer, "sleeps" | "sleeps on");
        let is_needless = |event: &&str| self.is_needless(step, event);
        let is_it = sleeps && !told.is_empty() && told.iter().all(is_needless);
        is_it.then_some(step)
    }

    /// Whether of `@0 poll-both h1 h5 IN 0 => 1 OUT -` only the set's own readiness differs.
    fn is_set_once_more(&self, native: &str, other: &str) -> bool {
        let words = |line| str::split_whitespace(line).collect::<Vec<_>>();
        let (native, other) = (words(native), words(other));
        let [process, "poll-both", _, set, .., "=>", _, of_one, "-"] = native[..] else {
            return false;
        };
        let [.., "=>", _, of_one_here, "IN"] = other[..] else {
            return false;
        };
        let asked = |words: &[&str]| words.len().saturating_sub(4);
        let is_same_step = native[..asked(&native)] == other[..asked(&other)];
        is_same_step && self.has_edges(process, set) && of_one == of_one_here
    }

    /// Whether a set, by any of its names, has registrations for edges of a process, as `@0`, or `@0/1` for a thread of its, or of
    /// one that it may have the set in common with.
    fn has_edges(&self, who: &str, set: &str) -> bool {
        let process = who.split('/').next().unwrap_or_default();
        let mut of_set = self.of.iter().filter(|((known, _), registration)| {
            self.oldest(process) == self.oldest(&registration.process)
                && self.names.are_one(known, set)
        });
        of_set.any(|(_, registration)| registration.for_edges)
    }

    /// The process that a process and its parents descend from.
    fn oldest<'a>(&'a self, mut process: &'a str) -> &'a str {
        while let Some(parent) = self.parents.get(process) {
            process = parent;
        }
        process
    }

    /// Whether a registration is told of room that no send has missed: the kernel says what is ready whenever
    /// something else has come, even if that has been read since, and over AF_UNIX whenever the peer has received
    /// something, with what is there to be read and was told before. The library tells of room that was missed.
    /// Or it is told once more of an end, of a HUP also when the other host has acknowledged it; with such room, too.
    fn is_needless(&self, step: &str, event: &str) -> bool {
        let Some((_, bits)) = event.split_once(':') else {
            return false;
        };
        self.registration(step, event).is_some_and(|registration| {
            let has_old_room = bits.split('|').any(|bit| bit == "OUT") && !registration.misses_room;
            let is_old = |bit| match bit {
                "OUT" => has_old_room,
                "IN" => has_old_room && registration.knows_all,
                end => is_lasting_end(end) && registration.told.contains(end),
            };
            bits.split('|').all(is_old) && registration.for_edges
        })
    }

    /// Whether an event is of a registration for edges, and of nothing but what it has been told of, or room that no send
    /// has missed; or that a set has become readable which has such registrations.
    fn is_edge(&self, step: &str, event: &str) -> bool {
        let who = step.split_whitespace().next().unwrap_or_default();
        let Some((_, bits)) = event.split_once(':') else {
            return false;
        };
        self.registration_at_sleep(step, event)
            .is_some_and(|registration| {
                let has_room = !registration.misses_room;
                let is_known = |bit| registration.told.contains(bit) || bit == "OUT" && has_room;
                let is_of_set = || self.has_edges(who, &registration.handle);
                registration.for_edges && bits.split('|').all(is_known)
                    || bits == "IN" && is_of_set()
            })
    }
}

/// How often the registration of an event is told.
fn times(events: &[&str], event: &str) -> usize {
    let data = |event: &str| event.split(':').next().map(str::to_owned);
    let mut same = events.to_vec();
    same.retain(|other| data(other) == data(event));
    same.len()
}

/// The events that `these` has beyond those of `others`, as often as it has more of them.
fn beyond<'a>(these: &[&'a str], others: &[&str]) -> Vec<&'a str> {
    let mut left = others.to_vec();
    let mut beyond = these.to_vec();
    beyond.retain(|event| match left.iter().position(|other| other == event) {
        Some(place) => {
            left.swap_remove(place);
            false
        }
        None => true,
    });
    beyond
}

/// The set of `@0 epoll-wait h5 32 0`.
fn set_of(step: &str) -> &str {
    step.split_whitespace().nth(2).unwrap_or_default()
}

/// Whether an event stays once it is told.
fn is_lasting_end(bit: &str) -> bool {
    matches!(bit, "HUP" | "RDHUP")
}

/// Calls that bring nobody anything to read, besides receives, polls and duplicates.
const QUIET: [&str; 17] = [
    "select",
    "pselect",
    "pselect-masked",
    "names-short",
    "tee",
    "vmsplice",
    "copy-range",
    "splice-in",
    "fionread",
    "outq",
    "atmark",
    "nonblock",
    "setfd",
    "fstat",
    "names",
    "socket",
    "listen",
];

/// The handle by which a step sends, if it is one that does.
fn sender<'a>(words: &[&'a str]) -> Option<&'a str> {
    match words {
        ["fill-and-drain" | "transfer", from, ..] => from.split(':').nth(1),
        [_, call, handle, ..] => {
            let sends = call.starts_with("send")
                || call.contains("write")
                || matches!(*call, "splice-out" | "fill" | "dprintf");
            sends.then_some(*handle)
        }
        _ => None,
    }
}

/// The handle of a connection that finds nobody, which concerns nobody else.
fn refused<'a>(words: &[&'a str]) -> Option<&'a str> {
    match words {
        [_, "connect-nobody", handle, ..] => Some(handle),
        _ => None,
    }
}

/// Whether a step is one that brings nobody anything to read.
fn brings_nothing(words: &[&str]) -> bool {
    let [_, call, ..] = words else { return false };
    let receives = call.starts_with("recv")
        || call.contains("read")
        || call.contains("poll")
        || call.starts_with("dup")
        || call.starts_with("get");
    (receives || QUIET.contains(call)) && words[0].starts_with('@')
        || matches!(words[0], "pair" | "pause" | "fork")
}

/// The step and the events of `@0 epoll-wait h5 32 0 => [1:IN 2:OUT]`, behind which signals may stand. A signal that has been
/// sent before the call ends one that has none.
fn events(line: &str) -> Option<(&str, Vec<&str>)> {
    let (step, answer) = line.split_once(" => ")?;
    let is_wait = step.contains(" epoll-wait ") || step.contains(" epoll-pwait");
    let is_ended = step.ends_with(" PENDING") && answer.starts_with("EINTR SIG");
    let events = match answer.strip_prefix('[') {
        Some(told) => told.split_once(']')?.0,
        None if is_ended => "",
        None => return None,
    };
    is_wait.then(|| (step, events.split_whitespace().collect()))
}

/// The signals that a step tells of.
fn signals(line: &str) -> Option<&str> {
    line.find(" SIG").map(|at| &line[at..])
}

#[cfg(test)]
mod tests;
