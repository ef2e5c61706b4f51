//! What `crosslane run` tells the library by environment variables.

use core::num::NonZeroU64;
use core::ops::RangeInclusive;
use std::sync::OnceLock;

use crosslane_ctl::paths;
use crosslane_sys::store_wait::StoreWait;

/// How a call waits for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Spin for up to 50 milliseconds, then sleep after all: an idle program uses no processor.
    Spin,
    /// Spin for a while that adapts to success, 50 microseconds at most, then sleep.
    Adaptive,
    /// As [`Waiting::Spin`], but the processor rests while nothing is written to the line in which the next
    /// record arrives.
    Monitor(StoreWait),
    /// Sleep at once.
    Sleep,
}

/// Settings of this process, fixed at its start.
#[derive(Debug)]
pub struct Config {
    /// `CROSSLANE_WAIT`: `spin`, `monitor` (which spins where the processor cannot), `adaptive` (default) or
    /// `sleep`.
    pub waiting: Waiting,
    /// `CROSSLANE_EAGER`: ports whose connections are upgraded at once.
    pub eager_ports: Vec<RangeInclusive<u16>>,
    /// `CROSSLANE_DISABLE`: everything stays on TCP.
    pub disabled: bool,
    /// `CROSSLANE_STRICT`: end rather than stay on TCP because Crosslane fails.
    pub strict: bool,
    /// `CROSSLANE_UNIX`: AF_UNIX streams are accelerated, too.
    pub unix: bool,
    /// `CROSSLANE_CHAOS`: bring a direction back to TCP after about so many sends, for tests.
    pub chaos: Option<u32>,
    /// `CROSSLANE_SECRET`: what root's private monitor wants to hear from other users.
    pub secret: Option<u64>,
    /// `CROSSLANE_EXPLAIN`: the run of `crosslane run --explain` that wants to know how connections end.
    pub run: Option<NonZeroU64>,
    /// The monitor's socket.
    pub socket: Vec<u8>,
}

/// The settings.
pub fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(Config::from_environment)
}

impl Config {
    fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let waiting = match variable("CROSSLANE_WAIT").as_deref() {
            Some("spin") => Waiting::Spin,
            Some("monitor") => StoreWait::here().map_or(Waiting::Spin, Waiting::Monitor),
            Some("sleep") => Waiting::Sleep,
            _ => Waiting::Adaptive,
        };
        let eager = variable("CROSSLANE_EAGER").unwrap_or_default();
        Self {
            waiting,
            eager_ports: eager.split(',').filter_map(ports).collect(),
            disabled: variable("CROSSLANE_DISABLE").is_some(),
            strict: variable("CROSSLANE_STRICT").is_some(),
            unix: variable("CROSSLANE_UNIX").is_some(),
            chaos: variable("CROSSLANE_CHAOS")
                .and_then(|n| n.parse().ok())
                .filter(|n| *n > 0),
            secret: variable(paths::SECRET_VARIABLE)
                .and_then(|secret| u64::from_str_radix(&secret, 16).ok()),
            run: variable(paths::RUN_VARIABLE)
                .and_then(|run| u64::from_str_radix(&run, 16).ok())
                .and_then(NonZeroU64::new),
            socket: socket_path(),
        }
    }
}

/// A port, or a range of ports.
fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

fn socket_path() -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    let dir = std::env::var_os(paths::RUNTIME_DIR_VARIABLE)
        .map_or_else(|| PathBuf::from(paths::SYSTEM_RUNTIME_DIR), PathBuf::from);
    paths::socket_in(&dir).into_os_string().into_vec()
}
