//! What is known to differ, and is left out of programs so that other differences can be seen.
//!
//! Each entry says why. An entry goes when what it names has been repaired; `--known` plays
//! programs with all of it.

use crate::call::Call;
use crate::world::{End, Kind, Sleeper, World};

/// Something that is left out.
pub struct Known {
    pub name: &'static str,
    pub why: &'static str,
    /// Whether this call by this process is it.
    pub is_it: fn(&World, usize, &Call) -> bool,
}

/// All of it.
pub const KNOWN: &[Known] = &[
    Known {
        name: "epoll-of-what-another-process-lacks",
        why: "who uses a set with another process can tell the kernel nothing of a connection that it has not, or by another \
              number (docs/differences.md)",
        is_it: World::shares_a_set_unequally,
    },
    Known {
        name: "epoll-set-that-was-passed",
        why: "who was sent a set knows nothing of what is in it but what the kernel says (docs/differences.md)",
        is_it: |world, process, call| {
            let Call::Pass { fd } = call else {
                return false;
            };
            let file = world.file(process, *fd);
            file.is_some_and(|file| matches!(file.kind, Kind::Epoll { .. }))
        },
    },
    Known {
        name: "closed-and-still-open-in-a-set",
        why: "a set goes on telling of what its process has closed while another process has it, or a call sleeps on \
              it (epoll(7), Questions); the library forgets it",
        is_it: |world, process, call| {
            let (Call::Close { fd }
            | Call::CloseRange { fd }
            | Call::Dup2 { onto: fd, .. }
            | Call::Dup3 { onto: fd, .. }) = call
            else {
                return false;
            };
            world.entry(process, *fd).is_some_and(|entry| {
                let is_last = world.names_of(process, entry.file) == 1;
                let sleeps_on_it = |sleeper: &Sleeper| sleeper.sleeps_on(entry.file);
                let stays_open = world.is_elsewhere(process, entry.file)
                    || world.sleepers.iter().any(sleeps_on_it);
                is_last && world.is_member(entry.file) && stays_open
            })
        },
    },
    Known {
        name: "disconnect-under-a-receive",
        why: "a receive that sleeps while its connection is dissolved ends by EPIPE or ECONNRESET, and what is \
              called next is told the other",
        is_it: |world, process, call| {
            let Call::Disconnect { fd } = call else {
                return false;
            };
            world.entry(process, *fd).is_some_and(|entry| {
                let sleeps_on_it = |sleeper: &Sleeper| sleeper.sleeps_on(entry.file);
                world.sleepers.iter().any(sleeps_on_it)
            })
        },
    },
    Known {
        name: "disconnect-of-what-another-process-has",
        why: "the process that has it, too, is not told, and goes on reading what stands in memory (docs/differences.md)",
        is_it: |world, process, call| {
            let Call::Disconnect { fd } = call else {
                return false;
            };
            let entry = world.entry(process, *fd);
            entry.is_some_and(|entry| world.is_elsewhere(process, entry.file))
        },
    },
    Known {
        name: "disconnect-of-what-was-reset",
        why: "an error that the program has not been told stays with the socket; the library has it from the kernel, and \
              cannot give it back (docs/differences.md)",
        is_it: |world, process, call| {
            let Call::Disconnect { fd } = call else {
                return false;
            };
            let end = world.end(process, *fd);
            end.is_some_and(|(at, side)| world.connections[at].ends[side].reset)
        },
    },
    Known {
        name: "copied-onto-the-number-of-a-call",
        why: "a poll or a receive that the kernel sleeps in by a number does not see what stands in the memory of the \
              connection that gets this number, if no call brings it to TCP (docs/differences.md)",
        is_it: World::may_get_the_number_of_a_call,
    },
    Known {
        name: "edges-at-the-number-of-a-poll",
        why: "a poll whose number names a set by now looks at that when a signal comes, and has its connections go to TCP: \
              what they know is told once more (docs/differences.md)",
        is_it: World::adds_edges_under_a_poll,
    },
    Known {
        name: "poll-by-a-lost-number",
        why: "a set cannot be given back to the kernel what was registered by a number that names something else (docs/differences.md)",
        is_it: World::polls_by_a_lost_number,
    },
    Known {
        name: "shutdown-under-a-call-of-another-process",
        why: "the kernel wakes who sleeps there, which ends a receive without room, and has a poll look at what its \
              numbers name by now (docs/differences.md)",
        is_it: World::ends_a_call_elsewhere,
    },
    Known {
        name: "more-in-a-half-closed-connection",
        why: "bytes marked MSG_MORE may be held back or not, and meet an end or urgent data then",
        is_it: |world, process, call| {
            let (Call::Send { fd, flags, .. }
            | Call::Sendmsg { fd, flags, .. }
            | Call::Sendmmsg { fd, flags, .. }) = call
            else {
                return false;
            };
            let connection = world
                .end(process, *fd)
                .map(|(at, _)| &world.connections[at]);
            flags.0 & libc::MSG_MORE != 0
                && connection.is_some_and(|connection| {
                    let is_shut = |end: &End| end.shut_reading || end.shut_writing;
                    connection.wild || connection.ends.iter().any(is_shut)
                })
        },
    },
    Known {
        name: "urgent-behind-urgent",
        why: "an urgent byte that another one follows is data to a receiver that has yet to come to it, and lost to one \
              that stands there; what is in a ring is not counted",
        is_it: |world, process, call| {
            let (fd, flags, messages) = match call {
                Call::Send { fd, flags, .. } | Call::Sendmsg { fd, flags, .. } => (fd, flags, 1),
                Call::Sendmmsg {
                    fd,
                    flags,
                    messages,
                    ..
                } => (fd, flags, *messages),
                _ => return false,
            };
            let connection = world
                .end(process, *fd)
                .map(|(at, _)| &world.connections[at]);
            flags.has(libc::MSG_OOB)
                && (messages > 1 || connection.is_some_and(|connection| connection.wild))
        },
    },
];
