//! What a process does on an order: one call, and its outcome in words that two runs share.

mod describe;
mod ready;
mod receive;
mod send;
mod sockets;

use std::cell::Cell;
use std::fmt::Display;
use std::os::fd::RawFd;

use crosslane_exercise::Errno;

use crate::call::Call;
use crate::word::Handle;

pub use send::FILL_LIMIT;
pub use sockets::port_of;

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What a program sees; the same in each run.
    pub text: String,
    /// The bytes that it moved.
    pub bytes: usize,
    /// The descriptor that it made.
    pub fd: Option<RawFd>,
}

/// What an order says besides the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matter {
    /// The stream that it sends or receives, and how far that is.
    pub key: u64,
    pub offset: u64,
    /// Where the listener is.
    pub port: u16,
}

/// The things of a process that calls need.
#[derive(Clone, Copy)]
pub struct Place {
    /// A pair of AF_UNIX sockets to pass descriptors over.
    pub passage: [RawFd; 2],
}

impl Outcome {
    fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    fn of(result: Result<impl Display, Errno>) -> Self {
        Self::text(shown(&result))
    }

    fn moved(result: Result<usize, Errno>) -> Self {
        Self {
            text: shown(&result),
            bytes: result.unwrap_or(0),
            fd: None,
        }
    }

    fn made(result: Result<RawFd, Errno>) -> Self {
        Self {
            text: shown(&result),
            bytes: 0,
            fd: result.ok(),
        }
    }
}

/// Make `call`, whose handles are descriptors.
pub fn act(call: &Call, matter: Matter, place: Place) -> Outcome {
    let mut outcome = receive::act(call, matter)
        .or_else(|| send::act(call, matter))
        .or_else(|| ready::act(call))
        .or_else(|| describe::act(call))
        .or_else(|| sockets::act(call, matter, place))
        .expect("every call is one of these");
    for (name, caught) in [("SIGPIPE", &PIPES), ("SIGUSR1", &USERS), ("SIGUSR2", &ENDS)] {
        let count = caught.with(|caught| caught.replace(0));
        if count > 0 {
            outcome.text.push_str(&format!(" {name}*{count}"));
        }
    }
    outcome
}

thread_local! {
    static PIPES: Cell<u32> = const { Cell::new(0) };
    static USERS: Cell<u32> = const { Cell::new(0) };
    static ENDS: Cell<u32> = const { Cell::new(0) };
}

/// Without a destructor, a variable of the thread may be touched by a handler.
extern "C" fn count(signal: i32) {
    let caught = match signal {
        libc::SIGPIPE => &PIPES,
        libc::SIGUSR1 => &USERS,
        _ => &ENDS,
    };
    caught.with(|caught| caught.set(caught.get() + 1));
}

/// Count `signal` by the thread that gets it.
pub fn catch(signal: i32, flags: i32) {
    // SAFETY: an action of zeros is an empty one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(i32) as usize;
    action.sa_flags = flags;
    // SAFETY: the handler only touches variables of its thread.
    let installed = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(installed, 0, "a handler can be installed");
}

fn fd(handle: Handle) -> RawFd {
    RawFd::try_from(handle.0).expect("a descriptor is a small number")
}

fn shown(result: &Result<impl Display, Errno>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(errno) => errno.to_string(),
    }
}

/// The number of bytes and a checksum.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{}#{hash:08x}", bytes.len())
}
