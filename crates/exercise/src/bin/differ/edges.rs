//! Edges that are told once more.
//!
//! A connection that enters or leaves its rings has its registration with the kernel's set renewed,
//! and what is there is told again: whether the program has been told of it already, nobody can
//! know for sure, and an edge too many is what epoll(7) has programs expect, one too few stops them.

use std::collections::{BTreeMap, BTreeSet};

use crate::side::Trace;

/// Whether `other` shows what `native` does, but for edges that it tells once more.
pub fn are_alike(native: &Trace, other: &Trace) -> bool {
    let mut edges = Edges::default();
    native.lines.len() == other.lines.len()
        && native
            .lines
            .iter()
            .zip(&other.lines)
            .all(|(native, other)| {
                edges.note(native);
                native == other || edges.are_once_more(native, other)
            })
}

/// The step that sleeps, or sleeps on, in one of the two, and that in the other an edge told once more has ended, if that
/// is where they part.
pub fn ended_once_more(native: &Trace, other: &Trace) -> Option<String> {
    let mut edges = Edges::default();
    for (native, other) in native.lines.iter().zip(&other.lines) {
        edges.note(native);
        if native != other && !edges.are_once_more(native, other) {
            let step = edges.ended_here(native, other);
            let step = step.or_else(|| edges.ended_natively(native, other));
            return step.map(|step| step.trim_start().to_owned());
        }
    }
    None
}

/// What has been registered for edges.
#[derive(Default)]
struct Edges {
    /// By the data of each registration, whether its last one was for edges, and not for one only.
    of: BTreeMap<String, bool>,
    /// Sets with such registrations, as `@0 h5`.
    sets: BTreeSet<String>,
    /// A send has found no room.
    were_blocked: bool,
}

impl Edges {
    /// Takes note of `@0 epoll-add h5 h1 IN|ET 1 => 0`.
    fn note(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [
            process,
            "epoll-add" | "epoll-mod",
            set,
            _,
            events,
            data,
            "=>",
            "0",
        ] = words[..]
        {
            let has = |name| events.split('|').any(|event| event == name);
            let for_edges = has("ET") && !has("ONESHOT");
            self.of.insert(data.to_owned(), for_edges);
            if for_edges {
                self.sets.insert(format!("{process} {set}"));
            }
        }
        let may_block = ["fill-and-drain", "send", "write", "splice-out"];
        let is_it = may_block.iter().any(|call| line.contains(call));
        self.were_blocked |= is_it && (line.ends_with("EAGAIN") || line.contains("fill"));
    }

    fn are_once_more(&self, native: &str, other: &str) -> bool {
        if self.is_set_once_more(native, other) {
            return true;
        }
        let (Some((step, native)), Some((same_step, other))) = (events(native), events(other))
        else {
            return false;
        };
        step == same_step
            && native
                .iter()
                .all(|event| other.contains(event) || self.is_needless(event))
            && other
                .iter()
                .filter(|event| !native.contains(event))
                .all(|event| self.is_edge(event))
    }

    /// The step, if an edge has ended a sleep that natively goes on.
    fn ended_here<'a>(&self, native: &str, other: &'a str) -> Option<&'a str> {
        let (step, told) = events(other)?;
        let slept_on = step.starts_with(' ');
        let sleeps = slept_on || native.strip_prefix(step) == Some(" => sleeps");
        let is_it = sleeps && !told.is_empty() && told.iter().all(|event| self.is_edge(event));
        is_it.then_some(step)
    }

    /// The step, if room that no send has missed has ended a sleep natively.
    fn ended_natively<'a>(&self, native: &'a str, other: &str) -> Option<&'a str> {
        let (step, told) = events(native)?;
        let answer = other.strip_prefix(step)?.strip_prefix(" => ")?;
        // At the end of a program those who sleep are sent a signal.
        let is_sent_home = step.starts_with(' ') && answer.starts_with("EINTR SIGUSR1");
        let sleeps = is_sent_home || matches!(answer, "sleeps" | "sleeps on");
        let is_it = sleeps && !told.is_empty() && told.iter().all(|event| self.is_needless(event));
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
        let has_edges = self.sets.contains(&format!("{process} {set}"));
        is_same_step && has_edges && of_one == of_one_here
    }

    /// Whether a registration is told of room that no send has missed: the kernel says what is ready whenever
    /// something else has come, even if that has been read since. The library tells of room that was missed.
    fn is_needless(&self, event: &str) -> bool {
        !self.were_blocked && event.ends_with(":OUT") && self.is_edge(event)
    }

    fn is_edge(&self, event: &str) -> bool {
        let data = event.split(':').next().unwrap_or_default();
        self.of.get(data) == Some(&true)
    }
}

