//! Two virtual machines with a network between them and one PCI device's memory in both.

use std::sync::LazyLock;
use std::time::Instant;

use crosslane_testkit::guest::{Device, Image, Machine, Parts, Rack};
use crosslane_testkit::{Host, Route, Stats, binary, tell, test_binary, wait_until};
use serde_json::Value;

/// Where the programs of this project lie in a machine.
const OWN: &str = "/opt/crosslane";

/// The memory that both machines have, as the kernel maps it without and with write combining.
const BAR: &str = "/run/ivshmem/resource2";
const COMBINING_BAR: &str = "/run/ivshmem/resource2_wc";

/// Half of that memory.
const HALF_BYTES: u64 = 32 << 20;

/// What VFIO is made of in the kernel, beside what these need.
const VFIO: [&str; 2] = ["vfio_iommu_type1", "vfio_pci"];

/// Each side's part of `crosslane window test`, where what is new is the way to the memory and not the memory.
const SHORT: &str = "--seconds 0.3 --bytes 1048576";

/// What redis-benchmark is asked to do.
const LOADS: [&str; 2] = ["GET", "SET"];

/// How many times as many GETs go through the BAR as by the virtual network, at least.
const TIMES: f64 = 3.0;

/// When the first of these tests began, which run one after the other.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Requests of each kind of load; one kind sends 64 bytes of value, the other gets them.
const REQUESTS: u64 = 3000;
const LOAD_BYTES: u64 = 2 * REQUESTS * 64;

/// A value of random bytes, of which 3 are 4 letters.
const RANDOM_BYTES: u64 = 200_000;
const VALUE_BYTES: u64 = RANDOM_BYTES / 3 * 4;

fn image(parts: &Parts) -> Image {
    let names = [
        "crosslane",
        "libcrosslane.so",
        "crosslane-token",
        "crosslane-vfio-lend",
    ];
    names.iter().fold(Image::new(parts), |image, name| {
        image.with(binary(name), &format!("{OWN}/{name}"))
    })
}

/// Two emulated machines take most of the time of all suites: say how much.
fn tell_time() {
    tell(&format!(
        "under QEMU for {:.0} s so far",
        BEGAN.elapsed().as_secs_f64()
    ));
}

#[test]
fn hosts_reach_each_other_by_network_and_by_memory() {
    LazyLock::force(&BEGAN);
    let suite = test_binary("crosslane-ring", "windows");
    let host = Host::without_monitor(Route::Tcp);
    let parts = Parts::unpacked();
    let image = VFIO.iter().fold(image(&parts), |image, module| {
        image.with_module(&parts, module)
    });
    let image = image.with(suite, &format!("{OWN}/windows"));
    let mut rack = Rack::boot(&host, &parts, image, Device::Plain);
    let [first, second] = &mut rack.machines;

    let reply = first.run(&format!("ping -c 3 -A -W 5 {}", second.address()));
    assert!(reply.contains("3 packets received"), "{reply}");
    bytes_arrive_by_tcp(first, second);
    for bar in [BAR, COMBINING_BAR] {
        a_token_passes_through(bar, first, second);
    }
    the_window_is_found_and_passes_its_test(first, second);
    the_windows_own_suite_passes_on_the_device(first);
    the_window_passes_its_test_by_vfio(first, second);
    a_file_is_lent_and_the_region_mapped_beside_vfio(first);
    huge_pages_pass_the_test_and_may_be_a_window_of_a_rack(first);
    tell_time();
}

/// A mebibyte of random bytes, compared by its sum.
fn bytes_arrive_by_tcp(first: &mut Machine, second: &mut Machine) {
    first.run("head -c 1048576 /dev/urandom >/tmp/sent");
    // Its standard input stays open, as nc ends with that.
    second.begin(
        "mkfifo /tmp/open; nc -l -p 7000 <>/tmp/open >/tmp/received; sha256sum </tmp/received",
    );
    let address = second.address();
    first.run_until_success(&format!("nc {address} 7000 </tmp/sent"));
    let sent = first.run("sha256sum </tmp/sent");
    assert_eq!(second.end(), (0, sent));
}

