//! What a difference is.
//!
//! The kernel does not always do the same either. So what the other way shows is compared with
//! several native runs, and only what none of them shows is a difference.

use serde::Serialize;

use crate::edges::{are_alike, ended_once_more};
use crate::program::Program;
use crate::side::{Side, Tally, Trace};

/// Native runs after the first one differed.
const NATIVE_RUNS: usize = 5;
/// Native runs before anything is called a difference: the kernel may do rarely what the other way has done.
const MOST_NATIVE_RUNS: usize = 60;
/// Runs the other way, as a difference may be one of time.
const OTHER_RUNS: usize = 3;

/// Whether a call was told what recvmmsg(2) has left behind on a socket when a signal ended it after its first
/// message: ERESTARTSYS, a number that nobody is to see, or where there is a time limit EINTR, which a call that does not
/// wait is never told otherwise, nor SO_ERROR. What follows from it is not compared.
fn is_kernels_own(line: &str) -> bool {
    let is_told = line.contains("DONTWAIT") || line.contains(" ERROR ");
    line.contains("errno 512") || is_told && line.ends_with("=> EINTR")
}

/// The first line that no native run shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub native: String,
    pub other: String,
    /// Of so many runs the other way, how many differed.
    pub seen: usize,
    pub runs: usize,
}

impl Difference {
    /// Whether it is one of some runs only.
    pub fn wavers(&self) -> bool {
        self.seen < self.runs
    }

    /// Whether as many bytes were received, and other ones: `17#811c9dc5` and `17#0100cafe`. No moment makes them so.
    pub fn is_of_bytes(&self) -> bool {
        match (received(&self.native), received(&self.other)) {
            (Some(native), Some(other)) => native.0 == other.0 && native.1 != other.1,
            _ => false,
        }
    }

    /// The word of the call that differed: `recv` of `@0 recv h1 5 - => 5`.
    fn call(&self) -> &str {
        let step = self.native.trim_start_matches("end:").trim_start();
        let mut words = step.split(' ');
        let first = words.next().unwrap_or_default();
        if first.starts_with('@') {
            words.next().unwrap_or_default()
        } else {
            first
        }
    }
}

/// How two ways of playing a program compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    /// But for edges that are told once more.
    Repeats,
    /// Native runs differ among themselves, and the other way shows what one of them shows.
    Unsteady,
    Differs(Difference),
}

/// Play `program` both ways. Also what was made of it natively.
pub fn compare(
    program: &Program,
    native: &mut Side,
    other: &mut Side,
) -> std::io::Result<(Verdict, Tally)> {
    let first = native.play(program)?;
    let tally = first.tally.clone();
    let seen = other.play(program)?;
    if first.lines == seen.lines {
        return Ok((Verdict::Same, tally));
    }
    if are_alike(&first, &seen) {
        return Ok((Verdict::Repeats, tally));
    }
    if let Some(step) = ended_once_more(&first, &seen) {
        // What follows depends on whether the thread sleeps, and is compared without it.
        let (verdict, _) = compare(&program.without(&step), native, other)?;
        let is_alike = matches!(verdict, Verdict::Same | Verdict::Repeats);
        let verdict = if is_alike { Verdict::Repeats } else { verdict };
        return Ok((verdict, tally));
    }
    let mut natives = vec![first];
    for _ in 0..NATIVE_RUNS {
        natives.push(native.play(program)?);
    }
    let mut others = vec![seen];
    for _ in 1..OTHER_RUNS {
        others.push(other.play(program)?);
    }
    let mut verdict = judge(&natives, &others);
    while natives.len() < MOST_NATIVE_RUNS && matches!(verdict, Verdict::Differs(_)) {
        natives.push(native.play(program)?);
        verdict = judge(&natives, &others);
    }
    Ok((verdict, tally))
}

