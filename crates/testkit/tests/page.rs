//! Pages in a real browser: the sliders of `crosslane pcie report` redraw by the model in it, and
//! `crosslane report` shows its plots on a phone and on a desk, by day and by night.

use std::path::Path;

use crosslane_testkit::{Host, Route, binary};

/// Moves sliders, and leaves in the document what the page said before and after.
const PROBE: &str = r#"<script>(async () => {
    while (!document.body.dataset.ready) await new Promise((go) => setTimeout(go, 10));
    const text = () => document.getElementById("readout").textContent;
    const move = (id, value) => {
        const slider = document.getElementById(id);
        slider.value = value;
        slider.dispatchEvent(new Event("input"));
    };
    const seen = [text()];
    move("gen", 5);
    seen.push(text(), document.querySelector("svg text").textContent);
    move("mps", 5);
    seen.push(text(), String(document.querySelectorAll('#bandwidth svg, #rates tr').length));
    move("mps", 0);
    seen.push(String(document.querySelectorAll('#bandwidth svg').length));
    const found = document.createElement("pre");
    found.id = "found";
    found.textContent = seen.join("|");
    document.body.append(found);
})();</script></body>"#;

#[test]
fn sliders_redraw_the_page() {
    let host = Host::without_monitor(Route::Tcp);
    let page = host.folder().join("page.html");
    let report = host.plain(binary("crosslane")).args([
        "pcie",
        "report",
        "--no-bench",
        "--transfers",
        "200",
        "--out",
    ]);
    report.arg(&page).run();
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(
        html.matches("http://").count(),
        html.matches("http://www.w3.org").count(),
        "the page fetches nothing"
    );
    let page = host.file("probed.html", html.replace("</body>", PROBE));
    let document = open(&host, &page, &[]).dom;
    assert_eq!(
        found(&document).split('|').collect::<Vec<_>>(),
        [
            "63.02 Gb/s raw, 57.88 Gb/s for TLPs, each way",
            "252.06 Gb/s raw, 231.54 Gb/s for TLPs, each way",
            "gen5 x8: payload each way",
            "No such link: MPS 4096 is above MRRS 512. Legal here: MPS up to 512, or MRRS from 4096.",
            "0",
            "1",
        ]
    );
}

/// Leaves in the document what it looks like: its plots, those that are drawn, its background, and
/// whether it is wider than the window.
const LOOK: &str = r#"<script>
    const plots = [...document.querySelectorAll("figure svg")];
    const marks = plots.filter((plot) => {
        const mark = plot.querySelector("polyline, circle, rect");
        const box = mark && mark.getBoundingClientRect();
        const text = plot.querySelector("text").getBoundingClientRect();
        return box && box.width + box.height > 0 && text.width > 0 && plot.clientWidth > 200;
    });
    const root = document.documentElement;
    const found = document.createElement("pre");
    found.id = "found";
    found.textContent = [
        plots.length, marks.length, document.querySelectorAll("polyline.curve").length,
        getComputedStyle(document.body).backgroundColor, root.scrollWidth > innerWidth,
    ].join("|");
    document.body.append(found);
</script></body>"#;

/// Each bench's line about the machine.
fn first_lines() -> Vec<String> {
    let mut lines = Vec::new();
    let benches = [
        "sockets",
        "breakdown",
        "wait",
        "connections",
        "peers",
        "files",
        "stores",
    ];
    for bench in benches {
        let more = match bench {
            "breakdown" => {
                r#","clocks":{"offset_ns":-1.0,"within_ns":20.0,"look_ns":9.5,"ticks_per_us":2000.0}"#
            }
            _ => "",
        };
        lines.push(format!(
            r#"{{"bench":"{bench}","case":"machine","commit":null,"cpu":"A CPU","cores":2,"memory_gib":4.0,"kernel":"Linux 6","tcp_congestion_control":"cubic","os":"Debian","command":"crosslane bench {bench} --json","date":"2026-01-01T00:00:00Z","rounds":3,"measure_ms":100{more}}}"#
        ));
    }
    lines
}

