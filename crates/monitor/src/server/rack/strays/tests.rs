use std::sync::atomic::Ordering::SeqCst;

use crosslane_ctl::slab::EndPhase;

use super::super::lost::tests::Served;
use super::super::tests::TestRack;
use super::super::{Phase, Rack};
use super::*;
use crate::server::Source;

const INDEX: u32 = 7;
const PAIR: u64 = 9;

/// A monitor whose first window of two is open, and a program with lanes that it knows nothing of.
fn served() -> Served {
    let mut served = Served::with_windows(2);
    let (rack, registry) = parts(&mut served);
    rack.open_window(0, registry, true).unwrap();
    rack.windows[0].phase = Phase::Open;
    served.slab.header().entries_used.store(INDEX + 1, SeqCst);
    let entry = served.slab.entry(INDEX).unwrap();
    entry.id.phase.store(EndPhase::Granted as u32, SeqCst);
    entry.wait.pair.store(PAIR, SeqCst);
    served
}

fn parts(served: &mut Served) -> (&mut Rack, &mut Registry<Memories>) {
    let monitor = &mut served.monitor;
    (monitor.rack.as_mut().unwrap(), &mut monitor.registry)
}

fn lose(served: &mut Served, index: usize) {
    let (rack, registry) = parts(served);
    rack.window_is_lost(index, "lost", registry);
}

/// What the program has been told once the monitor has done what is due.
fn told(served: &mut Served) -> Vec<u8> {
    let due = parts(served).0.strays.due();
    let _ = due.map(|due| served.monitor.tell_strays(due));
    served.told()
}

fn that_it_is_lost(index: u32, pair: u64) -> Vec<u8> {
    let token = u64::from(index);
    MonitorMessage::WindowLost { token, pair }.encode()
}

#[test]
fn an_end_in_lanes_of_an_earlier_monitor_hears_of_a_lost_window() {
    let mut served = served();
    assert!(told(&mut served).is_empty());
    lose(&mut served, 0);
    assert!(parts(&mut served).0.due().is_some());
    assert_eq!(told(&mut served), that_it_is_lost(INDEX, PAIR));
    assert!(told(&mut served).is_empty(), "once");
}

#[test]
fn one_that_has_left_already_is_told_nothing() {
    let mut served = served();
    let entry = served.slab.entry(INDEX).unwrap();
    entry.id.flags.store(LOST, SeqCst);
    lose(&mut served, 0);
    assert!(told(&mut served).is_empty());
}

#[test]
fn a_window_that_has_never_been_open_is_nobodys_loss() {
    let mut served = served();
    let (rack, registry) = parts(&mut served);
    rack.tell_of_loss(1, registry);
    assert!(told(&mut served).is_empty());
}

/// It has been between two monitors.
#[test]
fn a_program_that_comes_after_the_loss_hears_of_it() {
    let mut served = served();
    let entry = served.slab.entry(INDEX).unwrap();
    entry.wait.pair.store(0, SeqCst);
    lose(&mut served, 0);
    assert!(told(&mut served).is_empty());
    let entry = served.slab.entry(INDEX).unwrap();
    entry.wait.pair.store(PAIR, SeqCst);
    assert!(told(&mut served).is_empty());
    served.monitor.welcome_strays();
    assert_eq!(told(&mut served), that_it_is_lost(INDEX, PAIR));
}

#[test]
fn an_end_in_doubt_hears_of_what_may_have_been_its_window() {
    let mut served = served();
    let lanes = (INDEX.into(), PAIR);
    let doubt = |served: &mut Served| {
        let Some(Source::Connection(connection)) = served.monitor.sources.get(&served.id()) else {
            panic!("it is there");
        };
        let member = connection.member.unwrap();
        served.monitor.doubted(member, lanes);
        served.told()
    };
    assert!(doubt(&mut served).is_empty(), "a window has yet to open");
    lose(&mut served, 0);
    assert_eq!(doubt(&mut served), that_it_is_lost(INDEX, PAIR));
}

#[test]
fn who_has_yet_to_read_something_is_told_later() {
    let mut served = served();
    let id = served.id();
    let connection = served.monitor.connection(id).unwrap();
    while !connection.is_behind() {
        connection.say(vec![0; 4096], None);
    }
    lose(&mut served, 0);
    served.monitor.tell_strays(Instant::now());
    assert!(parts(&mut served).0.strays.due().is_some());
    served.told();
    served.monitor.connection(id).unwrap().flush();
    served.told();
    assert_eq!(told(&mut served), that_it_is_lost(INDEX, PAIR));
}

#[test]
fn lanes_of_ends_that_are_known_are_told_apart() {
    let mut test = TestRack::new(2);
    let (owner, _, pair) = test.deal(1);
    assert!(test.registry.granted_lanes().contains(&pair));
    test.registry.lease(owner.0).unwrap();
    test.registry.release(owner.0, owner.1, pair);
    // A forked child may be there, of whose end the registry does not know.
    assert!(!test.registry.granted_lanes().contains(&pair));
    assert_eq!(test.registry.lanes().get(&pair), Some(&window_id(1)));
}
