//! The tables of `rack.toml` as they are written, and the checks that make a configuration of them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use crosslane_ctl::lane::{
    Geometry, LINE_BYTES, MAX_ARENA_SLOTS, MAX_RING_LINES, MIN_RING_LINES, PAGE_BYTES,
    WINDOW_RING_LINES,
};
use serde::Deserialize;
use toml::Spanned;

use super::{
    Allow, BeyondConfig, ConfigError, DEFAULT_CONNECTIONS_PER_USER, DEFAULT_PORT, HostConfig,
    NAME_BYTES, RackConfig, WindowConfig, WindowKind,
};
use crate::rack::identity::Fingerprint;
use crate::rack::window::HEADER_BYTES;

/// From this size on, a window has rings as long as those inside a host.
const LARGE_WINDOW_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    listen: Option<Spanned<String>>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    connections_per_user: Option<usize>,
    #[serde(default)]
    host: Vec<Host>,
    #[serde(default)]
    window: Vec<Window>,
    #[serde(default)]
    allow: Vec<AllowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    name: Spanned<String>,
    address: Spanned<String>,
    addresses: Option<Vec<Spanned<String>>>,
    fingerprint: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    name: Spanned<String>,
    kind: Spanned<String>,
    path: Spanned<String>,
    offset: Option<Spanned<u64>>,
    beyond: Option<Spanned<String>>,
    beyond_offset: Option<Spanned<u64>>,
    bytes: Spanned<u64>,
    coherent: Option<Spanned<bool>>,
    ring_bytes: Option<Spanned<u32>>,
    slots: Option<Spanned<u32>>,
    host: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowTable {
    users: Option<Vec<Spanned<User>>>,
    programs: Option<Vec<String>>,
    ports: Option<Vec<Spanned<Ports>>>,
    hosts: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum User {
    Number(u32),
    Name(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ports {
    One(u16),
    Range(String),
}

pub(super) fn parse(path: &Path, text: &str) -> Result<RackConfig, ConfigError> {
    let place = Place { path, text };
    let file: File = toml::from_str(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: place.line_at(error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join("; "),
    })?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = place.name("name", &file.name)?;
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), DEFAULT_PORT);
    let listen = file.listen.as_ref();
    let listen = listen.map_or(Ok(any), |listen| place.socket("listen", listen))?;
    let hosts = hosts(&place, &name, &file.host)?;
    let windows = windows(&place, &hosts, &file.window)?;
    let allow = file
        .allow
        .iter()
        .map(|table| allow(&place, &hosts, table))
        .collect::<Result<_, _>>()?;
    let beside =
        |file: &Option<PathBuf>, usual| directory.join(file.as_deref().unwrap_or(Path::new(usual)));
    Ok(RackConfig {
        listen,
        certificate: beside(&file.certificate, "rack.crt"),
        key: beside(&file.key, "rack.key"),
        connections_per_user: file
            .connections_per_user
            .unwrap_or(DEFAULT_CONNECTIONS_PER_USER),
        name,
        hosts,
        windows,
        allow,
    })
}

fn hosts(place: &Place<'_>, own: &str, tables: &[Host]) -> Result<Vec<HostConfig>, ConfigError> {
    let mut names = HashSet::from([own.to_owned()]);
    let mut taken = HashSet::new();
    let mut hosts = Vec::new();
    for table in tables {
        let host = host(place, table)?;
        if !names.insert(host.name.clone()) {
            let problem = "is named twice: each host, this one too, has a name of its own";
            return Err(place.error(table.name.span(), "name", host.name, problem));
        }
        if let Some(twice) = host.addresses.iter().find(|at| !taken.insert(**at)) {
            let problem = "belongs to two hosts: name it under one of them";
            return Err(place.error(table.name.span(), "addresses", twice, problem));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

fn host(place: &Place<'_>, table: &Host) -> Result<HostConfig, ConfigError> {
    let address = place.socket("address", &table.address)?;
    let addresses = match &table.addresses {
        None => vec![usual_address(place, table, address.ip())?],
        Some(list) => list
            .iter()
            .map(|text| program_address(place, text))
            .collect::<Result<_, _>>()?,
    };
    let print = &table.fingerprint;
    let fingerprint = Fingerprint::parse(print.as_ref()).ok_or_else(|| {
        let problem = "is no fingerprint: write what `crosslane rack init` says on that host";
        place.error(print.span(), "fingerprint", print.as_ref(), problem)
    })?;
    Ok(HostConfig {
        name: place.name("name", &table.name)?,
        address,
        addresses,
        fingerprint,
        is_gone: false,
    })
}

/// Programs are where their monitor is, unless it is said where they are.
fn usual_address(place: &Place<'_>, table: &Host, ip: IpAddr) -> Result<IpAddr, ConfigError> {
    remote(ip).ok_or_else(|| {
        let text = &table.address;
        let problem = "is no address of another host's programs: name theirs as addresses";
        place.error(text.span(), "address", text.as_ref(), problem)
    })
}

/// As addresses are compared, if it can be another host's.
fn remote(ip: IpAddr) -> Option<IpAddr> {
    let is_fit = |ip: &IpAddr| !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast();
    Some(ip.to_canonical()).filter(is_fit)
}

fn program_address(place: &Place<'_>, text: &Spanned<String>) -> Result<IpAddr, ConfigError> {
    let parsed = text.as_ref().parse().ok();
    parsed.and_then(remote).ok_or_else(|| {
        let problem = "is no address of another host's programs: write an IP, no loopback";
        place.error(text.span(), "addresses", text.as_ref(), problem)
    })
}

fn windows(
    place: &Place<'_>,
    hosts: &[HostConfig],
    tables: &[Window],
) -> Result<Vec<WindowConfig>, ConfigError> {
    let mut names = HashSet::new();
    let mut windows: Vec<WindowConfig> = Vec::new();
    for table in tables {
        let window = window(place, hosts, table)?;
        if !names.insert(window.name.clone()) {
            let problem = "is named twice: each window has a name of its own";
            return Err(place.error(table.name.span(), "name", window.name, problem));
        }
        if let Some(other) = windows.iter().find(|other| overlap(other, &window)) {
            let problem = format!(
                "is the memory of window {:?} already: each has its own, by path or offset and bytes",
                other.name
            );
            return Err(place.error(table.path.span(), "path", table.path.as_ref(), problem));
        }
        windows.push(window);
    }
    Ok(windows)
}

/// Whether two windows have some memory in common.
fn overlap(one: &WindowConfig, other: &WindowConfig) -> bool {
    let places = |window| memories(window).into_iter().flatten();
    places(one).any(|here| places(other).any(|there| meet(here, there)))
}

/// A file, where in it a memory begins, and how long that is.
type Memory<'a> = (&'a Path, u64, u64);

fn meet((path, at, bytes): Memory<'_>, (other_path, other_at, other_bytes): Memory<'_>) -> bool {
    let (end, other_end) = (
        at.saturating_add(bytes),
        other_at.saturating_add(other_bytes),
    );
    path == other_path && at < other_end && other_at < end
}

/// Where the memories of a window are.
fn memories(window: &WindowConfig) -> [Option<Memory<'_>>; 2] {
    let beyond = window.beyond.as_ref();
    [
        Some((window.path.as_path(), window.offset, window.bytes)),
        beyond.map(|beyond| (beyond.path.as_path(), beyond.offset, window.bytes)),
    ]
}

fn window(
    place: &Place<'_>,
    hosts: &[HostConfig],
    table: &Window,
) -> Result<WindowConfig, ConfigError> {
    let kind = match table.kind.as_ref().as_str() {
        "file" => WindowKind::File,
        "bar" => WindowKind::Bar,
        "dax" => WindowKind::Dax,
        "posted" => WindowKind::Posted,
        other => {
            let problem = "is no kind of window that this monitor drives: write \"file\", \"bar\", \"dax\" or \"posted\"";
            return Err(place.error(table.kind.span(), "kind", other, problem));
        }
    };
    coherence(place, kind, table)?;
    let path = absolute(place, "path", &table.path)?;
    if combines(&path) {
        // It is read without a fence, and in coherent lanes there is none between a payload and its header.
        let problem = "is mapped write-combining, and so may only be what is written beyond a bridge: name the same \
                       file without _wc";
        return Err(place.error(table.path.span(), "path", table.path.as_ref(), problem));
    }
    let bytes = *table.bytes.as_ref();
    let offset = on_page(place, "offset", table.offset.as_ref())?;
    let beyond = beyond(place, kind, table, (&path, offset, bytes))?;
    let (ring_bytes, slots) = cut(place, table, bytes)?;
    Ok(WindowConfig {
        name: place.name("name", &table.name)?,
        kind,
        path,
        offset,
        beyond,
        bytes,
        ring_bytes,
        slots,
        host: known_host(place, hosts, "host", &table.host)?,
        is_gone: false,
    })
}

/// Whether the kernel maps a device's region by this file so that writes gather and leave in any order.
fn combines(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("resource") && name.ends_with("_wc")
}

fn absolute(
    place: &Place<'_>,
    key: &'static str,
    text: &Spanned<String>,
) -> Result<PathBuf, ConfigError> {
    let path = PathBuf::from(text.as_ref());
    match path.is_absolute() {
        true => Ok(path),
        false => {
            let problem = "is not absolute: write the path from / on, as /dev/shm/rack-window";
            Err(place.error(text.span(), key, text.as_ref(), problem))
        }
    }
}

fn on_page(
    place: &Place<'_>,
    key: &'static str,
    offset: Option<&Spanned<u64>>,
) -> Result<u64, ConfigError> {
    let (at, offset) = offset.map_or((0..0, 0), |offset| (offset.span(), *offset.as_ref()));
    match offset.is_multiple_of(PAGE_BYTES as u64) {
        true => Ok(offset),
        false => {
            let problem = "is not on a page: write a multiple of 4096";
            Err(place.error(at, key, offset, problem))
        }
    }
}

/// The other host's memory, which windows of one kind have, and others have not.
fn beyond(
    place: &Place<'_>,
    kind: WindowKind,
    table: &Window,
    own: Memory<'_>,
) -> Result<Option<BeyondConfig>, ConfigError> {
    match (kind, &table.beyond) {
        (WindowKind::Posted, Some(text)) => {
            let path = absolute(place, "beyond", text)?;
            let offset = on_page(place, "beyond_offset", table.beyond_offset.as_ref())?;
            if meet((&path, offset, own.2), own) {
                // What is written for the other host would stand where this one reads.
                let problem =
                    "is this host's memory, too: name the other host's, as it is reached from here";
                return Err(place.error(text.span(), "beyond", text.as_ref(), problem));
            }
            Ok(Some(BeyondConfig { path, offset }))
        }
        (WindowKind::Posted, None) => {
            let problem = "has a memory at each host: name this host's as path, and the other's, as it is reached \
                           from here, as beyond";
            Err(place.error(table.kind.span(), "kind", "posted", problem))
        }
        (_, Some(text)) => {
            let problem = "is said of windows of kind \"posted\" only: leave it out";
            Err(place.error(text.span(), "beyond", text.as_ref(), problem))
        }
        (_, None) => match &table.beyond_offset {
            Some(offset) => {
                let problem = "is said of windows with a beyond only: leave it out";
                Err(place.error(offset.span(), "beyond_offset", offset.as_ref(), problem))
            }
            None => Ok(None),
        },
    }
}

/// Connections use lanes of coherent memory, and nothing can ask whether DAX memory is: somebody must say so.
fn coherence(place: &Place<'_>, kind: WindowKind, table: &Window) -> Result<(), ConfigError> {
    match (kind, &table.coherent) {
        (WindowKind::Dax, Some(coherent)) if *coherent.as_ref() => Ok(()),
        (WindowKind::Dax, _) => {
            let problem = "takes memory that the hosts keep coherent: try it with `crosslane window test PATH \
                           --coherent` on both, and write coherent = true";
            Err(place.error(table.kind.span(), "kind", "dax", problem))
        }
        (_, Some(coherent)) => {
            let problem = "is said of windows of kind \"dax\" only: leave it out";
            Err(place.error(coherent.span(), "coherent", coherent.as_ref(), problem))
        }
        (_, None) => Ok(()),
    }
}

/// How the window is cut: unless it says so, a small one into shorter rings and fewer slots.
fn cut(place: &Place<'_>, table: &Window, bytes: u64) -> Result<(u32, u32), ConfigError> {
    let line = u32::try_from(LINE_BYTES).unwrap_or(u32::MAX);
    let (usual_lines, usual_slots) = match bytes >= LARGE_WINDOW_BYTES {
        true => (WINDOW_RING_LINES, 16),
        false => (MIN_RING_LINES, 8),
    };
    let written = table.ring_bytes.as_ref();
    let (at, ring_bytes) = written.map_or((0..0, usual_lines * line), |b| (b.span(), *b.as_ref()));
    let (least, most) = (MIN_RING_LINES * line, MAX_RING_LINES * line);
    if !ring_bytes.is_power_of_two() || !(least..=most).contains(&ring_bytes) {
        let problem = format!("is no power of two between {least} and {most}");
        return Err(place.error(at, "ring_bytes", ring_bytes, problem));
    }
    let written = table.slots.as_ref();
    let (at, slots) = written.map_or((0..0, usual_slots), |s| (s.span(), *s.as_ref()));
    if !(1..=MAX_ARENA_SLOTS).contains(&slots) {
        let problem = format!("is not between 1 and {MAX_ARENA_SLOTS}");
        return Err(place.error(at, "slots", slots, problem));
    }
    let geometry = Geometry {
        ring_lines: ring_bytes / line,
        slots,
    };
    let least = HEADER_BYTES + geometry.arena_bytes() as u64;
    if bytes < least {
        let problem = format!(
            "is too small for {slots} slots with rings of {ring_bytes} bytes: \
             {least} is the least, or lower slots"
        );
        return Err(place.error(table.bytes.span(), "bytes", bytes, problem));
    }
    Ok((ring_bytes, slots))
}

fn known_host(
    place: &Place<'_>,
    hosts: &[HostConfig],
    key: &'static str,
    name: &Spanned<String>,
) -> Result<String, ConfigError> {
    let text = name.as_ref();
    match hosts.iter().any(|host| host.name == *text) {
        true => Ok(text.clone()),
        false => {
            let problem = "is no [[host]] of this file: add it, or correct the name";
            Err(place.error(name.span(), key, text, problem))
        }
    }
}

fn allow(
    place: &Place<'_>,
    hosts: &[HostConfig],
    table: &AllowTable,
) -> Result<Allow, ConfigError> {
    let users = table.users.as_ref().map(|users| {
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let of = |user| user_number(place, &known, user);
        users.iter().map(of).collect::<Result<_, _>>()
    });
    let ports = table
        .ports
        .as_ref()
        .map(|ports| ports.iter().map(|p| port_range(place, p)).collect());
    let names = table.hosts.as_ref().map(|names| {
        let of = |name| known_host(place, hosts, "hosts", name);
        names.iter().map(of).collect::<Result<_, _>>()
    });
    Ok(Allow {
        users: users.transpose()?,
        programs: table.programs.clone(),
        ports: ports.transpose()?,
        hosts: names.transpose()?,
    })
}

fn user_number(place: &Place<'_>, passwd: &str, user: &Spanned<User>) -> Result<u32, ConfigError> {
    let name = match user.as_ref() {
        User::Number(number) => return Ok(*number),
        User::Name(name) => name,
    };
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    let found = passwd.lines().find_map(of_line);
    found.or((name == "root").then_some(0)).ok_or_else(|| {
        let problem = "is no user in /etc/passwd: correct it, or write the number";
        place.error(user.span(), "users", name, problem)
    })
}

fn port_range(
    place: &Place<'_>,
    ports: &Spanned<Ports>,
) -> Result<RangeInclusive<u16>, ConfigError> {
    let text = match ports.as_ref() {
        Ports::One(port) => return Ok(*port..=*port),
        Ports::Range(text) => text,
    };
    let range = text.split_once('-').and_then(|(first, last)| {
        let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
        (!range.is_empty()).then_some(range)
    });
    range.ok_or_else(|| {
        let problem = "is neither a port nor a range: write 6379 or \"8000-8099\"";
        place.error(ports.span(), "ports", text, problem)
    })
}

/// Says where a value is.
struct Place<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    /// Counted from 1.
    fn line_at(&self, byte: usize) -> usize {
        let before = self.text.get(..byte).unwrap_or_default();
        before.matches('\n').count() + 1
    }

    fn error(
        &self,
        span: Range<usize>,
        key: &'static str,
        value: impl ToString,
        problem: impl Into<String>,
    ) -> ConfigError {
        ConfigError::Value {
            path: self.path.to_owned(),
            line: self.line_at(span.start),
            key,
            value: value.to_string(),
            problem: problem.into(),
        }
    }

    fn name(&self, key: &'static str, name: &Spanned<String>) -> Result<String, ConfigError> {
        let text = name.as_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        match (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(is_plain) {
            true => Ok(text.clone()),
            false => {
                let problem = "is no name: 1 to 63 letters, digits, hyphens, underscores and dots";
                Err(self.error(name.span(), key, text, problem))
            }
        }
    }

    fn socket(&self, key: &'static str, at: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
        let text = at.as_ref();
        let address: Result<SocketAddr, _> = text.parse();
        let with_default = || {
            text.parse()
                .map(|ip: IpAddr| SocketAddr::new(ip, DEFAULT_PORT))
        };
        address.ok().map_or_else(with_default, Ok).map_err(|_| {
            let problem =
                "is no address: write IP or IP:PORT, as 10.0.0.2:7411 (names are not looked up)";
            self.error(at.span(), key, text, problem)
        })
    }
}