/// Lines of every bench, enough for every plot. That the benches print such lines is the next
/// test's and the bench suite's to see.
fn lines_of_all_benches() -> String {
    let mut lines = first_lines();
    for (transport, slower) in [("tcp", 100), ("unix", 50), ("crosslane", 1)] {
        let proof = r#""accelerated":true,"ring_share":1.0"#;
        let mut row = |text: String| lines.push(format!("{{{text},{proof}}}"));
        for bytes in [8, 64, 4096] {
            let p50 = (200 + bytes / 8) * slower;
            row(format!(
                r#""bench":"sockets","case":"rtt","bytes":{bytes},"transport":"{transport}","p50_ns":{p50},"p99_ns":{},"p999_ns":{},"cdf_ns":[[0.0,{}],[0.5,{p50}],[0.99,{}]]"#,
                2 * p50,
                3 * p50,
                p50 / 2,
                2 * p50
            ));
            let gbps = f64::from(bytes) / f64::from(slower);
            row(format!(
                r#""bench":"sockets","case":"stream","bytes":{bytes},"transport":"{transport}","gbps":{gbps},"msgs_per_s":1e6"#
            ));
        }
        row(format!(
            r#""bench":"peers","case":"rtt","bytes":64,"transport":"{transport}","p50_ns":{}"#,
            300 * slower
        ));
        let rate = f64::from(1_000_000 / slower);
        row(format!(
            r#""bench":"peers","case":"stream","bytes":64,"transport":"{transport}","msgs_per_s":{rate}"#
        ));
        for count in [1, 100, 10_000].into_iter().filter(|_| transport != "unix") {
            row(format!(
                r#""bench":"connections","case":"crowd","connections":{count},"transport":"{transport}","p50_ns":{},"p99_ns":{},"total_bytes":{}"#,
                300 * slower,
                900 * slower,
                9000 * count
            ));
        }
        if transport != "unix" {
            servers(transport, slower, &mut row);
        }
        for rate in [0, 1000, 100_000] {
            let latency = if rate == 0 {
                String::new()
            } else {
                format!(
                    r#""p50_ns":{slower}000,"p99_ns":{slower}0000,"keeps_up":true,"frontier_p50":true,"#
                )
            };
            row(format!(
                r#""bench":"wait","case":"load","way":"{transport}","transport":"{transport}","per_second":{rate},{latency}"server_cpu":0.{slower}"#
            ));
        }
    }
    lines.push(
        r#"{"bench":"breakdown","case":"oneway","bytes":64,"transport":"crosslane","call_ns":10.0,"lookup_ns":10.0,"copy_in_ns":20.0,"publish_ns":10.0,"transfer_ns":60.0,"poll_ns":10.0,"copy_out_ns":20.0,"return_ns":10.0,"rest_ns":-5.0,"whole_ns":145.0,"plain_ns":100.0,"send_returns_ns":10.0,"accelerated":true}"#
            .to_owned(),
    );
    lines.join("\n")
}

/// The rows of other people's servers.
fn servers(transport: &str, slower: u32, row: &mut impl FnMut(String)) {
    for bytes in [8192, 2_097_152] {
        for way in ["sendfile", "write"] {
            let p50 = bytes * slower;
            row(format!(
                r#""bench":"files","case":"fetch","bytes":{bytes},"way":"{way}","transport":"{transport}","p50_ns":{p50},"p99_ns":{},"gbps":2.0"#,
                2 * p50
            ));
        }
    }
    for store in ["redis", "memcached"] {
        row(format!(
            r#""bench":"stores","case":"{store}","way":"R50U50","bytes":16,"connections":50,"transport":"{transport}","per_s":{},"p50_ns":{},"p99_ns":{}"#,
            1_000_000 / slower,
            500 * slower,
            900 * slower
        ));
    }
}

