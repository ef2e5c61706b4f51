//! `crosslane-posix` must print the same natively and under Crosslane.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::OnceLock;

use crosslane_testkit::{End, Host, Process, Program, Route, binary, forgiven, skipped};

/// The lines of a run by the name of their check.
type Lines = BTreeMap<String, String>;

/// What the kernel does in a run with these options.
struct Native {
    options: &'static [&'static str],
    lines: Lines,
}

impl Native {
    fn run(options: &'static [&'static str]) -> Self {
        let lines = run_natively(options);
        Self { options, lines }
    }

    /// Whether the kernel shows this line, too, in one of some runs: what two processors do at the
    /// same time has more than one outcome.
    fn may_show(&self, name: &str, line: Option<&String>) -> bool {
        let options = [self.options, &["--only", name]].concat();
        let shows = |_| run_natively(&options).get(name) == line;
        line.is_some() && (0..RUNS).any(shows)
    }
}

/// What the kernel does. One run stands for all, as `tcp::` makes sure.
fn native() -> &'static Native {
    static NATIVE: OnceLock<Native> = OnceLock::new();
    NATIVE.get_or_init(|| Native::run(&[]))
}

fn run_natively(options: &[&str]) -> Lines {
    let host = Host::new(Route::Tcp);
    let lines = seen(host.program(binary("crosslane-posix")).args(options));
    let broken: Vec<_> = lines.iter().filter(|(_, seen)| is_broken(seen)).collect();
    assert!(broken.is_empty(), "natively, too: {broken:?}");
    lines
}

/// Whether the line is what is told of a check that hung or crashed, which compares with nothing.
fn is_broken(seen: &str) -> bool {
    seen.starts_with("signal: ") || seen.starts_with("exit status: ")
}

/// What a program shows at its end.
fn seen(program: Program<'_>) -> Lines {
    lines(program.run().text().lines())
}

fn lines<'a>(text: impl Iterator<Item = &'a str>) -> Lines {
    let split = |line: &'a str| {
        line.split_once(": ")
            .expect("a line begins with its check's name")
    };
    text.map(split)
        .map(|(name, seen)| (name.to_owned(), seen.to_owned()))
        .collect()
}

/// How often a check that differs is run again, on either side.
const RUNS: usize = 20;

/// A way to run the checks, on a host that serves it.
type Way<'a> = &'a dyn for<'h> Fn(&'h Host) -> Program<'h>;

/// What stands in the line of a check that is about calls which only root may make, where it is somebody else.
const NOT_ROOT: &str = "EPERM,not-root";

/// Say which checks could not do what they are about.
fn tell_skipped(lines: &Lines) {
    let of_root = lines.iter().filter(|(_, line)| line.contains(NOT_ROOT));
    let names: Vec<_> = of_root.map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        skipped(&format!("only root may do all of {}", names.join(", ")));
    }
}

/// Fail with every check whose line differs from what the kernel shows, unless the kernel shows that, too, now and
/// then, and this way shows now and then what the kernel has shown first.
fn assert_same(found: &Lines, native: &Native, host: &Host, way: Way<'_>) {
    let again = |name: &str| seen(way(host).args(["--only", name])).remove(name);
    let is_forgiven = |name: &String| {
        let is_native = native.may_show(name, found.get(name))
            && (0..RUNS).any(|_| again(name).as_ref() == native.lines.get(name));
        if is_native {
            let seen = &found[name];
            forgiven(&format!(
                "{name} varies natively, too, and has shown {seen}"
            ));
        }
        is_native
    };
    tell_skipped(found);
    let expected = &native.lines;
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differences: Vec<String> = names
        .into_iter()
        .filter(|name| found.get(*name) != expected.get(*name))
        .filter(|name| !is_forgiven(name))
        .map(|name| {
            let shown = |lines: &Lines| lines.get(name).map_or("nothing", |line| line).to_owned();
            format!(
                "{name}\n  expected {}\n  found    {}",
                shown(expected),
                shown(found)
            )
        })
        .collect();
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{count} checks differ:\n{}",
        differences.join("\n")
    );
}

/// Run the checks this way, and see afterwards that connections came into rings, and out of them where they are to
/// go to and fro.
fn assert_same_by(native: &Native, counters: &[&str], way: Way<'_>) {
    let host = Host::new(Route::Crosslane);
    assert_same(&seen(way(&host)), native, &host, way);
    assert_counted(&host, counters);
}

/// What directions do that come into rings.
const UPGRADED: &[&str] = &["upgrades"];
/// And those that leave them, too.
const TO_AND_FRO: &[&str] = &["upgrades", "downgrades"];

/// Of 54 checks in processes of their own, some of which have children, 35 to 37 processes had rings on an busy machine.
const SOLO_WITH_RINGS: usize = 15;

