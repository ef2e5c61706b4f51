//! What the monitor remembers for `crosslane run --explain`.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{Client, Running, WATCHDOG, monitor};
use crosslane_ctl::ledger::{LEDGER_RECORDS, RecordState};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::EndPhase;
use crosslane_monitor::client::{MonitorClient, RunEnd, RunRest};

const RUN: u64 = 0x1234_5678_9abc_def0;

/// A process of the run that has had `count` connections, closed on TCP.
fn process(monitor: &Running, run: u64, count: u32) -> Client {
    let client = monitor.connect();
    client.slab.header().run.store(run, Relaxed);
    client.slab.header().recorded.store(count, Relaxed);
    for number in 0..count.min(LEDGER_RECORDS) {
        let record = client.slab.record(number).unwrap();
        // An entry of another generation: somebody else's by now.
        record.generation.store(1, Relaxed);
        record.fd.store(5, Relaxed);
        record.pid.store(std::process::id(), Relaxed);
        record.phase.store(EndPhase::Registered as u32, Relaxed);
        record.reason.store(Reason::NoPeer as u32, Relaxed);
        record.tcp_bytes[0].store(u64::from(number), Relaxed);
        record.addresses[0][1].store(
            u64::from_ne_bytes([0, 0, 0xff, 0xff, 127, 0, 0, 1]),
            Relaxed,
        );
        record.ports[0].store(4000, Relaxed);
        record.state.store(RecordState::Closed as u32, Relaxed);
    }
    let mut client = client;
    client.hello();
    client
}

fn command(monitor: &Running) -> MonitorClient {
    MonitorClient::connect(monitor.directory.path()).unwrap()
}

fn watch(monitor: &Running) -> MonitorClient {
    let command = command(monitor);
    command.watch(RUN).unwrap();
    // Once this is answered, the run is watched.
    command.counters(WATCHDOG).unwrap();
    command
}

fn ask(monitor: &Running) -> (Vec<RunEnd>, RunRest) {
    command(monitor).run(RUN, WATCHDOG).unwrap()
}

fn gone(monitor: &Running, client: Client) {
    drop(client);
    monitor.wait_until("the process is gone", |counters| {
        counters.monitor.processes == 0
    });
}

#[test]
fn ends_of_a_finished_process_are_remembered_as_long_as_somebody_watches() {
    let monitor = monitor();
    let watcher = watch(&monitor);
    let client = process(&monitor, RUN, 3);
    let (living, _) = ask(&monitor);
    gone(&monitor, client);
    let (mut ends, rest) = ask(&monitor);
    assert_eq!(ends, living);
    assert_eq!(
        rest,
        RunRest {
            watched: true,
            left_out: 0
        }
    );
    assert_eq!(ends.len(), 3);
    let last = ends.pop().unwrap();
    assert!(last.ended);
    assert_eq!(last.connection.local, "127.0.0.1:4000");
    assert_eq!(last.connection.peer, "");
    assert_eq!(last.connection.tcp_bytes_sent, 2);
    assert_eq!(last.connection.reason.as_deref(), Some("no-peer"));
    assert_eq!(
        last.connection.remedy.as_deref(),
        Some(Reason::NoPeer.remedy())
    );
    drop(watcher);
    monitor.wait_until("the watcher is gone", |counters| {
        counters.monitor.connections == 1
    });
    assert_eq!(ask(&monitor), (Vec::new(), RunRest::default()));
}

#[test]
fn other_runs_and_unwatched_ones_are_not_remembered() {
    let monitor = monitor();
    let _watcher = watch(&monitor);
    let client = process(&monitor, RUN + 1, 3);
    gone(&monitor, client);
    let client = process(&monitor, 0, 3);
    gone(&monitor, client);
    assert_eq!(ask(&monitor).0, []);
    assert_eq!(command(&monitor).run(RUN + 1, WATCHDOG).unwrap().0, []);
    assert_eq!(command(&monitor).run(0, WATCHDOG).unwrap().0, []);
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let monitor = monitor();
    let _watcher = watch(&monitor);
    let per_process = LEDGER_RECORDS + 5;
    let living = process(&monitor, RUN, per_process);
    let (ends, rest) = ask(&monitor);
    assert_eq!((ends.len(), rest.left_out), (LEDGER_RECORDS as usize, 5));
    gone(&monitor, living);
    for _ in 0..3 {
        let client = process(&monitor, RUN, per_process);
        gone(&monitor, client);
    }
    let (ends, rest) = ask(&monitor);
    assert_eq!(ends.len(), 1 << 14, "no more is kept for one run");
    assert_eq!(
        ends.len() as u64 + rest.left_out,
        4 * u64::from(per_process)
    );
}

#[test]
fn a_child_that_brings_the_slab_back_is_not_told_twice() {
    let monitor = monitor();
    let _watcher = watch(&monitor);
    let mut client = process(&monitor, RUN, 3);
    client.reconnect(monitor.directory.path());
    monitor.wait_until("the old connection is gone", |c| c.monitor.processes == 1);
    assert_eq!(ask(&monitor).0.len(), 3);
}

#[test]
fn nonsense_in_a_ledger_harms_nobody() {
    let monitor = monitor();
    let _watcher = watch(&monitor);
    let client = process(&monitor, RUN, 2);
    let record = client.slab.record(0).unwrap();
    for word in [
        &record.entry,
        &record.phase,
        &record.rings,
        &record.reason,
        &record.ports[0],
    ] {
        word.store(u32::MAX, Relaxed);
    }
    client.slab.record(1).unwrap().state.store(77, Relaxed);
    client.slab.header().recorded.store(u32::MAX, Relaxed);
    let (ends, rest) = ask(&monitor);
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].connection.local, "");
    assert_eq!(rest.left_out, u64::from(u32::MAX - LEDGER_RECORDS));
}
