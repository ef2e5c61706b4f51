//! Over posted windows a program writes the other host's memory and never reads it: over a bridge a read takes a microsecond, and
//! hangs or lies when that host has died. What keeps it so are types; what is counted here is what comes of them. Valgrind's lackey
//! tells of each load and store that a program and the library in it make, threads included.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::{AddAssign, Range};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;

use crosslane_testkit::rack::{ADDRESSES, POSTED, Rack, can_run};
use crosslane_testkit::{Program, binary, skipped, tell};

const PORT: u16 = 6702;
const PAGE: u64 = 4096;

/// What the program does over a connection of its own: round trips of one record and of several, and a stream that fills its ring.
const CASES: [(&str, u64); 3] = [("rtt", 64), ("rtt", 20_000), ("stream", 4096)];

/// The host of each side's program.
const SIDES: [(usize, &str); 2] = [(1, "the client"), (0, "the server")];

/// How long, warm-up and measurement each. Under valgrind on a busy machine the first may be over before the connection is in the window.
const MILLISECONDS: [u64; 3] = [500, 2_000, 8_000];

/// Accesses to each of the memories that say that bytes have gone over it.
const ENOUGH: u64 = 500;

/// Accesses to some memory.
#[derive(Clone, Copy, Debug, Default)]
struct Accesses {
    loads: u64,
    stores: u64,
}

impl AddAssign for Accesses {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.stores += other.stores;
    }
}

/// By the number of the page.
type Pages = HashMap<u64, Accesses>;

fn can_count() -> bool {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    if !has_valgrind {
        skipped("loads are counted by valgrind, which is missing: run `cargo xtask setup`");
    }
    has_valgrind && can_run()
}

/// By the client on beta as by the server on alpha.
#[test]
fn nobody_reads_the_other_hosts_memory() {
    if !can_count() {
        return;
    }
    for (side, name) in SIDES {
        // One for each, as hosts live for so long only.
        let rack = Rack::of_kind(POSTED);
        for case in CASES {
            let files = [&*rack.memory(1 - side), &*rack.memory(side)];
            let [there, here] = accesses(&rack, side, case, files);
            tell(&format!("{case:?}, {name}: there {there:?}, here {here:?}"));
            assert_eq!(
                there.loads, 0,
                "{case:?}: {name} reads the other host's memory"
            );
            assert!(there.stores >= ENOUGH && here.loads > 0);
        }
    }
}

/// Of memory that both hosts read and write, the same count finds what there must not be of the other's.
#[test]
fn reads_are_counted_where_there_are_some() {
    if !can_count() {
        return;
    }
    let rack = Rack::of_kind("file");
    for (side, name) in SIDES {
        let [both] = accesses(&rack, side, CASES[0], [rack.window(0)]);
        tell(&format!("{:?}, {name}: {both:?}", CASES[0]));
        assert!(both.loads > 0 && both.stores > 0);
    }
}

/// From the first byte to the close, count the accesses of one side's program to the memory that is mapped from these files.
fn accesses<const FILES: usize>(
    rack: &Rack,
    side: usize,
    case: (&str, u64),
    files: [&Path; FILES],
) -> [Accesses; FILES] {
    let mut tried = MILLISECONDS
        .iter()
        .map(|time| run(rack, side, case, *time, files));
    let found = tried.find(|found| {
        let mut each = found.iter();
        each.all(|found| found.loads + found.stores >= ENOUGH)
    });
    found.unwrap_or_else(|| panic!("{case:?} hardly used the window"))
}

/// Once, for so many milliseconds.
fn run<const FILES: usize>(
    rack: &Rack,
    side: usize,
    (case, bytes): (&str, u64),
    time: u64,
    files: [&Path; FILES],
) -> [Accesses; FILES] {
    let trace = format!("{case}-{bytes}-{time}.trace");
    let trace = rack.hosts[side].folder().join(trace);
    let made = Command::new("mkfifo").arg(&trace).status();
    assert!(made.expect("mkfifo is installed").success());
    let counting = count(&trace);
    let traced = |at| (at == side).then_some(&*trace);
    let server = sockbench(rack, 0, traced(0))
        .args(["server", "--listen"])
        .arg(format!("tcp:{}:{PORT}", ADDRESSES[0]))
        .start();
    server.wait_for_port(PORT);
    let (bytes, time) = (bytes.to_string(), time.to_string());
    let mut client = sockbench(rack, 1, traced(1))
        .arg("client")
        .arg(format!("--connect=tcp:{}:{PORT}", ADDRESSES[0]))
        .args(["--case", case, "--bytes", &bytes])
        .args(["--warmup", &time, "--measure", &time, "--hold"])
        .with_open_input()
        .start();
    let result = client.next_line();
    assert!(result.is_some(), "{}", client.log());
    let pid = [server.pid(), client.pid()][side];
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    let maps = maps.expect("it holds the connection");
    let _ = client.finish().expect_success();
    server.assert_running();
    let _ = server.stop();
    let pages = counting.join().expect("the trace is read to its end");
    files.map(|file| {
        let mut sum = Accesses::default();
        for page in mapped_from(&maps, file).flatten() {
            sum += pages.get(&page).copied().unwrap_or_default();
        }
        sum
    })
}

