//! Plays a program: each step is made, waited for until the kernel is at rest, and written down.

mod rest;
mod steps;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use crate::act::{Matter, Outcome};
use crate::call::Call;
use crate::cast::{Cast, Hung};
use crate::known::{KNOWN, Known};
use crate::program::{Program, Step};
use crate::side::FULL;
use crate::word::MessageFlags;
use crate::world::{CAPACITY, Sleeper, World, is_poll, overfilling, without_count};

/// A sleeper that must wake does within this, unless something is wrong.
const WAKING: Duration = Duration::from_secs(2);

/// How long one that may have woken is waited for.
const COMING: Duration = Duration::from_millis(5);
/// What is left over at the end is read in one piece.
const REST: usize = 60_000;
/// How it begins what is told of bytes that are others than were sent.
const NOT_AS_SENT: &str = "byte ";
/// Acknowledgements that are delayed make room within this.
const SETTLING: Duration = Duration::from_millis(250);
/// TCP probes a window that is shut after 200 ms, and may find some room that it had not been told of (921920).
const LOOKS_FOR_ROOM: usize = 2;
/// Longer than any time limit of a receive that programs set.
const IMPATIENCE: Duration = Duration::from_millis(40);

/// Plays one program, once.
pub struct Player<'a> {
    cast: Cast,
    world: World,
    trace: &'a mut dyn Write,
    /// The send of this step has found no room.
    was_full: bool,
    /// Sleepers that have not come back although they were to.
    stuck: Vec<Sleeper>,
    /// Steps that were made.
    made: usize,
    /// Whether what is known to differ is left out.
    cautious: bool,
    /// How often it was, by its place in the list.
    left_out: [usize; KNOWN.len()],
}

/// Play `program` and write a line for each step that was made.
pub fn play(program: &Program, cautious: bool, trace: &mut dyn Write) {
    let mut player = Player {
        cast: Cast::new(),
        world: World::default(),
        trace,
        was_full: false,
        stuck: Vec::new(),
        made: 0,
        cautious,
        left_out: [0; KNOWN.len()],
    };
    let played = player.steps(program).and_then(|()| player.epilogue());
    if played.is_err() {
        eprint!("{}", player.cast.threads());
        player.say("the program", "hangs");
    }
    for (known, count) in KNOWN.iter().zip(player.left_out) {
        let _ = writeln!(player.trace, "# {count} {}", known.name);
    }
    let made = player.made;
    let _ = writeln!(player.trace, "# {made} steps");
}