/// The processes of which `crosslane run --explain` tells, in this file, that they have used rings.
fn processes_with_rings(host: &Host, name: &str) -> BTreeSet<u32> {
    let told = std::fs::read_to_string(host.folder().join(name)).expect("it was told");
    // The last line, which is no end, sums up.
    let ends = told
        .lines()
        .filter_map(|line| serde_json::from_str::<End>(line).ok());
    ends.filter(|end| end.ring_bytes_sent + end.ring_bytes_received > 0)
        .map(|end| end.pid)
        .collect()
}

fn assert_counted(host: &Host, counters: &[&str]) {
    let stats = host.stats();
    let is_counted = counters.iter().all(|counter| stats.count(counter) > 0);
    assert!(
        is_counted,
        "{counters:?}: nothing was accelerated: {stats:?}"
    );
}

/// Run all checks under Crosslane, and see before each that its connection is accelerated.
fn assert_same_when_accelerated(options: &[&str]) {
    assert_same_when_stepped(native(), &|host| {
        host.program(binary("crosslane-posix")).args(options)
    });
}

/// Run the checks this way, and see before each that its connection is accelerated.
fn assert_same_when_stepped(native: &Native, way: Way<'_>) {
    let host = &Host::new(Route::Crosslane);
    let mut program = way(host).arg("--step").with_open_input().start();
    let mut text = Vec::new();
    let mut on_tcp = Vec::new();
    while let Some(line) = program.next_line() {
        match line.strip_prefix("@ready ") {
            Some(ready) => on_tcp.extend(see_acceleration(host, &mut program, ready)),
            None => text.push(line),
        }
    }
    let found = lines(text.iter().map(String::as_str));
    assert_same(&found, native, host, way);
    assert!(
        on_tcp.is_empty(),
        "not accelerated before its check:\n{}",
        on_tcp.join("\n")
    );
}

