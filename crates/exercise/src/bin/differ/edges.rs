//! Edges that are told once more.
//!
//! A connection that enters or leaves its rings has its registration with the kernel's set renewed,
//! and what is there is told again: whether the program has been told of it already, nobody can
//! know for sure, and an edge too many is what epoll(7) has programs expect, one too few stops them.

use std::collections::BTreeSet;

use crate::call::Call;
use crate::program::{Program, Step};
use crate::side::Trace;
use crate::word::EpollEvents;

/// The data of the registrations of a program that are for edges, and not for one only.
pub struct Edges(BTreeSet<u32>);

impl Edges {
    pub fn of(program: &Program) -> Self {
        let (mut edges, mut others) = (BTreeSet::new(), BTreeSet::new());
        for step in &program.0 {
            let (Step::Call { call, .. } | Step::Begin { call, .. }) = step else {
                continue;
            };
            if let Call::EpollAdd { events, data, .. } | Call::EpollMod { events, data, .. } = call
            {
                match is_edge(*events) {
                    true => edges.insert(*data),
                    false => others.insert(*data),
                };
            }
        }
        Self(&edges - &others)
    }

    /// Whether `other` shows what `native` does, but for edges that it tells once more.
    pub fn are_alike(&self, native: &Trace, other: &Trace) -> bool {
        native.lines.len() == other.lines.len()
            && native
                .lines
                .iter()
                .zip(&other.lines)
                .all(|(native, other)| native == other || self.is_once_more(native, other))
    }

    fn is_once_more(&self, native: &str, other: &str) -> bool {
        let (Some((step, native)), Some((same_step, other))) = (events(native), events(other))
        else {
            return false;
        };
        step == same_step
            && native.iter().all(|event| other.contains(event))
            && other
                .iter()
                .filter(|event| !native.contains(event))
                .all(|event| self.is_of_edge(event))
    }

    fn is_of_edge(&self, event: &str) -> bool {
        let data = event.split(':').next().unwrap_or_default().parse();
        data.is_ok_and(|data| self.0.contains(&data))
    }
}

fn is_edge(events: EpollEvents) -> bool {
    let flags = libc::EPOLLET | libc::EPOLLONESHOT;
    events.0 & flags.cast_unsigned() == libc::EPOLLET.cast_unsigned()
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
        let program = "@0 epoll-add h5 h1 IN|ET 1\n@0 epoll-add h5 h2 IN 2\n\
                       @0 epoll-add h5 h3 IN|ET|ONESHOT 3";
        let trace = |line: &str| Trace {
            lines: vec![line.to_owned()],
            ..Trace::default()
        };
        Edges::of(&Program::parse(program).unwrap()).are_alike(&trace(native), &trace(other))
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
