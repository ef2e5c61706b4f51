//! Getting a file by curl.

use crosslane_testkit::Host;

use super::sha256_of;

/// Get a file so often over one connection, and fail unless it has this SHA-256 each time.
pub fn all(host: &Host, port: u16, path: &str, count: usize, sha256: &str) {
    let url = format!("http://127.0.0.1:{port}/{path}");
    let names: Vec<_> = (0..count).map(|number| format!("got{number}")).collect();
    let requests = names.iter().flat_map(|name| ["-o", name, &url]);
    host.program("curl")
        .run_option("--eager", "1-65535")
        .arg("-sSf")
        .args(requests)
        .run();
    for name in names {
        assert_eq!(sha256_of(&host.folder().join(&name)), sha256, "{name}");
    }
}
