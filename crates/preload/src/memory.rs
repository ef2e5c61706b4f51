//! The library's own memory. malloc(3) is the program's: a handler that has interrupted it may make calls of ours, and may leave them
//! while they allocate. Whoever allocates here is busy ([`crosslane_sys::busy`]), so that no handler runs.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::mem::ManuallyDrop;
use std::sync::PoisonError;

use crosslane_sys::busy::{Mutex, MutexGuard};
use dlmalloc::Dlmalloc;

struct Own(Mutex<Dlmalloc>);

#[global_allocator]
static OWN: Own = Own(Mutex::new(Dlmalloc::new()));

impl Own {
    fn lock(&self) -> MutexGuard<'_, Dlmalloc> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: one thread allocates at a time, by an allocator that does what is asked.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.lock().free(start, layout.size(), layout.align()) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            self.lock()
                .realloc(start, layout.size(), layout.align(), bytes)
        }
    }
}

thread_local! {
    static FORK: Cell<Option<ManuallyDrop<MutexGuard<'static, Dlmalloc>>>> =
        const { Cell::new(None) };
}

/// Before a fork, behind all that allocates.
pub fn before_fork() {
    FORK.set(Some(ManuallyDrop::new(OWN.lock())));
}

/// In parent and child, before anything that allocates.
pub fn after_fork() {
    drop(FORK.take().map(ManuallyDrop::into_inner));
}
