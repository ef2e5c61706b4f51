//! Storage for what is under way.

/// Numbered slots that are used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Copy> Slab<T> {
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self[slot] = item;
            return slot;
        }
        let slot = u32::try_from(self.items.len()).expect("fewer than 2^32 packets are under way");
        self.items.push(item);
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> T {
        self.free.push(slot);
        self[slot]
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.items[slot as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.items[slot as usize]
    }
}
