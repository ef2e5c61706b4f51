//! A program: steps by several processes and their threads, one line each.
//!
//! Two processes are there from the beginning, 0 and 1. `h3` in a process is the descriptor that
//! it calls so; a forked process has those of its parent. A step whose descriptors are not there,
//! or whose call would wait for ever, is left out when the program is played: so any steps can be
//! taken away and a program remains.

use std::fmt;
use std::str::SplitWhitespace;

use crate::call::Call;
use crate::word::{Family, Handle, Word};

/// Processes that a program can have.
pub const PROCESSES: usize = 4;
/// Threads of a process, the main one among them.
pub const THREADS: usize = 4;

/// One line of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call by the main thread of a process.
    Call { process: usize, call: Call },
    /// A call that sleeps in another thread of a process while the program goes on.
    Begin {
        process: usize,
        thread: usize,
        call: Call,
    },
    /// A connection between two ends, after so many round trips.
    Pair {
        server: (usize, Handle),
        client: (usize, Handle),
        family: Family,
        round_trips: usize,
    },
    /// So many bytes by a blocking write in another thread, while the other end reads.
    Transfer {
        from: (usize, Handle),
        to: (usize, Handle),
        count: usize,
    },
    /// Send until there is no room, then read all of it at the other end.
    FillAndDrain {
        from: (usize, Handle),
        to: (usize, Handle),
    },
    /// Read all that the other end has sent, or is sending, of more than there is room for.
    Empty { by: (usize, Handle) },
    /// fork(2) by a process; the child is the other number.
    Fork { process: usize, child: usize },
    /// _exit(2) of a process.
    Exit { process: usize },
    /// SIGUSR1 to a thread, whose handler restarts calls or not.
    Signal {
        process: usize,
        thread: usize,
        restart: bool,
    },
    /// A moment in which nothing is called.
    Pause,
}

/// Steps in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program(pub Vec<Step>);

/// A line that is no step.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "line {line}, {text:?}, is no step: compare with the output of `crosslane-differ generate`"
)]
pub struct NoStep {
    line: usize,
    text: String,
}

impl Program {
    /// The program without the steps of this line.
    pub fn without(&self, line: &str) -> Self {
        let is_other = |step: &&Step| step.to_string() != line;
        Self(self.0.iter().filter(is_other).cloned().collect())
    }

    /// Read a program; empty lines and those that begin with `#` say nothing.
    pub fn parse(text: &str) -> Result<Self, NoStep> {
        text.lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(line, text)| {
                Step::parse(text).ok_or_else(|| NoStep {
                    line,
                    text: text.to_owned(),
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl Step {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let step = match words.next()? {
            "pair" => Self::Pair {
                server: end(&mut words)?,
                client: end(&mut words)?,
                family: value(&mut words)?,
                round_trips: value(&mut words)?,
            },
            "transfer" => Self::Transfer {
                from: end(&mut words)?,
                to: end(&mut words)?,
                count: value(&mut words)?,
            },
            "fill-and-drain" => Self::FillAndDrain {
                from: end(&mut words)?,
                to: end(&mut words)?,
            },
            "empty" => Self::Empty {
                by: end(&mut words)?,
            },
            "fork" => Self::Fork {
                process: process(words.next()?)?,
                child: process(words.next()?)?,
            },
            "exit" => Self::Exit {
                process: process(words.next()?)?,
            },
            "signal" => {
                let (process, thread) = doer(words.next()?)?;
                Self::Signal {
                    process,
                    thread,
                    restart: value(&mut words)?,
                }
            }
            "pause" => Self::Pause,
            by => {
                let (process, thread) = doer(by)?;
                let call = Call::parse(&mut words)?;
                if thread == 0 {
                    Self::Call { process, call }
                } else {
                    Self::Begin {
                        process,
                        thread,
                        call,
                    }
                }
            }
        };
        words.next().is_none().then_some(step)
    }

    /// The processes without which the step is nothing.
    pub fn processes(&self) -> Vec<usize> {
        match self {
            Self::Call { process, .. } | Self::Begin { process, .. } => vec![*process],
            Self::Pair { server, client, .. } => vec![server.0, client.0],
            Self::Transfer { from, to, .. } | Self::FillAndDrain { from, to } => {
                vec![from.0, to.0]
            }
            Self::Empty { by } => vec![by.0],
            Self::Fork { process, .. } | Self::Exit { process } => vec![*process],
            Self::Signal { process, .. } => vec![*process],
            Self::Pause => Vec::new(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |(process, handle): &(usize, Handle)| format!("@{process}:{}", handle.word());
        match self {
            Self::Call { process, call } => write!(f, "@{process} {call}"),
            Self::Begin {
                process,
                thread,
                call,
            } => write!(f, "@{process}/{thread} {call}"),
            Self::Pair {
                server,
                client,
                family,
                round_trips,
            } => {
                let (server, client) = (end(server), end(client));
                write!(f, "pair {server} {client} {} {round_trips}", family.word())
            }
            Self::Transfer { from, to, count } => {
                write!(f, "transfer {} {} {count}", end(from), end(to))
            }
            Self::FillAndDrain { from, to } => {
                write!(f, "fill-and-drain {} {}", end(from), end(to))
            }
            Self::Empty { by } => write!(f, "empty {}", end(by)),
            Self::Fork { process, child } => write!(f, "fork @{process} @{child}"),
            Self::Exit { process } => write!(f, "exit @{process}"),
            Self::Signal {
                process,
                thread,
                restart,
            } => write!(f, "signal @{process}/{thread} {restart}"),
            Self::Pause => f.write_str("pause"),
        }
    }
}

fn value<T: Word>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    T::of(words.next()?)
}

/// `@1`
fn process(word: &str) -> Option<usize> {
    let number = word.strip_prefix('@')?.parse().ok()?;
    (number < PROCESSES).then_some(number)
}

/// `@1` or `@1/2`
fn doer(word: &str) -> Option<(usize, usize)> {
    let Some((by, thread)) = word.split_once('/') else {
        return Some((process(word)?, 0));
    };
    let thread = thread.parse().ok().filter(|thread| *thread < THREADS)?;
    Some((process(by)?, thread))
}

/// `@1:h3`
fn end(words: &mut SplitWhitespace<'_>) -> Option<(usize, Handle)> {
    let (by, handle) = words.next()?.split_once(':')?;
    Some((process(by)?, Handle::of(handle)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_written() {
        let text = "pair @0:h1 @1:h2 v4 40\n@0 send h1 100 DONTWAIT|NOSIGNAL\n\
                    @1/2 recv h2 7 -\nfork @0 @3\nsignal @1/2 true\nexit @3\npause\n\
                    transfer @0:h1 @1:h2 500\nfill-and-drain @0:h1 @1:h2\nempty @1:h2\n";
        assert_eq!(Program::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn what_is_no_step_is_named() {
        let error = Program::parse("# a remark\n\n@0 sned h1 1 -").unwrap_err();
        assert_eq!(error.line, 3);
        for bad in [
            "@9 close h1",
            "@0 close 1",
            "@0 close h1 h2",
            "pause now",
            "@0/7 read h1 1",
        ] {
            assert!(Program::parse(bad).is_err(), "{bad}");
        }
    }
}
