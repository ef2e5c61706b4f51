//! What arenas are made of.

use crosslane_ctl::lane::{Geometry, Location};

use super::WindowId;

/// Where memory comes from; a fake one serves the tests of the bookkeeping.
pub trait Backing {
    /// One memory object.
    type Memory: Clone;

    /// Whether there is memory to spare for another connection.
    fn has_room(&mut self) -> bool;

    /// Make a memory object, or `None` where memory or descriptors are short.
    fn create(&mut self, bytes: usize) -> Option<Self::Memory>;

    /// Give a range back to the kernel, so that it reads as zeroes. False if that failed.
    fn punch(&mut self, memory: &Self::Memory, offset: usize, bytes: usize) -> bool;

    /// Take a piece of a window, and how it is to be cut; `None` where all are in use.
    fn create_in(&mut self, window: WindowId) -> Option<(Self::Memory, Geometry)> {
        let _ = window;
        None
    }

    /// Whether there is a piece of a window that nobody uses.
    fn has_free_part(&self, window: WindowId) -> bool {
        let _ = window;
        false
    }

    /// Set flags in a word of the memory.
    fn set_flags(&mut self, memory: &Self::Memory, offset: usize, flags: u32) {
        let _ = (memory, offset, flags);
    }

    /// No slot of this memory is used any more; processes may still map it.
    fn gone(&mut self, memory: Self::Memory) {
        drop(memory);
    }

    /// Whether what [`Backing::punch`] has cleared is so for everybody who will use it.
    fn may_reuse(&self, memory: &Self::Memory) -> bool {
        let _ = memory;
        true
    }

    /// How programs find the memory behind its descriptor.
    fn location(&self, memory: &Self::Memory) -> Location {
        let _ = memory;
        Location::default()
    }

    /// The window in which the memory is and which part of it, if it is in one.
    fn place(&self, memory: &Self::Memory) -> Option<(WindowId, u32)> {
        let _ = memory;
        None
    }

    /// Open a part of a window that the other host deals out; `None` if that is not possible.
    fn import(&mut self, window: WindowId, part: u32) -> Option<(Self::Memory, Geometry)> {
        let _ = (window, part);
        None
    }
}