/// Whether the program differs in the same call, as fast as that can be said.
pub fn differs_alike(
    program: &Program,
    like: &Difference,
    native: &mut Side,
    other: &mut Side,
) -> std::io::Result<bool> {
    let mut natives = vec![native.play(program)?];
    for _ in 0..OTHER_RUNS {
        let seen = [other.play(program)?];
        if matches!(judge(&natives, &seen), Verdict::Unsteady) {
            continue;
        }
        while natives.len() <= NATIVE_RUNS {
            natives.push(native.play(program)?);
        }
        if let Verdict::Differs(difference) = judge(&natives, &seen) {
            return Ok(difference.call() == like.call());
        }
    }
    Ok(false)
}

fn judge(natives: &[Trace], others: &[Trace]) -> Verdict {
    let mut lines = natives.iter().flat_map(|native| &native.lines);
    if lines.any(|line| is_kernels_own(line)) {
        return Verdict::Unsteady;
    }
    let is_native = |other: &&Trace| natives.iter().any(|native| are_alike(native, other));
    let odd: Vec<_> = others.iter().filter(|other| !is_native(other)).collect();
    let Some(first) = odd.first() else {
        return Verdict::Unsteady;
    };
    let nearest = natives
        .iter()
        .max_by_key(|native| common(native, first))
        .expect("there is at least one native run");
    let at = common(nearest, first);
    let line = |trace: &Trace| {
        trace
            .lines
            .get(at)
            .cloned()
            .unwrap_or_else(|| "the end".into())
    };
    Verdict::Differs(Difference {
        native: line(nearest),
        other: line(first),
        seen: odd.len(),
        runs: others.len(),
    })
}

/// How many bytes a line tells of, and their digest.
fn received(line: &str) -> Option<(&str, &str)> {
    let (_, result) = line.split_once("=> ")?;
    result.split(' ').next()?.split_once('#')
}

/// How many lines two traces share before they part.
fn common(one: &Trace, other: &Trace) -> usize {
    let pairs = one.lines.iter().zip(&other.lines);
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> Trace {
        Trace {
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
            ..Trace::default()
        }
    }

    #[test]
    fn a_wrong_errno_is_a_difference() {
        let native = [trace(&["a => 1", "b => EPIPE"])];
        let other = [trace(&["a => 1", "b => ECONNRESET"])];
        let Verdict::Differs(difference) = judge(&native, &other) else {
            panic!("it was not found")
        };
        assert_eq!(difference.native, "b => EPIPE");
        assert_eq!(difference.other, "b => ECONNRESET");
        assert_eq!((difference.seen, difference.runs), (1, 1));
    }

    #[test]
    fn a_trace_that_ends_early_is_a_difference() {
        let verdict = judge(&[trace(&["a => 1", "b => 2"])], &[trace(&["a => 1"])]);
        let Verdict::Differs(difference) = verdict else {
            panic!("it was not found")
        };
        assert_eq!(difference.other, "the end");
    }

    #[test]
    fn other_bytes_are_told_from_more_or_fewer() {
        let of = |native: &str, other: &str| Difference {
            native: format!("@0 recv h1 9 - => {native}"),
            other: format!("@0 recv h1 9 - => {other}"),
            seen: 1,
            runs: 3,
        };
        assert!(of("4#0a flags 0x0 name 0", "4#0b flags 0x0 name 0").is_of_bytes());
        assert!(!of("4#0a", "5#0b").is_of_bytes());
        assert!(!of("4#0a", "EAGAIN").is_of_bytes());
        assert!(!of("4#0a", "4#0a name 0").is_of_bytes());
        assert!(!of("4#0a", "the end").is_of_bytes());
    }

    #[test]
    fn what_the_kernel_does_at_times_is_no_difference() {
        let natives = [trace(&["a => 1"]), trace(&["a => 2"])];
        assert_eq!(judge(&natives, &[trace(&["a => 2"])]), Verdict::Unsteady);
    }

    #[test]
    fn what_happens_once_in_three_runs_is_a_difference() {
        let others = [trace(&["a => 1"]), trace(&["a => 3"]), trace(&["a => 1"])];
        let Verdict::Differs(difference) = judge(&[trace(&["a => 1"])], &others) else {
            panic!("it was not found")
        };
        assert_eq!((difference.seen, difference.runs), (1, 3));
    }
}
