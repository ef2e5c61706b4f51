use std::path::Path;

use super::*;

const PRINT: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn whole() -> String {
    format!(
        r#"name = "alpha"
listen = "10.0.0.1"

[[host]]
name = "beta"
address = "10.0.0.2:7000"
fingerprint = "{PRINT}"

[[window]]
name = "shm"
kind = "file"
path = "/dev/shm/window"
bytes = 16777216
host = "beta"

[[allow]]
users = ["root", 1000]
programs = ["redis-server"]
ports = [6379, "8000-8099"]
hosts = ["beta"]
"#
    )
}

fn parse(text: &str) -> Result<RackConfig, ConfigError> {
    RackConfig::parse(Path::new("/etc/crosslane/rack.toml"), text)
}

#[test]
fn a_whole_file_is_understood() {
    let config = parse(&whole()).unwrap();
    assert_eq!(config.listen, "10.0.0.1:7411".parse().unwrap());
    assert_eq!(config.key, Path::new("/etc/crosslane/rack.key"));
    let beta = &config.hosts[0];
    assert_eq!(beta.address, "10.0.0.2:7000".parse().unwrap());
    assert_eq!(beta.addresses, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
    let window = &config.windows[0];
    assert_eq!((window.ring_bytes, window.slots), (32 << 10, 8));
    assert_eq!(config.allow[0].users, Some(vec![0, 1000]));
}

#[test]
fn what_is_read_again_keeps_its_place_and_tells_what_has_changed() {
    let table = |name: &str, at: u8| {
        let print = PRINT.replace("0011", &format!("00{at:02}"));
        format!(
            "\n[[host]]\nname = \"{name}\"\naddress = \"10.0.0.{at}\"\nfingerprint = \"{print}\"\n"
        )
    };
    let mut config = parse(&whole()).unwrap();
    let same = config.renew(parse(&whole()).unwrap());
    assert_eq!((same.hosts.len(), same.windows.len()), (0, 0));
    assert!(same.waits_for_restart.is_empty());
    // Another host comes first in the file, a window is longer, and so on.
    let changed = whole().replace("\n[[host]]", &(table("gamma", 3) + "\n[[host]]"));
    let changed = changed
        .replace("16777216", "8388608")
        .replace("\"10.0.0.1\"", "\"10.0.0.9\"");
    let told = config.renew(parse(&changed).unwrap());
    assert_eq!(told.waits_for_restart, ["listen"]);
    assert_eq!((told.hosts, told.windows), (vec![], vec![0]));
    let names = |config: &RackConfig| {
        let names = config
            .hosts
            .iter()
            .map(|host| (host.name.clone(), host.is_gone));
        names.collect::<Vec<_>>()
    };
    let name = |name: &str, is_gone| (name.to_owned(), is_gone);
    assert_eq!(names(&config), [name("beta", false), name("gamma", false)]);
    assert_eq!(
        (config.windows[0].bytes, config.listen.ip()),
        (8388608, [10, 0, 0, 1].into())
    );
    // Without beta and its window, and with them again.
    let alone = format!("name = \"alpha\"\n{}", table("gamma", 3));
    let told = config.renew(parse(&alone).unwrap());
    assert_eq!((told.hosts, told.windows), (vec![0], vec![0]));
    assert_eq!(names(&config), [name("beta", true), name("gamma", false)]);
    assert_eq!(config.host_named("beta"), None);
    let told = config.renew(parse(&changed).unwrap());
    assert_eq!((told.hosts, told.windows), (vec![0], vec![0]));
    assert_eq!(config.host_named("beta"), Some(0));
}

#[test]
fn errors_name_the_line_the_value_and_the_remedy() {
    for (from, to, line, value) in [
        ("name = \"alpha\"", "name = \"al pha\"", 1, "al pha"),
        ("\"10.0.0.1\"", "\"somewhere\"", 2, "somewhere"),
        ("10.0.0.2:7000", "beta:7000", 6, "beta:7000"),
        ("sha256:0011", "sha256:0x11", 7, "0x11"),
        ("\"file\"", "\"floppy\"", 11, "floppy"),
        ("/dev/shm/window", "window", 12, "window"),
        ("16777216", "4096", 13, "4096"),
        ("host = \"beta\"", "host = \"gamma\"", 14, "gamma"),
        ("\"root\"", "\"nobody-at-all\"", 17, "nobody-at-all"),
        ("8000-8099", "8099-8000", 19, "8099-8000"),
        ("hosts = [\"beta\"]", "hosts = [\"delta\"]", 20, "delta"),
        ("name = \"beta\"", "name = \"alpha\"", 5, "alpha"),
    ] {
        let text = whole();
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}:")), "{error}");
        assert!(error.contains(value), "{error}");
    }
}

/// Whether DAX memory is coherent, nobody but its owner knows.
#[test]
fn dax_memory_is_used_only_where_it_is_said_to_be_coherent() {
    let dax = whole().replace("kind = \"file\"", "kind = \"dax\"");
    let said = |coherent: &str| dax.replace("bytes =", &format!("coherent = {coherent}\nbytes ="));
    assert_eq!(
        parse(&said("true")).unwrap().windows[0].kind,
        WindowKind::Dax
    );
    for text in [dax.clone(), said("false")] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(
            error.contains("line 11:") && error.contains("coherent = true"),
            "{error}"
        );
    }
    let file = whole().replace("bytes =", "coherent = true\nbytes =");
    let error = parse(&file).unwrap_err().to_string();
    assert!(
        error.contains("line 13:") && error.contains("leave it out"),
        "{error}"
    );
}

