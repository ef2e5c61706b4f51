//! Edges that are told once more.
//!
//! A connection that enters or leaves its rings has its registration with the kernel's set renewed,
//! and what is there is told again: whether the program has been told of it already, nobody can
//! know for sure, and an edge too many is what epoll(7) has programs expect, one too few stops them.

use std::collections::BTreeMap;

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

/// The step that slept natively, or slept on, and that an edge told once more has ended, if that is where the two
/// part.
pub fn ended_once_more(native: &Trace, other: &Trace) -> Option<String> {
    let mut edges = Edges::default();
    for (native, other) in native.lines.iter().zip(&other.lines) {
        edges.note(native);
        if native != other && !edges.are_once_more(native, other) {
            let (step, told) = events(other)?;
            let slept_on = step.starts_with(' ');
            let sleeps = slept_on || native.strip_prefix(step) == Some(" => sleeps");
            let is_it = sleeps && !told.is_empty() && told.iter().all(|event| edges.is_edge(event));
            return is_it.then(|| step.trim_start().to_owned());
        }
    }
    None
}

/// By the data of each registration, whether its last one was for edges, and not for one only.
#[derive(Default)]
struct Edges(BTreeMap<String, bool>);

impl Edges {
    /// Takes note of `@0 epoll-add h5 h1 IN|ET 1 => 0`.
    fn note(&mut self, line: &str) {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| !word.starts_with("epoll-"));
        if let Some("epoll-add" | "epoll-mod") = words.next()
            && let Some(events) = words.nth(2)
            && let Some(data) = words.next()
            && line.ends_with(" => 0")
        {
            let has = |name| events.split('|').any(|event| event == name);
            self.0.insert(data.to_owned(), has("ET") && !has("ONESHOT"));
        }
    }

    fn are_once_more(&self, native: &str, other: &str) -> bool {
        let (Some((step, native)), Some((same_step, other))) = (events(native), events(other))
        else {
            return false;
        };
        step == same_step
            && native.iter().all(|event| other.contains(event))
            && other
                .iter()
                .filter(|event| !native.contains(event))
                .all(|event| self.is_edge(event))
    }

    fn is_edge(&self, event: &str) -> bool {
        let data = event.split(':').next().unwrap_or_default();
        self.0.get(data) == Some(&true)
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