/// The step and the events of `@0 epoll-wait h5 32 0 => [1:IN 2:OUT]`.
fn events(line: &str) -> Option<(&str, Vec<&str>)> {
    let (step, answer) = line.split_once(" => ")?;
    let is_wait = step.contains(" epoll-wait ") || step.contains(" epoll-pwait ");
    let events = answer.strip_prefix('[')?.strip_suffix(']')?;
    is_wait.then(|| (step, events.split_whitespace().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_alike(native: &str, other: &str) -> bool {
        let trace = |last: &str| Trace {
            lines: [
                "@0 epoll-add h5 h1 IN|ET 1 => 0",
                "@0 epoll-add h5 h2 IN 2 => 0",
                "@0 epoll-add h5 h3 IN|ET|ONESHOT 3 => 0",
                "@0 epoll-add h5 h2 IN|ET 2 => EEXIST",
                last,
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Trace::default()
        };
        super::are_alike(&trace(native), &trace(other))
    }

    #[test]
    fn an_edge_too_many_is_allowed_and_one_too_few_is_not() {
        let (without, with) = (
            "@0 epoll-wait h5 9 0 => []",
            "@0 epoll-wait h5 9 0 => [1:IN]",
        );
        assert!(are_alike(without, with));
        assert!(!are_alike(with, without));
    }

    #[test]
    fn room_is_told_of_where_a_send_has_missed_it() {
        let (with, without) = (
            "@0 epoll-wait h5 9 0 => [1:OUT]",
            "@0 epoll-wait h5 9 0 => []",
        );
        assert!(are_alike(with, without));
        assert!(!are_alike("@0 epoll-wait h5 9 0 => [2:OUT]", without));
        assert!(!are_alike("@0 epoll-wait h5 9 0 => [1:IN|OUT]", without));
        let trace = |last: &str| Trace {
            lines: [
                "@0 epoll-add h5 h1 IN|OUT|ET 1 => 0",
                "@0 send h1 5 DONTWAIT => EAGAIN",
                last,
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Trace::default()
        };
        assert!(!super::are_alike(&trace(with), &trace(without)));
    }

    #[test]
    fn a_set_with_edges_may_be_ready_once_more() {
        let native = "@0 poll-both h9 h5 IN 0 => 1 OUT -";
        assert!(are_alike(native, "@0 poll-both h9 h5 IN 0 => 2 OUT IN"));
        assert!(!are_alike(native, "@0 poll-both h9 h5 IN 0 => 2 IN IN"));
        assert!(!are_alike(native, "@1 poll-both h9 h5 IN 0 => 2 OUT IN"));
        let plain = "@0 poll-both h9 h6 IN 0 => 0 - -";
        assert!(!are_alike(plain, "@0 poll-both h9 h6 IN 0 => 1 - IN"));
        assert!(!are_alike(
            "@0 poll-both h9 h5 IN 0 => 1 - IN",
            "@0 poll-both h9 h5 IN 0 => 0 - -"
        ));
    }

    #[test]
    fn a_sleep_that_an_edge_too_many_ends_is_found() {
        let add = "@0 epoll-add h5 h1 IN|ET 1 => 0";
        let step = "@0/1 epoll-wait h5 9 -1";
        let trace = |lines: &[&str]| Trace {
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
            ..Trace::default()
        };
        let sleeps = format!("{step} => sleeps");
        let native = trace(&[add, &sleeps, "@0 recv h1 0 - => 0"]);
        let ended = |lines: &[&str]| ended_once_more(&native, &trace(lines));
        let found = Some(step.to_owned());
        assert_eq!(ended(&[add, &format!("{step} => [1:IN]")]), found);
        assert_eq!(
            ended(&[add, &sleeps, &format!("  {step} => [1:IN]")]),
            found
        );
        assert_eq!(ended(&[add, &format!("{step} => [2:IN]")]), None);
        assert_eq!(ended(&[add, &format!("{step} => []")]), None);
        assert_eq!(ended(&[add, &sleeps, "@0 recv h1 0 - => EPIPE"]), None);
    }

    #[test]
    fn a_sleep_that_needless_room_ends_natively_is_found() {
        let add = "@0 epoll-add h5 h1 IN|OUT|ET 1";
        let step = "@0/1 epoll-wait h5 9 -1";
        let trace = |lines: &[&str]| Trace {
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
            ..Trace::default()
        };
        let (sleeps, sleeps_on) = (
            format!("{step} => sleeps"),
            format!("  {step} => sleeps on"),
        );
        let added = format!("{add} => 0");
        let ended = |before: &[&str], native: &str, other: &str| {
            let lines = |last| trace(&[before, &[last]].concat());
            ended_once_more(&lines(native), &lines(other))
        };
        let told = |events: &str| format!("{step} => {events}");
        let found = Some(step.to_owned());
        assert_eq!(ended(&[&added], &told("[1:OUT]"), &sleeps), found);
        let woken = format!("  {step} => [1:OUT]");
        assert_eq!(ended(&[&added], &woken, &sleeps_on), found);
        let sent_home = format!("  {step} => EINTR SIGUSR1*1");
        assert_eq!(ended(&[&added], &woken, &sent_home), found);
        assert_eq!(ended(&[&added], &told("[1:IN|OUT]"), &sleeps), None);
        assert_eq!(ended(&[&added], &told("[2:OUT]"), &sleeps), None);
        assert_eq!(ended(&[&added], &told("[]"), &sleeps), None);
        let missed = [&added, "@0 send h1 5 DONTWAIT => EAGAIN"];
        assert_eq!(ended(&missed, &told("[1:OUT]"), &sleeps), None);
        let by_level = ["@0 epoll-add h5 h1 IN|OUT 1 => 0"];
        assert_eq!(ended(&by_level, &told("[1:OUT]"), &sleeps), None);
    }

    #[test]
    fn what_is_no_edge_must_be_the_same() {
        let native = "@0 epoll-wait h5 9 0 => [1:IN]";
        assert!(!are_alike(native, "@0 epoll-wait h5 9 0 => [1:IN 2:IN]"));
        assert!(!are_alike(native, "@0 epoll-wait h5 9 0 => [1:IN 3:IN]"));
        assert!(!are_alike(native, "@0 epoll-wait h5 9 0 => [1:IN|HUP]"));
        assert!(!are_alike(native, "@1 epoll-wait h5 9 0 => [1:IN]"));
        assert!(!are_alike(
            "@0 poll h1 IN 0 => 0",
            "@0 poll h1 IN 0 => 1 IN"
        ));
    }
}