impl Player<'_> {
    fn steps(&mut self, program: &Program) -> Result<(), Hung> {
        for step in &program.0 {
            if !step.processes().iter().all(|&of| self.cast.is_alive(of)) {
                continue;
            }
            if let Some(seen) = self.step(step)? {
                self.made += 1;
                self.say(&step.to_string(), &seen);
                if std::mem::take(&mut self.was_full) {
                    let _ = writeln!(self.trace, "# {FULL}");
                }
                self.rest()?;
                self.wake_sleepers();
                self.await_waiters(step);
            }
        }
        Ok(())
    }

    fn say(&mut self, what: &str, seen: &str) {
        // Whoever reads the trace notices that its end is missing.
        let _ = writeln!(self.trace, "{what} => {seen}").and_then(|()| self.trace.flush());
    }

    /// Write down what sleepers that must have come back returned.
    fn wake_sleepers(&mut self) {
        let mut index = 0;
        while let Some(sleeper) = self.world.sleepers.get(index) {
            if self.world.must_wake(sleeper) {
                self.wake(index);
            } else {
                index += 1;
            }
        }
    }

    fn wake(&mut self, index: usize) {
        let sleeper = &self.world.sleepers[index];
        let (process, thread) = (sleeper.process, sleeper.thread);
        if let Some(outcome) = self.cast.ended(process, thread, WAKING) {
            self.end_sleep(index, &outcome);
            return;
        }
        self.world.keep_for(index);
        let outcome = Outcome {
            text: "sleeps on".into(),
            ..Outcome::default()
        };
        let sleeper = self.end_sleep(index, &outcome);
        self.stuck.push(sleeper);
    }

    fn is_stuck(&self, process: usize, thread: usize) -> bool {
        let is_it = |sleeper: &Sleeper| sleeper.process == process && sleeper.thread == thread;
        self.stuck.iter().any(is_it)
    }

    /// A poll whose number names something else by now comes back when that is ready and what it sleeps on wakes it, of
    /// which the world knows nothing. It gives up what nobody else may have by then.
    fn await_stuck_polls(&mut self) -> Result<(), Hung> {
        let mut index = 0;
        while let Some(sleeper) = self.stuck.get(index) {
            let (process, thread) = (sleeper.process, sleeper.thread);
            if !is_poll(&sleeper.call)
                || !self.cast.is_alive(process)
                || !self.cast.has_come_back(process, thread)?
            {
                index += 1;
                continue;
            }
            let sleeper = self.stuck.remove(index);
            let outcome = self.cast.ended(process, thread, Duration::ZERO);
            let text = outcome.map_or_else(String::new, |outcome| outcome.text);
            self.say(&format!("  @{process}/{thread} {}", sleeper.call), &text);
            self.world.keep_no_more_for(&sleeper);
        }
        Ok(())
    }

    /// Those who wait in a set to which something has just been added may come back, and are not to find more by then.
    fn await_waiters(&mut self, step: &Step) {
        let Step::Call {
            process,
            call: Call::EpollAdd { epoll, .. } | Call::EpollMod { epoll, .. },
            ..
        } = step
        else {
            return;
        };
        let Some(set) = self.world.entry(*process, *epoll) else {
            return;
        };
        let mut index = 0;
        while let Some(sleeper) = self.world.sleepers.get(index) {
            let (process, thread) = (sleeper.process, sleeper.thread);
            let ended = match sleeper.file == set.file {
                // On a busy machine one that is on its way takes longer.
                true => self.cast.ended(process, thread, COMING).or_else(|| {
                    let _ = self.cast.has_come_back(process, thread);
                    self.cast.ended(process, thread, Duration::ZERO)
                }),
                false => None,
            };
            match ended {
                Some(outcome) => drop(self.end_sleep(index, &outcome)),
                None => index += 1,
            }
        }
    }

    fn end_sleep(&mut self, index: usize, outcome: &Outcome) -> Sleeper {
        let sleeper = self.world.end_sleep(index, outcome);
        let (process, thread) = (sleeper.process, sleeper.thread);
        let what = format!("  @{process}/{thread} {}", sleeper.call);
        self.say(&what, &without_count(&sleeper.call, outcome));
        sleeper
    }

    /// End all sleepers, read what is left, close everything.
    fn epilogue(&mut self) -> Result<(), Hung> {
        let names: Vec<_> = self.world.names.keys().copied().collect();
        let mut unread = BTreeSet::new();
        for by in names {
            let file = self.world.entry(by.0, by.1).map(|entry| entry.file);
            let seen = self.last_step(&Step::Empty { by })?;
            if seen.is_some_and(|seen| seen.starts_with(NOT_AS_SENT)) {
                unread.extend(file);
            }
            self.wake_sleepers();
        }
        while let Some(sleeper) = self.world.sleepers.first() {
            let (process, thread) = (sleeper.process, sleeper.thread);
            let is_impatient = self.world.files[sleeper.file].is_impatient();
            let holds_signal = sleeper.call.holds_signal();
            if !self.comes_back(process, thread, is_impatient)? {
                match holds_signal {
                    true => self.cast.send_home(process, thread)?,
                    false => self.cast.signal(process, thread, false)?,
                }
            }
            self.wake(0);
        }
        self.rest()?;
        let names: Vec<_> = self.world.names.keys().copied().collect();
        let flags = MessageFlags(libc::MSG_DONTWAIT);
        for &(process, fd) in &names {
            // How much is there at once of what nobody could read to its end is a matter of room.
            let file = self.world.entry(process, fd).map(|entry| entry.file);
            let is_read = file.is_none_or(|file| !unread.contains(&file));
            if is_read && self.world.end(process, fd).is_some() {
                let count = REST;
                self.last_call(process, Call::Recv { fd, count, flags })?;
                self.last_call(process, Call::Recv { fd, count, flags })?;
            }
        }
        for &(process, fd) in &names {
            let option = crate::word::Choice::ERROR;
            if self.world.end(process, fd).is_some() {
                self.last_call(process, Call::Getsockopt { fd, option })?;
            }
            self.last_call(process, Call::Close { fd })?;
        }
        Ok(())
    }

    /// Whether a sleeper comes back by itself, being on its way already or out of time soon.
    fn comes_back(
        &mut self,
        process: usize,
        thread: usize,
        is_impatient: bool,
    ) -> Result<bool, Hung> {
        let has_come = self.cast.has_come_back(process, thread)?;
        if has_come || !is_impatient {
            return Ok(has_come);
        }
        std::thread::sleep(IMPATIENCE);
        self.cast.has_come_back(process, thread)
    }

    fn last_call(&mut self, process: usize, call: Call) -> Result<(), Hung> {
        self.last_step(&Step::Call { process, call }).map(drop)
    }

    /// What was seen, if it was made.
    fn last_step(&mut self, step: &Step) -> Result<Option<String>, Hung> {
        let seen = self.step(step)?;
        if let Some(seen) = &seen {
            self.say(&format!("end: {step}"), seen);
            self.rest()?;
        }
        Ok(seen)
    }

    /// Whether a call is known to differ, and left out therefore.
    fn is_known(&mut self, process: usize, call: &Call) -> bool {
        let is_it = |known: &Known| self.cautious && (known.is_it)(&self.world, process, call);
        let place = KNOWN.iter().position(is_it);
        if let Some(place) = place {
            self.left_out[place] += 1;
        }
        place.is_some()
    }

    /// Send until there is no room, also when what was sent has come to rest.
    fn fill_up(&mut self, process: usize, matter: Matter, fill: &Call) -> Result<Outcome, Hung> {
        self.was_full = true;
        let mut filled = self.cast.call(process, matter, fill.clone())?;
        let mut in_vain = 0;
        while in_vain < LOOKS_FOR_ROOM {
            std::thread::sleep(SETTLING);
            let offset = matter.offset + filled.bytes as u64;
            let matter = Matter { offset, ..matter };
            let more = self.cast.call(process, matter, fill.clone())?;
            in_vain = if more.bytes == 0 { in_vain + 1 } else { 0 };
            let bytes = filled.bytes + more.bytes;
            filled = Outcome { bytes, ..more };
        }
        Ok(filled)
    }

    /// One call of a main thread, judged and taken account of. None: it is left out.
    fn call(&mut self, process: usize, call: &Call) -> Result<Option<Outcome>, Hung> {
        if !self.world.allows(process, call) || self.is_known(process, call) {
            return Ok(None);
        }
        let Some((resolved, matter)) = self.world.resolve(process, call) else {
            return Ok(None);
        };
        let mut outcome = match call {
            Call::Fill { .. } => self.fill_up(process, matter, &resolved)?,
            _ => self.cast.call(process, matter, resolved)?,
        };
        self.world.apply(process, call, &outcome);
        if overfilling(call).is_some_and(|count| count >= CAPACITY) {
            self.was_full = true;
            outcome.text = without_count(call, &outcome);
        }
        match *call {
            Call::Listen { fd, family } if outcome.text == "listening" => {
                let of = self.world.entry(process, fd).expect("it was resolved");
                let port = self.cast.port(process, of.fd)?;
                self.world.listens(process, fd, port, family);
            }
            Call::Connect { fd, listener, .. } if is_connecting(&outcome) => {
                self.world.connects(process, fd, listener);
            }
            _ => {}
        }
        Ok(Some(outcome))
    }
}

fn is_connecting(outcome: &Outcome) -> bool {
    outcome.text == "0" || outcome.text == "EINPROGRESS"
}