/// The report on these lines, in a file.
fn report(host: &Host, lines: &str) -> String {
    let file = host.file("lines.jsonl", lines);
    let page = host.folder().join("report.html");
    let report = host.plain(binary("crosslane")).arg("report").arg(file);
    report.arg("--out").arg(&page).run();
    std::fs::read_to_string(&page).unwrap()
}

#[test]
fn the_report_shows_its_plots_and_logs_no_error() {
    let host = Host::without_monitor(Route::Tcp);
    let html = report(&host, &lines_of_all_benches());
    for outside in [
        "http://", "https://", "src=", "href=", "url(", "@import", "<script",
    ] {
        assert!(
            !html.contains(outside),
            "{outside} refers to something else"
        );
    }
    let looked = host.file("looked.html", html.replace("</body>", LOOK));
    let mut backgrounds = Vec::new();
    for size in ["390,800", "1400,900"] {
        for scheme in [0, 1] {
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            let view = open(&host, &looked, &[scheme, format!("--window-size={size}")]);
            let found = found(&view.dom);
            let words: Vec<_> = found.split('|').collect();
            let [plots, drawn, curves, background, is_too_wide] = words[..] else {
                panic!("the probe has not run: {}", view.dom)
            };
            // Ratios, latency, throughput, distribution; stages; two rates; latency and memory of
            // connections; round trip and stream beside others; files and their ratios; two stores.
            assert_eq!((plots, drawn), ("15", "15"), "{found}");
            // Two for each of three transports, one for each twice, two and one for each of two, and
            // two for each of two.
            assert_eq!(curves, "22", "{found}");
            assert_eq!(is_too_wide, "false", "{size}: {found}");
            assert_eq!(view.errors, Vec::<String>::new());
            backgrounds.push(background.to_owned());
        }
    }
    assert_eq!(backgrounds[..2], backgrounds[2..]);
    assert_ne!(backgrounds[0], backgrounds[1], "day and night look alike");
}

#[test]
fn an_error_in_the_console_would_be_seen() {
    let host = Host::without_monitor(Route::Tcp);
    let broken = "<!DOCTYPE html><title>Broken</title><body><script>nothing()</script></body>";
    let broken = host.file("broken.html", broken);
    assert_eq!(open(&host, &broken, &[]).errors.len(), 1);
}

#[test]
fn the_report_measures_by_itself_and_keeps_the_lines() {
    let host = Host::without_monitor(Route::Tcp);
    let page = host.folder().join("report.html");
    let report = host.plain(binary("crosslane")).arg("report");
    let report = report.args([
        "--quick",
        "--repeats",
        "1",
        "--benches",
        "wait",
        "--keep",
        ".",
    ]);
    let output = report.arg("--out").arg(&page).finish();
    let lines = std::fs::read_to_string(host.folder().join("wait.jsonl")).unwrap();
    // On a busy machine a case may fail or not be accelerated; the status must say the same.
    let is_good = !lines.contains(r#""accelerated":false"#) && !lines.contains(r#""error""#);
    assert_eq!(output.status.success(), is_good);
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.contains("Not as it should be"), !is_good);
    assert_eq!(html.matches("<svg").count(), 3, "one for each rate");
}

/// A page after its scripts have run.
struct View {
    dom: String,
    errors: Vec<String>,
}

fn open(host: &Host, page: &Path, options: &[String]) -> View {
    let profile = host.folder().join("browser");
    let browser = host.plain("chromium").args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
        "--dump-dom",
    ]);
    let output = browser
        .args(options)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .run();
    let log = String::from_utf8_lossy(&output.stderr);
    let console = log.lines().filter(|line| line.contains(":CONSOLE"));
    View {
        dom: output.text(),
        errors: console.map(str::to_owned).collect(),
    }
}

/// What a probe has left in a document.
fn found(document: &str) -> &str {
    let rest = document.split("id=\"found\">").nth(1);
    rest.and_then(|rest| rest.split('<').next())
        .unwrap_or_default()
}
