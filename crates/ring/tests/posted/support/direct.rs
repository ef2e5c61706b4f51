//! Memory at which every write arrives at once.

use std::cell::RefCell;
use std::rc::Rc;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::posted::RING;
use crosslane_ring::posted::memory::{Local, Remote};

/// Plain memory of one thread.
#[derive(Clone)]
pub struct Plain(Rc<RefCell<Vec<u64>>>);

impl Plain {
    /// A slot with a ring of so many lines.
    pub fn new(lines: u32) -> Self {
        let words = (RING + lines as usize * LINE_BYTES) / 8;
        Self(Rc::new(RefCell::new(vec![0; words])))
    }
}

impl Local for Plain {
    fn refresh(&self, _at: usize, _bytes: usize) {}

    fn load(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8));
        self.0.borrow()[at / 8]
    }

    unsafe fn copy_out(&self, at: usize, to: *mut u8, bytes: usize) {
        for done in 0..bytes {
            let word = self.0.borrow()[(at + done) / 8].to_le_bytes();
            // SAFETY: the caller's promise, for byte `done`.
            unsafe { to.wrapping_add(done).write(word[(at + done) % 8]) };
        }
    }

    fn clear(&self, at: usize) {
        self.0.borrow_mut()[at / 8] = 0;
    }
}

impl Remote for Plain {
    unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        for index in 0..words {
            let from = from.wrapping_add(index * 8).cast::<u64>();
            // SAFETY: the caller's promise, for word `index`.
            let word = unsafe { from.read_unaligned() };
            self.store(at + index * 8, word);
        }
    }

    fn store(&self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8));
        self.0.borrow_mut()[at / 8] = word;
    }

    fn fence(&self) {}
}
