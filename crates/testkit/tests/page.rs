//! The page of `crosslane pcie report` in a real browser: its sliders redraw by the model in it.

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
    seen.push(text());
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
    let document = dump(&host, &format!("file://{}", page.display()));
    let found = document
        .split("id=\"found\">")
        .nth(1)
        .and_then(|rest| rest.split('<').next())
        .unwrap_or_default();
    assert_eq!(
        found.split('|').collect::<Vec<_>>(),
        [
            "63.02 Gb/s raw, 57.88 Gb/s for TLPs, each way",
            "252.06 Gb/s raw, 231.54 Gb/s for TLPs, each way",
            "gen5 x8: payload each way",
            "No such link: MPS 4096 is above MRRS 512.",
        ]
    );
}

/// The document at `address` after its scripts have run.
fn dump(host: &Host, address: &str) -> String {
    let profile = host.folder().join("browser");
    host.plain("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(address)
        .run()
        .text()
}