/// What a host reads of write-combining memory it may read early, and in any order.
#[test]
fn a_region_that_combines_writes_is_read_by_nobody() {
    let region = |kind: &str, name: &str| {
        let path = format!("/sys/bus/pci/devices/0000:00:05.0/{name}");
        let text = whole().replace("kind = \"file\"", &format!("kind = \"{kind}\""));
        parse(&text.replace("/dev/shm/window", &path))
    };
    let window = &region("bar", "resource2").unwrap().windows[0];
    assert_eq!(window.kind, WindowKind::Bar);
    for kind in ["bar", "posted", "file"] {
        let said = region(kind, "resource2_wc").unwrap_err().to_string();
        for words in ["resource2_wc", "without _wc", "beyond", "12"] {
            assert!(said.contains(words), "{kind}: {said}");
        }
    }
}

/// Over a bridge each host has a memory of its own.
#[test]
fn posted_windows_name_the_memories_of_both_hosts() {
    let posted = whole().replace("kind = \"file\"", "kind = \"posted\"");
    let with = |beyond: &str| posted.replace("bytes =", &format!("beyond = {beyond:?}\nbytes ="));
    let config = parse(&with("/sys/bridge/resource2_wc")).unwrap();
    let beyond = config.windows[0].beyond.as_ref().unwrap();
    assert_eq!(config.windows[0].kind, WindowKind::Posted);
    assert_eq!(beyond.path, Path::new("/sys/bridge/resource2_wc"));
    for (text, line, problem) in [
        (posted.clone(), 11, "as beyond"),
        (with("bridge"), 13, "absolute"),
        (with("/dev/shm/window"), 13, "this host's memory, too"),
        (
            whole().replace("bytes =", "beyond = \"/other\"\nbytes ="),
            13,
            "leave it out",
        ),
        (
            whole().replace("bytes =", "beyond_offset = 4096\nbytes ="),
            13,
            "leave it out",
        ),
        // One file for both memories, in which they overlap.
        (
            with("/dev/shm/window").replace("bytes =", "beyond_offset = 4096\nbytes ="),
            13,
            "this host's memory, too",
        ),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}:")), "{error}");
        assert!(error.contains(problem), "{error}");
    }
    let apart = "beyond_offset = 16777216\nbytes =";
    let config = parse(&with("/dev/shm/window").replace("bytes =", apart)).unwrap();
    assert_eq!(
        config.windows[0].beyond.as_ref().unwrap().offset,
        16_777_216
    );
}

/// The programs of the other host are never there.
#[test]
fn where_only_monitors_meet_the_programs_addresses_are_named() {
    for address in [
        "127.0.0.1:7000",
        "0.0.0.0",
        "[::ffff:127.0.0.1]:7000",
        "224.0.0.1",
    ] {
        let text = whole().replace("10.0.0.2:7000", address);
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("line 6: address"), "{error}");
        assert!(error.contains("addresses"), "{error}");
        let named = format!("{address}\"\naddresses = [\"10.0.0.2\"]");
        let config = parse(&whole().replace("10.0.0.2:7000\"", &named)).unwrap();
        assert_eq!(
            config.hosts[0].addresses,
            ["10.0.0.2".parse::<IpAddr>().unwrap()]
        );
    }
}

#[test]
fn unknown_and_missing_keys_are_errors_with_their_line() {
    let unknown = whole().replace("[[allow]]\nusers", "[[allow]]\nuser");
    let error = parse(&unknown).unwrap_err().to_string();
    assert!(
        error.contains("line 17") && error.contains("user"),
        "{error}"
    );
    let missing = whole().replace("kind = \"file\"\n", "");
    let error = parse(&missing).unwrap_err().to_string();
    assert!(error.contains("kind"), "{error}");
    let broken = parse(&whole().replacen("[[host]]", "[[host]", 1)).unwrap_err();
    for error in [error, broken.to_string()] {
        assert!(
            error.starts_with("/etc/crosslane/rack.toml line "),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn two_hosts_cannot_have_the_same_address() {
    let again = format!(
        "[[host]]\nname = \"gamma\"\naddress = \"10.0.0.2\"\nfingerprint = \"{PRINT}\"\n\n[[window]]"
    );
    let error = parse(&whole().replacen("[[window]]", &again, 1)).unwrap_err();
    assert!(error.to_string().contains("two hosts"), "{error}");
}

#[test]
fn who_is_not_named_is_not_let_in() {
    let config = parse(&whole()).unwrap();
    let subject = Subject {
        uid: 0,
        program: "redis-server",
        ports: [6379, 40_000],
        host: "beta",
    };
    assert!(config.permits(&subject));
    for other in [
        Subject { uid: 7, ..subject },
        Subject {
            program: "nginx",
            ..subject
        },
        Subject {
            ports: [80, 40_000],
            ..subject
        },
        Subject {
            host: "gamma",
            ..subject
        },
    ] {
        assert!(!config.permits(&other), "{other:?}");
    }
    let end = whole().find("[[allow]]").unwrap();
    let nobody = parse(&whole()[..end]).unwrap();
    assert!(!nobody.permits(&subject), "without [[allow]], nobody");
}

#[test]
fn two_windows_share_no_memory() {
    let another = |offset: u64| {
        let text = whole();
        let (start, end) = (text.find("[[window]]"), text.find("[[allow]]"));
        let window = &text[start.unwrap()..end.unwrap()];
        let named = window.replacen("\"shm\"", "\"more\"", 1);
        parse(&(text.clone() + &named + &format!("offset = {offset}\n")))
    };
    let error = another(16_777_216 - 4096).unwrap_err().to_string();
    assert!(error.contains("line 24: path"), "{error}");
    assert!(error.contains("window \"shm\""), "{error}");
    assert_eq!(another(16_777_216).unwrap().windows.len(), 2);
}