fn a_token_passes_through(bar: &str, first: &mut Machine, second: &mut Machine) {
    first.run(&format!("crosslane-token --path {bar} --clear"));
    let command = |side: u8| format!("crosslane-token --path {bar} --side {side}");
    first.begin(&command(0));
    second.begin(&command(1));
    for machine in [first, second] {
        let (status, output) = machine.end();
        assert_eq!(status, 0, "{output}");
        assert!(output.contains("\"rounds\":2000"), "{output}");
        println!("{output}");
    }
}

/// The first two of the three commands that docs/hardware.md promises; the third is in [`join`].
fn the_window_is_found_and_passes_its_test(first: &mut Machine, second: &mut Machine) {
    let begin = |machine: &mut Machine, side: u8| {
        println!("{}", machine.run("crosslane window probe"));
        let found = machine.run("crosslane window probe --json | grep ivshmem-plain");
        let device: Value = serde_json::from_str(&found).expect("one line of JSON");
        let place = device["place"].as_str().expect("a place");
        // What it says of a device that no driver has enabled.
        machine.run(&format!("echo 1 >/sys/bus/pci/devices/{place}/enable"));
        let probed = machine.run("crosslane window probe --json | grep ivshmem-plain");
        assert!(probed.contains(r#""usable":true"#), "{probed}");
        machine.begin(&format!("crosslane window test {place} --side {side}"));
    };
    begin(first, 0);
    begin(second, 1);
    for machine in [first, second] {
        let (status, output) = machine.end();
        println!("{output}");
        assert_eq!(status, 0, "{output}");
    }
}

/// What every window must do, of both sides in this machine, as programs write it without and with write combining.
fn the_windows_own_suite_passes_on_the_device(machine: &mut Machine) {
    let tested = machine.run(&format!(
        "CROSSLANE_TEST_WINDOWS=only:{BAR},{COMBINING_BAR} windows --test-threads 1 conformance"
    ));
    println!("{tested}");
    assert!(tested.contains("test result: ok. 5 passed"), "{tested}");
}

/// A file of two pages of 2 MiB: both sides in this machine, as nobody else has it.
fn huge_pages_pass_the_test_and_may_be_a_window_of_a_rack(machine: &mut Machine) {
    machine.run("echo 2 >/proc/sys/vm/nr_hugepages; grep -qx 2 /proc/sys/vm/nr_hugepages");
    machine.run("mkdir -p /mnt/huge; mount -t hugetlbfs none /mnt/huge");
    let probed = machine.run("crosslane window probe --json | grep '\"kind\":\"hugetlbfs\"'");
    assert!(probed.contains(r#""usable":true"#), "{probed}");
    machine.run("truncate -s 4M /mnt/huge/window");
    let tested = machine.run(&format!("crosslane window test /mnt/huge/window {SHORT}"));
    println!("{tested}");
    assert!(tested.contains("file in hugetlbfs"), "{tested}");

    machine.run("crosslane rack init --rack /tmp/huge.toml");
    let print = format!("sha256:{}", "ab".repeat(32));
    let (status, said) = machine.attempt(&format!(
        "crosslane rack add other --address 192.0.2.9 --fingerprint {print} --window /mnt/huge/window \
         --rack /tmp/huge.toml"
    ));
    let is_added = said.contains("other is in /tmp/huge.toml");
    assert!(status == 0 && is_added, "{status}: {said}");
    machine.run("umount /mnt/huge; echo 0 >/proc/sys/vm/nr_hugepages");
}

/// As docs/hardware.md says it is set up. VFIO's driver has the device from then on.
fn the_window_passes_its_test_by_vfio(first: &mut Machine, second: &mut Machine) {
    for (side, machine) in [&mut *first, &mut *second].into_iter().enumerate() {
        // These machines' IOMMU does not remap interrupts, of which the device has none.
        machine.run("echo 1 >/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts");
        let device = machine.run("basename $(readlink -f /run/ivshmem)");
        let device = device.trim();
        machine.run(&format!(
            "echo vfio-pci >/sys/bus/pci/devices/{device}/driver_override; \
             echo {device} >/sys/bus/pci/drivers_probe"
        ));
        println!("{}", machine.run("crosslane window probe"));
        let probed = machine.run("crosslane window probe --json | grep ivshmem-plain");
        let place = format!("vfio:{device}");
        let is_usable = probed.contains(&place) && probed.contains(r#""usable":true"#);
        assert!(is_usable, "{probed}");
        machine.begin(&format!(
            "crosslane window test {place} --side {side} {SHORT}"
        ));
    }
    for machine in [first, second] {
        let (status, output) = machine.end();
        println!("{output}");
        assert!(status == 0 && output.contains("by VFIO"), "{output}");
    }
}

/// What `crosslane window hold` asks of the kernel (docs/decisions/ntb.md), with a device that is no bridge. VFIO has it already.
fn a_file_is_lent_and_the_region_mapped_beside_vfio(machine: &mut Machine) {
    let lend = "crosslane-vfio-lend $(basename $(readlink -f /run/ivshmem)) 2 /mnt/memory/lent";
    let said = machine.run(&format!(
        "mkdir -p /mnt/memory; mount -t tmpfs none /mnt/memory; {lend}; umount /mnt/memory"
    ));
    println!("{}: {said}", machine.run("uname -r").trim());
    assert!(said.contains("lent\nleft alone: sysfs maps it"), "{said}");
}

#[test]
fn redis_serves_the_other_host_through_the_bar() {
    LazyLock::force(&BEGAN);
    let host = Host::without_monitor(Route::Tcp);
    let parts = Parts::unpacked();
    let image = ["redis-server", "redis-cli", "redis-benchmark"]
        .iter()
        .fold(image(&parts), |image, name| {
            image.with(format!("/usr/bin/{name}"), &format!("/usr/bin/{name}"))
        });
    let mut rack = Rack::boot(&host, &parts, image, Device::Doorbell);
    let [first, second] = &mut rack.machines;
    for machine in [&mut *first, &mut *second] {
        let probed = machine.run("crosslane window probe --json | grep '\"kind\":\"ivshmem'");
        let device = format!(r#""kind":"{}""#, Device::Doorbell.name());
        assert!(probed.contains(&device), "{probed}");
    }
    let by_tcp = rates("", first, second);
    for window in [Window::Shared, Window::Halves] {
        connections_go_through(window, &by_tcp, first, second);
    }
    tell_time();
}

/// What a window between the machines is made of.
#[derive(Clone, Copy, PartialEq)]
enum Window {
    /// All of the memory that both have.
    Shared,
    /// The half of it that each of them reads, and that the other one only writes, write-combining.
    Halves,
}

impl Window {
    /// Where `rack.toml` and the keys lie.
    fn folder(self) -> &'static str {
        match self {
            Self::Shared => "/etc/crosslane",
            Self::Halves => "/etc/crosslane-halves",
        }
    }

    /// What `crosslane rack add` is told of it.
    fn options(self) -> String {
        match self {
            Self::Shared => format!("--window {BAR}"),
            Self::Halves => {
                format!("--window {BAR} --beyond {COMBINING_BAR} --window-bytes {HALF_BYTES}")
            }
        }
    }

    /// What has no option, for the table of the window, which comes last in the file.
    fn rest(self, machine: usize) -> String {
        let [own, other] = [machine, 1 - machine].map(|half| half as u64 * HALF_BYTES);
        match self {
            Self::Shared => String::new(),
            Self::Halves => format!("offset = {own}\\nbeyond_offset = {other}\\n"),
        }
    }

    /// The file that programs write by.
    fn written(self) -> &'static str {
        match self {
            Self::Shared => "resource2",
            Self::Halves => "resource2_wc",
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shared => "through the BAR",
            Self::Halves => "by posted writes into the BAR's halves, write-combining",
        })
    }
}

/// Redis in one machine serves the other one, faster than by the network; and what is in the window outlives it.
fn connections_go_through(
    window: Window,
    by_tcp: &[Rate; 2],
    first: &mut Machine,
    second: &mut Machine,
) {
    join(window, first, second);
    let mut tries = (0..2).map(|_| times_through(window, by_tcp, first, second));
    // Where others take the processors meanwhile, both machines wait for each other; that passes.
    let least = if window == Window::Shared { TIMES } else { 1.0 };
    let is_enough = tries.any(|times| times >= least);
    assert!(is_enough, "less than {least} times as many GETs: see above");
    for machine in [&mut *first, &mut *second] {
        let stats = Stats::parse(&machine.run("crosslane stats --json"));
        let through_rings = stats.count("ring_bytes_sent") + stats.count("ring_bytes_received");
        let state = machine.run("crosslane rack status; crosslane stats");
        assert!(
            through_rings > LOAD_BYTES + VALUE_BYTES,
            "{through_rings} bytes went through rings\n{state}"
        );
    }
    a_removed_device_costs_nothing_but_speed(window, first, second);
    for machine in [first, second] {
        machine.run("kill $(cat /tmp/monitor.pid)");
        machine.run_until_success("test ! -e /proc/$(cat /tmp/monitor.pid)/exe");
    }
}

/// Talk over one connection before, while and after one of the machines has the device. It is gone for
/// this machine's kernel and comes back by a scan of the bus.
fn a_removed_device_costs_nothing_but_speed(
    window: Window,
    server: &mut Machine,
    client: &mut Machine,
) {
    let redis = "redis-server --bind 0.0.0.0 --protected-mode no --save ''";
    server.run(&format!("crosslane run -- {redis} >/tmp/redis.log 2>&1 &"));
    server.run_until_success("redis-cli ping");
    let address = server.address();
    // The pipe stays open, as redis-cli ends with it.
    client.run("mkfifo /tmp/say; sleep 1000 >/tmp/say & echo $! >/tmp/say.pid");
    client.run(&format!(
        "crosslane run -- redis-cli -h {address} </tmp/say >/tmp/said 2>&1 &"
    ));
    let mut count = 0;
    let mut talk = |client: &mut Machine| {
        client.run("seq 1 100 | sed 's/^/INCRBY sum /' >/tmp/say");
        count += 1;
        let sum = 5050 * count;
        client.run_until_success(&format!("grep -qx {sum} /tmp/said"));
        client.run("crosslane ss")
    };
    wait_until("a connection in the window", || {
        talk(client).contains("accelerated").then_some(())
    });
    for (machine, program) in [(&mut *server, "redis-server"), (&mut *client, "redis-cli")] {
        let written = window.written();
        machine.run(&format!("grep '/{written}$' /proc/$(pidof {program})/maps"));
    }
    let device = server.run("readlink -f /run/ivshmem");
    let device = device.trim();
    server.run(&format!("echo 1 >{device}/remove"));
    for machine in [&mut *server, &mut *client] {
        // What was mapped may go on to answer: the monitor finds the device gone.
        wait_until("the loss to be noticed", || {
            let stats = Stats::parse(&machine.run("crosslane stats --json"));
            (stats.count("windows_lost") == 1).then_some(())
        });
    }
    let shown = talk(client);
    assert!(
        shown.contains("tcp") && !shown.contains("accelerated"),
        "{shown}"
    );
    server.run(&format!(
        "echo 1 >/sys/bus/pci/rescan; echo 1 >{device}/enable"
    ));
    for machine in [&mut *server, &mut *client] {
        machine.run_until_success("crosslane rack status | grep -q ' open '");
    }
    wait_until("the same connection in the window again", || {
        talk(client).contains("accelerated").then_some(())
    });
    client.run("kill $(cat /tmp/say.pid); rm /tmp/say");
    client.run_until_success("! pidof redis-cli");
    server.attempt("redis-cli shutdown nosave");
}

/// Have the monitors of both machines know each other, and the memory that both have.
fn join(window: Window, first: &mut Machine, second: &mut Machine) {
    let mut machines = [first, second];
    let configuration = format!("{}/rack.toml", window.folder());
    let fingerprints = machines.each_mut().map(|machine| {
        if window == Window::Halves {
            // A window that is written only stays closed without.
            machine.run("echo 1 >/run/ivshmem/enable");
        }
        let said = machine.run(&format!("crosslane rack init --rack {configuration}"));
        let mut words = said.split_whitespace();
        let fingerprint = words.find(|word| word.starts_with("sha256:"));
        fingerprint.expect("init prints a fingerprint").to_owned()
    });
    let addresses = machines.each_ref().map(|machine| machine.address());
    for (own, machine) in machines.iter_mut().enumerate() {
        let (other, address) = (2 - own, &addresses[1 - own]);
        let fingerprint = &fingerprints[1 - own];
        machine.run(&format!(
            "crosslane rack add host{other} --address {address} --fingerprint {fingerprint} \
             --rack {configuration} {}",
            window.options()
        ));
        machine.run(&format!("printf '{}' >>{configuration}", window.rest(own)));
        machine.run(&format!(
            "crosslane monitor --rack {configuration} >/tmp/monitor.log 2>&1 & \
             echo $! >/tmp/monitor.pid"
        ));
    }
    for machine in &mut machines {
        machine.run_until_success("crosslane rack status | grep -q ' open '");
        println!("{}", machine.run("crosslane rack status"));
    }
}

/// How many times as many GETs are answered through the window as by the virtual network.
fn times_through(
    window: Window,
    by_tcp: &[Rate; 2],
    first: &mut Machine,
    second: &mut Machine,
) -> f64 {
    let by_bar = rates("crosslane run --wait spin --", first, second);
    for ((load, tcp), bar) in LOADS.iter().zip(by_tcp).zip(&by_bar) {
        tell(&format!(
            "{load}, 64 B, 8 clients, from the other host: {tcp} by the virtual network, {bar} {window}"
        ));
    }
    by_bar[0].per_second / by_tcp[0].per_second
}

/// How Redis in one machine serves the other one.
struct Rate {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            per_second,
            p50_ms,
            p99_ms,
        } = self;
        write!(f, "{per_second}/s, p50 {p50_ms} ms, p99 {p99_ms} ms")
    }
}

/// What redis-benchmark says of [`LOADS`], with server and client under `runner`.
fn rates(runner: &str, server: &mut Machine, client: &mut Machine) -> [Rate; 2] {
    let options = "--bind 0.0.0.0 --protected-mode no --save ''";
    server.run(&format!(
        "{runner} redis-server {options} >/tmp/redis.log 2>&1 &"
    ));
    server.run_until_success("redis-cli ping");
    let address = server.address();
    values_come_back_whole(runner, client, &address);
    let table = client.run(&format!(
        "{runner} redis-benchmark -h {address} -c 8 -n {REQUESTS} -d 64 -t set,get --csv"
    ));
    // It hangs up where it would answer.
    server.attempt("redis-cli shutdown nosave");
    LOADS.map(|load| {
        let figure = |name| {
            figure(&table, load, name).unwrap_or_else(|| panic!("no {name} of {load} in {table}"))
        };
        Rate {
            per_second: figure("rps"),
            p50_ms: figure("p50_latency_ms"),
            p99_ms: figure("p99_latency_ms"),
        }
    })
}

/// The figure of a test in a column of redis-benchmark's table.
fn figure(table: &str, test: &str, column: &str) -> Option<f64> {
    let mut rows = table.lines().map(|line| {
        let cells = line.split(',').map(|cell| cell.trim_matches('"'));
        cells.collect::<Vec<_>>()
    });
    let at = rows
        .find(|row| row.first() == Some(&"test"))?
        .iter()
        .position(|cell| *cell == column)?;
    let row = rows.find(|row| row.first() == Some(&test))?;
    row.get(at)?.parse().ok()
}

/// A text that nothing else would make up, read after enough round trips for rings.
fn values_come_back_whole(runner: &str, client: &mut Machine, server: &str) {
    let cli = format!("{runner} redis-cli -h {server}");
    client.run(&format!(
        "head -c {RANDOM_BYTES} /dev/urandom | base64 >/tmp/value"
    ));
    client.run(&format!("{cli} -x set key </tmp/value"));
    // The answer ends on a line of its own.
    client.run(&format!(
        "(yes PING | head -n 200; echo GET key) | {cli} | grep -vx PONG | sed '$d' >/tmp/answer"
    ));
    client.run("test -s /tmp/answer && cmp /tmp/value /tmp/answer");
}
