//! A window that stands still: it is there, and carries nothing.

use std::path::Path;

use super::{NAMES, Rack};
use crate::Process;

const SCRIPT: &str = include_str!("stall.py");

/// Has the first window of a rack stand still and come to life.
pub struct Stall {
    script: Process,
    namespaces: [String; 2],
}

impl Rack {
    /// What can have the first window stand still. The monitors must map it, as those do whose window is no file
    /// ([`Plan::kind`](super::Plan::kind)).
    pub fn stall(&self) -> Stall {
        self.stall_of(self.window(0))
    }

    /// The same of what is mapped from any file.
    pub fn stall_of(&self, file: &Path) -> Stall {
        let script = self.hosts[0].plain("/usr/bin/python3");
        let script = script.args(["-c", SCRIPT]).arg(file);
        Stall {
            script: script.with_open_input().start(),
            namespaces: self.network.namespaces.clone(),
        }
    }
}

impl Stall {
    /// What processes at host `at` write does not reach the other host from now on, nor the other way.
    pub fn begin(&mut self, at: usize) {
        self.obey(&format!("stall {}", self.namespaces[at]));
    }

    /// The same, and the programs there stand still, too, until [`Stall::end`].
    pub fn begin_and_hold(&mut self, at: usize) {
        self.obey(&format!("hold {}", self.namespaces[at]));
    }

    /// As [`Stall::begin`], and the monitor there stands still, too, until [`Stall::speak`]: nobody finds out meanwhile.
    pub fn begin_in_silence(&mut self, at: usize) {
        self.obey(&format!("mute {}", self.namespaces[at]));
    }

    /// The monitor goes on, and the window carries nothing.
    pub fn speak(&mut self) {
        self.obey("speak");
    }

    /// The window is itself again: what the other host has written meanwhile is there, and nothing of what the
    /// host has written that was cut off.
    pub fn end(&mut self) {
        self.obey("heal");
    }

    fn obey(&mut self, line: &str) {
        self.script.write_line(line);
        let answer = self.script.next_line();
        let name = NAMES[0];
        assert_eq!(answer.as_deref(), Some("done"), "see the log of {name}");
    }
}
