//! Makes a program of a seed.
//!
//! It keeps a rough account of what is there, so that most steps can be made; the player leaves
//! out the others.

mod asleep;
mod bytes;
mod calls;
mod full;

use crosslane_exercise::random::Random;

use crate::program::{PROCESSES, Program, Step};
use crate::word::{Family, Handle, New};

/// A descriptor that is probably there.
#[derive(Clone, Copy, Debug)]
struct Known {
    process: usize,
    handle: Handle,
    thing: Thing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    End { connection: usize, side: usize },
    Socket(Family),
    Listener(Family),
    Epoll,
}

struct Generator {
    random: Random,
    steps: Vec<Step>,
    known: Vec<Known>,
    connections: usize,
    next_handle: u32,
    alive: Vec<usize>,
    next_process: usize,
    over: Over,
}

/// What connections go over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    #[default]
    Tcp,
    /// AF_UNIX streams.
    Unix,
}

/// The program of a seed, with so many steps or a few more.
pub fn generate(seed: u64, length: usize, over: Over) -> Program {
    let mut generator = Generator {
        random: Random::of(&[seed, 1]),
        steps: Vec::new(),
        known: Vec::new(),
        connections: 0,
        next_handle: 1,
        alive: vec![0, 1],
        next_process: 2,
        over,
    };
    for _ in 0..generator.random.between(1, 3) {
        generator.pair();
    }
    while generator.steps.len() < length {
        generator.step();
    }
    Program(generator.steps)
}

impl Generator {
    fn step(&mut self) {
        match self.random.below(1000) {
            0..250 => self.send(),
            250..500 => self.receive(),
            500..620 => self.look(),
            620..740 => self.epoll(),
            740..830 => self.describe(),
            830..870 => self.copy(),
            870..900 => self.sleep(),
            900..910 => self.signal(),
            910..930 => self.transfer(),
            930..934 => self.fill(),
            934..942 => self.fill_up(),
            942..950 => self.shut(),
            950..965 => self.close(),
            965..973 => self.fork(),
            973..975 => self.exit(),
            975..985 => self.steps.push(Step::Pause),
            985..992 => self.rarities(),
            _ => self.pair(),
        }
    }

    fn pair(&mut self) {
        let server = (self.any_process(), self.handle());
        // Most programs talk to others, some to themselves.
        let client = (self.any_process(), self.handle());
        let family = match self.over {
            Over::Tcp => *self.random.pick(&Family::TCP),
            Over::Unix => *self.random.pick(&Family::UNIX),
        };
        let round_trips = *self.random.pick(&[0, 0, 3, 12, 40, 40]);
        self.steps.push(Step::Pair {
            server,
            client,
            family,
            round_trips,
        });
        let connection = self.connections;
        self.connections += 1;
        for ((process, handle), side) in [(server, 0), (client, 1)] {
            let thing = Thing::End { connection, side };
            self.know(process, handle, thing);
        }
    }

    /// Of a socket that is made by hand.
    fn family(&mut self) -> Family {
        match self.over {
            Over::Tcp => *self.random.pick(&Family::TCP),
            Over::Unix => Family::unix,
        }
    }

    fn fork(&mut self) {
        if self.next_process >= PROCESSES {
            return;
        }
        let (process, child) = (self.any_process(), self.next_process);
        self.next_process += 1;
        self.alive.push(child);
        self.steps.push(Step::Fork { process, child });
        let of_parent = self.known.clone();
        for known in of_parent.iter().filter(|known| known.process == process) {
            self.know(child, known.handle, known.thing);
        }
    }

    fn exit(&mut self) {
        if self.alive.len() < 2 {
            return;
        }
        let index = self.random.below(self.alive.len());
        let process = self.alive.remove(index);
        self.steps.push(Step::Exit { process });
        self.known.retain(|known| known.process != process);
    }

    fn any_process(&mut self) -> usize {
        *self.random.pick(&self.alive)
    }

    fn handle(&mut self) -> Handle {
        self.next_handle += 1;
        Handle(self.next_handle - 1)
    }

    fn new_name(&mut self) -> New {
        New(self.handle().0)
    }

    fn know(&mut self, process: usize, handle: Handle, thing: Thing) {
        self.known.push(Known {
            process,
            handle,
            thing,
        });
    }

    /// Some descriptor of a kind.
    fn any(&mut self, is: impl Fn(&Thing) -> bool) -> Option<Known> {
        let of_kind: Vec<_> = self.known.iter().filter(|known| is(&known.thing)).collect();
        if of_kind.is_empty() {
            return None;
        }
        Some(**self.random.pick(&of_kind))
    }

    fn any_end(&mut self) -> Option<Known> {
        self.any(|thing| matches!(thing, Thing::End { .. }))
    }

    /// Both sides of a connection.
    fn any_two_ends(&mut self) -> Option<(Known, Known)> {
        let one = self.any_end()?;
        let Thing::End { connection, side } = one.thing else {
            return None;
        };
        let other = Thing::End {
            connection,
            side: 1 - side,
        };
        Some((one, self.any(|thing| *thing == other)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: &str = "read recv readv recvmsg recvfrom recvmmsg preadv2 syscall-read pread read-nowhere \
        splice-in fread write send writev sendmsg sendmmsg pwritev2 syscall-write write-nowhere \
        sendfile splice-out fwrite poll poll-both ppoll select pselect epoll epoll-add epoll-mod \
        epoll-del epoll-wait epoll-pwait fionread outq atmark fionbio getfl nonblock getfd setfd \
        getsockopt setsockopt linger getlinger rcvtimeo names fstat lseek socket listen connect \
        connect-nobody disconnect accept shutdown close close-range dup dupfd dup2 dup3 pass \
        take send-beside recv-beside sndtimeo fill drain sendto dprintf readv-empty writev-empty \
        recvfrom-short preadv pwrite pwritev tee vmsplice copy-range names-short ppoll-masked \
        pselect-masked epoll-pwait-masked epoll-pwait2";

    fn over(seed: u64) -> Over {
        match seed.is_multiple_of(4) {
            true => Over::Unix,
            false => Over::Tcp,
        }
    }

    #[test]
    fn a_seed_repeats_its_program() {
        let of = |seed| generate(seed, 60, Over::Tcp);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn generated_programs_can_be_written_and_read() {
        let programs = (0..200).map(|seed| generate(seed, 80, over(seed)));
        for program in programs {
            assert_eq!(Program::parse(&program.to_string()), Ok(program));
        }
    }

    #[test]
    fn every_call_is_generated() {
        let all: String = (0..400)
            .map(|seed| generate(seed, 80, over(seed)).to_string())
            .collect();
        for word in CALLS.split_whitespace() {
            assert!(all.contains(&format!(" {word} ")), "no program has {word}");
        }
        for step in [
            "transfer",
            "fill-and-drain",
            "empty",
            "fork",
            "exit",
            "signal",
            "pause",
        ] {
            assert!(all.contains(&format!("\n{step}")), "no program has {step}");
        }
    }
}
