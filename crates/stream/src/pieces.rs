//! A program's buffers as the kernel takes them, for one call.

use crosslane_ring::{Part, Parts};

/// Pieces that one call handles; programs rarely have more.
const MOST: usize = 64;

/// The first pieces of a program's buffers.
pub(crate) struct Pieces {
    pieces: [Part; MOST],
    count: usize,
    bytes: usize,
}

impl Pieces {
    /// What is left of `parts`, as far as one call goes.
    pub(crate) fn of(mut parts: Parts<'_>) -> Self {
        #[cfg(test)]
        tests::before_call();
        let mut all = Self {
            pieces: [const { Part::EMPTY }; MOST],
            count: 0,
            bytes: 0,
        };
        while all.count < MOST
            && let Some((start, bytes)) = parts.take(usize::MAX)
        {
            all.pieces[all.count] = Part { start, bytes };
            all.count += 1;
            all.bytes += bytes;
        }
        all
    }

    /// Bytes in all pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pieces as a message, which points into `self`.
    pub(crate) fn message(&mut self) -> libc::msghdr {
        // SAFETY: msghdr is plain integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr().cast();
        message.msg_iovlen = self.count;
        message
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    type Act = Box<dyn FnOnce()>;

    thread_local! {
        static NEXT: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// What others do just before this thread's next call of the kernel.
    pub(crate) fn meanwhile(act: impl FnOnce() + 'static) {
        NEXT.set(Some(Box::new(act)));
    }

    pub(super) fn before_call() {
        if let Some(act) = NEXT.take() {
            act();
        }
    }
}