/// An address as `crosslane ss` shows it: a mapped IPv4 address is an IPv4 address.
fn plain(address: &str) -> String {
    let address: SocketAddr = address.parse().expect("an address and a port");
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// How often a connection may talk on before it has to be accelerated.
const LOOKS: usize = 100;

/// Look at the connection `NAME LOCAL PEER` until it is accelerated, and let its check go on. What
/// is wrong, if anything.
fn see_acceleration(host: &Host, program: &mut Process, ready: &str) -> Option<String> {
    let mut wrong = not_accelerated(host, ready);
    for _ in 1..LOOKS {
        if wrong.is_none() {
            break;
        }
        program.write_line("again");
        let said = program.next_line();
        assert_eq!(said.as_deref(), Some(&*format!("@ready {ready}")));
        wrong = not_accelerated(host, ready);
    }
    program.write_line("go");
    wrong
}

fn not_accelerated(host: &Host, ready: &str) -> Option<String> {
    let words: Vec<&str> = ready.split(' ').collect();
    let [name, local, peer] = words[..] else {
        panic!("{ready} names no connection")
    };
    let ends = host.ends();
    // The kernel tells a program nothing of the other end of an AF_UNIX socket.
    let is_unix = local.starts_with("unix:");
    let is_of_it = |end: &&End| match is_unix {
        true => end.local == local || end.peer == local,
        false => end.is_between(&plain(local), &plain(peer)),
    };
    let of_it: Vec<_> = ends.iter().filter(is_of_it).collect();
    let is_accelerated = of_it.len() == 2 && of_it.iter().all(|end| end.is_accelerated());
    (!is_accelerated).then(|| format!("{name}: {of_it:?}"))
}

/// Fail unless the kernel does with these options as it does without.
fn assert_same_natively(options: &[&str], native: &Native) {
    let host = Host::new(Route::Tcp);
    assert_same(&run_natively(options), native, &host, &|host| {
        host.program(binary("crosslane-posix")).args(options)
    });
}

mod tcp {
    use super::*;

    #[test]
    fn a_connection_without_traffic_behaves_alike() {
        assert_same_natively(&["--warm", "0"], native());
    }

    #[test]
    fn it_does_not_matter_who_connects() {
        assert_same_natively(&["--near-connects"], native());
    }
}

mod crosslane {
    use super::*;

    #[test]
    fn an_accelerated_connection_behaves_alike() {
        assert_same_when_accelerated(&[]);
    }

    #[test]
    fn it_does_not_matter_who_connects() {
        assert_same_when_accelerated(&["--near-connects"]);
    }

    #[test]
    fn a_connection_that_is_upgraded_meanwhile_behaves_alike() {
        for round_trips in ["0", "3"] {
            assert_same_by(native(), UPGRADED, &|host| {
                host.program(binary("crosslane-posix"))
                    .args(["--warm", round_trips])
            });
        }
    }

    #[test]
    fn an_eager_connection_behaves_alike() {
        assert_same_by(native(), UPGRADED, &|host| {
            host.program(binary("crosslane-posix"))
                .run_option("--eager", "1-65535")
                .args(["--warm", "0"])
        });
    }

    #[test]
    fn a_connection_that_changes_to_and_fro_behaves_alike() {
        assert_same_by(native(), TO_AND_FRO, &|host| {
            host.program(binary("crosslane-posix"))
                .env("CROSSLANE_CHAOS", "5")
        });
    }

    /// No connection of these can be looked at before its check, which makes it itself: it is told of afterwards. Many checks are
    /// over before they could have rings, or have no connection at all.
    #[test]
    fn checks_that_make_their_connections_themselves_are_accelerated() {
        const SOLO: &[&str] = &["--solo"];
        let host = Host::new(Route::Crosslane);
        let way: Way<'_> = &|host| host.program(binary("crosslane-posix")).args(SOLO);
        let found = seen(way(&host).explained("told"));
        assert_same(&found, &Native::run(SOLO), &host, way);
        let processes = processes_with_rings(&host, "told");
        let count = processes.len();
        assert!(count >= SOLO_WITH_RINGS, "processes with rings: {count}");
    }

    /// A spin may take 50 ms by `spin`: a signal, and what the kernel has to tell, end it as they end a sleep.
    #[test]
    fn not_only_its_ring_ends_a_long_spin() {
        const CHECKS: &[&str] = &[
            "--only",
            "one_signal_ends_a_receive_after_answers",
            "--only",
            "one_signal_ends_a_poll_after_answers",
            "--only",
            "one_signal_ends_an_epoll_wait_after_answers",
            "--only",
            "pipe_beside_it_in_a_set",
            "--only",
            "pipe_beside_it_in_a_poll",
        ];
        assert_same_when_stepped(&Native::run(CHECKS), &|host| {
            let program = host.program(binary("crosslane-posix"));
            program.run_option("--wait", "spin").args(CHECKS)
        });
    }

    /// Where both directions have left the rings, each end could wait for the other for ever.
    #[test]
    fn both_directions_come_back_more_than_once() {
        let host = Host::new(Route::Crosslane);
        let program = host
            .program(binary("crosslane-posix"))
            .args(["--warm", "20000", "--only", "no_urgent_data"])
            .env("CROSSLANE_CHAOS", "5");
        program.run();
        let left = host.stats().reason_count("chaos");
        assert!(
            left > 2,
            "each of two ends has left the rings {left} times at most"
        );
    }

    #[test]
    fn the_programs_own_nagle_setting_is_what_it_sees() {
        // Long enough for the monitor to have got rings ready.
        const CHECK: [&str; 5] = [
            "--nagle",
            "--warm",
            "1000",
            "--only",
            "nodelay_is_the_programs_own",
        ];
        let host = Host::new(Route::Crosslane);
        let program = host.program(binary("crosslane-posix")).args(CHECK);
        assert_eq!(seen(program), run_natively(&CHECK));
        assert_counted(&host, UPGRADED);
    }
}

mod unix {
    use super::*;

    fn under_crosslane<'a>(host: &'a Host, over: &str) -> Program<'a> {
        host.program(binary("crosslane-posix"))
            .run_flag("--unix")
            .args(["--over", over])
    }

    /// What the kernel does, whether a stream is connected or made as a pair.
    fn native_unix() -> &'static Native {
        static NATIVE: OnceLock<Native> = OnceLock::new();
        NATIVE.get_or_init(|| Native::run(&["--over", "unix"]))
    }

    #[test]
    fn a_pair_natively_is_as_a_connection() {
        assert_same_natively(&["--over", "pair"], native_unix());
    }

    #[test]
    fn an_accelerated_connection_behaves_alike() {
        assert_same_when_stepped(native_unix(), &|host| under_crosslane(host, "unix"));
    }

    #[test]
    fn an_accelerated_pair_behaves_alike() {
        assert_same_when_stepped(native_unix(), &|host| under_crosslane(host, "pair"));
    }

    #[test]
    fn the_one_who_connects_behaves_alike() {
        let native = Native::run(&["--over", "unix", "--near-connects"]);
        assert_same_by(&native, UPGRADED, &|host| {
            under_crosslane(host, "unix").arg("--near-connects")
        });
    }

    #[test]
    fn a_connection_that_is_upgraded_meanwhile_behaves_alike() {
        for round_trips in ["0", "3"] {
            assert_same_by(native_unix(), UPGRADED, &|host| {
                under_crosslane(host, "unix").args(["--warm", round_trips])
            });
        }
    }

    #[test]
    fn a_connection_that_changes_to_and_fro_behaves_alike() {
        assert_same_by(native_unix(), TO_AND_FRO, &|host| {
            under_crosslane(host, "unix").env("CROSSLANE_CHAOS", "5")
        });
    }
}
