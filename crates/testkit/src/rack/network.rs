//! Two network namespaces with a veth pair between them.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ADDRESSES, NAMES};

/// Namespaces for one test, gone with it.
pub struct Network {
    pub namespaces: [String; 2],
}

impl Network {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let of = |name: &str| format!("xl{}-{number}-{name}", std::process::id());
        let network = Self {
            namespaces: NAMES.map(of),
        };
        let [alpha, beta] = &network.namespaces;
        ip(&["netns", "add", alpha]);
        ip(&["netns", "add", beta]);
        ip(&[
            "link", "add", "lane", "netns", alpha, "type", "veth", "peer", "name", "lane", "netns",
            beta,
        ]);
        for (namespace, address) in network.namespaces.iter().zip(ADDRESSES) {
            let address = format!("{address}/24");
            ip(&["-n", namespace, "addr", "add", &address, "dev", "lane"]);
            ip(&["-n", namespace, "link", "set", "lane", "up"]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        network
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            // One that is still in use is told about by the next test of the same name.
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .status();
        }
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .status();
    let status = status.expect("ip-netns(8) is installed");
    assert!(status.success(), "ip {}", arguments.join(" "));
}