/// The program, to be traced into this file if any.
fn sockbench<'a>(rack: &'a Rack, at: usize, trace: Option<&Path>) -> Program<'a> {
    let name = binary("crosslane-sockbench");
    let program = match trace {
        None => rack.hosts[at].program(name),
        Some(trace) => rack.hosts[at]
            .program("valgrind")
            .args(["--tool=lackey", "--trace-mem=yes", "--trace-syscalls=yes"])
            .arg(format!("--log-file={}", trace.display()))
            .arg(name),
    };
    program.run_option("--eager", "1-65535")
}

/// The pages of a process that are mapped from a file, by proc_pid_maps(5).
fn mapped_from<'a>(maps: &'a str, file: &'a Path) -> impl Iterator<Item = Range<u64>> + 'a {
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    maps.lines().filter_map(move |line| {
        let (range, name) = (line.split(' ').next()?, line.split_whitespace().nth(5)?);
        let (start, end) = range.split_once('-')?;
        (Path::new(name) == file).then(|| number(start) / PAGE..number(end) / PAGE)
    })
}

/// Count what a trace tells of, until who writes it ends.
fn count(trace: &Path) -> JoinHandle<Pages> {
    let trace = trace.to_owned();
    std::thread::spawn(move || {
        let mut lines = BufReader::with_capacity(1 << 16, File::open(trace).expect("it was made"));
        let (mut pages, mut line) = (Pages::new(), Vec::new());
        while lines.read_until(b'\n', &mut line).expect("a pipe") > 0 {
            note(&line, &mut pages);
            line.clear();
        }
        pages
    })
}

fn note(line: &[u8], pages: &mut Pages) {
    let (loads, stores) = match line {
        [b' ', b'L', b' ', ..] => (1, 0),
        [b' ', b'S', b' ', ..] => (0, 1),
        [b' ', b'M', b' ', ..] => (1, 1),
        // An instruction.
        [b'I', ..] => return,
        other => {
            // What was done to other memory, at these addresses before, does not count.
            if let Some(fresh) = mapped(&String::from_utf8_lossy(other)) {
                pages.retain(|page, _| !fresh.contains(page));
            }
            return;
        }
    };
    if let Some(page) = page(&line[3..]) {
        *pages.entry(page).or_default() += Accesses { loads, stores };
    }
}

/// Of `1ffefff8d0,8`.
fn page(access: &[u8]) -> Option<u64> {
    let mut digits = access.split(|byte| *byte == b',');
    let digits = std::str::from_utf8(digits.next()?).ok()?;
    Some(u64::from_str_radix(digits.trim(), 16).ok()? / PAGE)
}

/// The pages of a mapping that has just been made:
/// `SYSCALL[7,1](9) sys_mmap ( 0x0, 8192, 3, 34, -1, 0 ) --> [pre-success] Success(0x4a2b000)`.
fn mapped(call: &str) -> Option<Range<u64>> {
    let (_, arguments) = call.split_once("sys_mmap (")?;
    let (_, result) = arguments.split_once("Success(0x")?;
    let bytes: u64 = arguments.split(',').nth(1)?.trim().parse().ok()?;
    let start = u64::from_str_radix(result.split(')').next()?, 16).ok()?;
    Some(start / PAGE..(start + bytes).div_ceil(PAGE))
}

#[test]
fn lines_of_a_trace_are_understood() {
    let mut pages = Pages::new();
    let lines = [
        "I  04023a30,3",
        " S 1ffefff8d0,8",
        " L 1ffefff8d8,8",
        " M 1ffefff8e0,4",
        " L 4a2b010,8",
        "SYSCALL[7,1](9) sys_mmap ( 0x0, 8192, 3, 34, -1, 0 ) --> [pre-success] Success(0x4a2b000)",
        " S 4a2c010,8",
    ];
    lines
        .iter()
        .for_each(|line| note(line.as_bytes(), &mut pages));
    let of = |page| pages.get(&page).map(|found| (found.loads, found.stores));
    assert_eq!(of(0x01ff_efff), Some((2, 2)));
    assert_eq!((of(0x4a2b), of(0x4a2c)), (None, Some((0, 1))));
}
