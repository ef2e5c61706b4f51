//! A bridge between two hosts, held open for their monitors: of the model's registers, with files that stand for its regions. Its
//! driver runs as in `crosslane window hold`; the monitors and programs are the usual.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use crosslane_ntb_model::serve::Model;
use crosslane_testkit::rack::{BRIDGED, NAMES, Plan, Rack, Stall, can_run};
use crosslane_testkit::{Process, binary, wait_until};
use rustix::process::Signal;

use crate::counters::{self, CONNECTIONS, COUNT_PORT};

const BYTES: u64 = 16 << 20;

/// What a bridge's region would do by itself: what opens its file is led to the other host's memory as the registers say, and
/// what has been mapped is cut off when they say nothing any more.
struct Bridge<'a> {
    rack: &'a Rack,
    model: Model,
    holders: [Process; 2],
    mapped: [Stall; 2],
}

impl<'a> Bridge<'a> {
    fn new(rack: &'a Rack) -> Self {
        let model = Model::new(BYTES);
        let socket = rack.hosts[0].folder().join("bridge");
        model.listen(&socket).expect("the folder is the test's own");
        let bridge = Self {
            rack,
            model,
            holders: [0, 1].map(|at| hold(rack, at)),
            mapped: [0, 1].map(|at| rack.stall_of(&rack.region(at))),
        };
        bridge.lead();
        bridge
    }

    /// Wait until both regions lead to the other host's memory.
    fn lead(&self) {
        for (at, name) in NAMES.iter().enumerate() {
            let (memory, bytes) = wait_until(&format!("{name}'s bridge to be open"), || {
                self.model.beyond(at).expect("a descriptor")
            });
            assert_eq!(bytes, BYTES, "all of it");
            let (path, led) = (self.rack.memory(1 - at), File::from(memory).metadata());
            let named = path.metadata().expect("the other host lends it");
            assert_eq!(led.expect("it is open").ino(), named.ino(), "{name}");
            let new = self.rack.region(at).with_extension("new");
            std::fs::hard_link(path, &new).expect("it is ours");
            std::fs::rename(&new, self.rack.region(at)).expect("it is ours");
            // Where it was the same file already.
            let _ = std::fs::remove_file(&new);
        }
    }

    /// Nothing that is mapped leads there any more. The hosts find that out by themselves.
    fn cut(&mut self) {
        for (at, name) in NAMES.iter().enumerate() {
            let beyond = self.model.beyond(at).expect("a descriptor");
            assert!(beyond.is_none(), "{name}'s bridge is open");
            self.mapped[at].begin(at);
        }
    }

    /// Nor does what is mapped from now on.
    fn lead_nowhere(&self) {
        for at in 0..2 {
            let new = self.rack.region(at).with_extension("new");
            let mut options = File::options();
            let file = options.write(true).create_new(true).mode(0o600).open(&new);
            let made = file.and_then(|file| file.set_len(BYTES));
            made.expect("tmpfs has room");
            std::fs::rename(&new, self.rack.region(at)).expect("it is ours");
        }
    }

    /// All that was and is mapped leads there again, once it does.
    fn heal(&mut self) {
        self.lead();
        self.mapped.iter_mut().for_each(Stall::end);
    }
}

fn hold(rack: &Rack, at: usize) -> Process {
    let holder = rack.hosts[at].plain(binary("crosslane-ntb-holder"));
    let holder = holder
        .arg(rack.hosts[0].folder().join("bridge"))
        .arg(at.to_string())
        .arg(rack.memory(at))
        .arg(BYTES.to_string());
    holder.with_open_input().start()
}

/// What becomes of a bridge.
enum Loss {
    /// Its cable is pulled, and plugged in again.
    Cable,
    /// The command that holds it at this host is killed, and started again.
    Holder(usize),
}

/// The window opens when the bridge does, and is lost and found with it; every byte is checked.
#[test]
fn connections_leave_a_bridge_that_is_down_and_come_back_without_a_byte_lost() {
    if !can_run() {
        return;
    }
    let rack = Rack::with(&Plan {
        kind: BRIDGED,
        window_bytes: BYTES,
        ..Plan::default()
    });
    let mut sides = counters::start(&rack, CONNECTIONS);
    counters::pauses(&mut sides, &rack, "before there is a bridge");
    assert!((0..2).all(|at| {
        rack.ends(at, COUNT_PORT)
            .iter()
            .all(|end| !end.is_accelerated())
    }));
    let mut bridge = Bridge::new(&rack);
    rack.wait_for_window();
    for loss in [Loss::Cable, Loss::Holder(1), Loss::Holder(0)] {
        rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
        counters::pauses(&mut sides, &rack, "over the bridge");
        let before = [0, 1].map(|at| lost(&rack, at));
        match loss {
            Loss::Cable => bridge.model.change(|device| device.set_cable(false)),
            Loss::Holder(at) => kill_holder(&mut bridge, at),
        }
        bridge.cut();
        for (at, before) in before.into_iter().enumerate() {
            wait_until("the connections to be on TCP", || {
                (lost(&rack, at) >= before + CONNECTIONS as u64).then_some(())
            });
        }
        bridge.lead_nowhere();
        counters::pauses(&mut sides, &rack, "without a bridge");
        match loss {
            Loss::Cable => bridge.model.change(|device| device.set_cable(true)),
            Loss::Holder(at) => bridge.holders[at] = hold(&rack, at),
        }
        bridge.heal();
        rack.wait_for_window();
    }
    rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
    counters::pauses(&mut sides, &rack, "at the end");
    for at in 0..2 {
        let stats = rack.hosts[at].stats();
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("peer_lies"), 0);
    }
    let faults = bridge.model.faults();
    assert!(faults.is_empty(), "{faults:?}");
}

fn lost(rack: &Rack, at: usize) -> u64 {
    rack.hosts[at].stats().count("windows_lost")
}

fn kill_holder(bridge: &mut Bridge<'_>, at: usize) {
    bridge.holders[at].signal(Signal::KILL);
    wait_until("the model to see it", || {
        let beyond = bridge.model.beyond(1 - at).expect("a descriptor");
        beyond.is_none().then_some(())
    });
}
