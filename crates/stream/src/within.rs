//! Both ends of a connection in one process: their rings are memory of its own, before the first byte
//! moves, and no monitor is asked (NTSocks' Runtime).

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::PoisonError;

use crosslane_sys::busy::{Mutex, MutexGuard};

use crosslane_ctl::lane::{DEFAULT_RING_LINES, Geometry, Location};
use crosslane_ctl::message::Grant;
use crosslane_ctl::slab::EndPhase;
use crosslane_window::arena::Arena;

use crate::{End, register, spare, switch};

const GEOMETRY: Geometry = Geometry {
    ring_lines: DEFAULT_RING_LINES,
    slots: 1,
};

/// The memory of two ends, and which of them have not been closed.
pub(crate) struct Pair {
    arena: &'static Arena,
    ends: [Option<u64>; 2],
}

static PAIRS: Mutex<Vec<Pair>> = Mutex::new(Vec::new());

/// How many there are, so that nobody else looks.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Give rings to the two ends of a connection, over which nothing has been sent. False where there is
/// no memory: then they begin as any others.
pub fn join(a: &End, b: &End) -> bool {
    if [a, b].iter().any(|end| end.phase() != EndPhase::Plain) {
        return false;
    }
    let Some(arena) = spare::make(GEOMETRY) else {
        return false;
    };
    let tokens = [a.token(), b.token()];
    hold().push(Pair {
        arena,
        ends: tokens.map(Some),
    });
    COUNT.fetch_add(1, Ordering::SeqCst);
    for (role, end) in [(0, a), (1, b)] {
        let grant = Grant {
            token: end.token(),
            arena: u32::MAX,
            slot: 0,
            role,
            geometry: GEOMETRY,
            location: Location::Sealed,
            pair: 0,
        };
        register::enter(end, &grant, arena, |_| true);
        // Nobody waits in the kernel.
        end.local.adopted.store(1, Ordering::Release);
    }
    // The first says that it is ready, the second sees that, and the first that the second is.
    [a, b, a].into_iter().for_each(switch::advance);
    true
}

/// An end has been closed. The memory goes with the second.
pub(crate) fn let_go(token: u64) {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut pairs = hold();
    for pair in pairs.iter_mut() {
        for end in &mut pair.ends {
            end.take_if(|other| *other == token);
        }
    }
    for pair in pairs.extract_if(.., |pair| pair.ends == [None; 2]) {
        spare::put_back(pair.arena);
        COUNT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Held while the process forks, so that the child finds the list whole.
pub(crate) fn hold() -> MutexGuard<'static, Vec<Pair>> {
    PAIRS.lock().unwrap_or_else(PoisonError::into_inner)
}
