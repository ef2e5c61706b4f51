//! The caller's buffers: a cursor over an array of (address, length), as in readv and writev.

/// One buffer, laid out as C's `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Part {
    /// First byte.
    pub start: *mut u8,
    /// Bytes.
    pub bytes: usize,
}

impl Part {
    /// No buffer.
    pub const EMPTY: Self = Self {
        start: core::ptr::null_mut(),
        bytes: 0,
    };

    /// A buffer to read from.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            start: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
        }
    }

    /// A buffer to write to.
    pub fn of_mut(bytes: &mut [u8]) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            bytes: bytes.len(),
        }
    }
}

/// A cursor over buffers. Making one is a promise that the buffers are valid, which is why the
/// functions that copy through it are safe to call.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    parts: &'a [Part],
    offset: usize,
    left: usize,
}

impl<'a> Parts<'a> {
    /// A cursor at the start of `parts`, or `None` if their lengths add up to more than
    /// `isize::MAX`.
    ///
    /// # Safety
    /// Every part must stay valid for reads, or for writes if it is to be written to, of its
    /// length as long as the cursor is used, and none may lie in a window.
    pub unsafe fn new(parts: &'a [Part]) -> Option<Self> {
        let mut left = 0usize;
        for part in parts {
            left = left.checked_add(part.bytes)?;
        }
        (left <= isize::MAX.cast_unsigned()).then_some(Self {
            parts,
            offset: 0,
            left,
        })
    }

    /// Bytes between the cursor and the end.
    #[inline]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Keep only the next `bytes`.
    pub fn truncate(&mut self, bytes: usize) {
        self.left = self.left.min(bytes);
    }

    /// The next contiguous piece of at most `most` bytes, which the cursor passes.
    #[inline]
    pub fn take(&mut self, most: usize) -> Option<(*mut u8, usize)> {
        if self.left == 0 || most == 0 {
            return None;
        }
        loop {
            let part = self.parts.first()?;
            let rest = part.bytes - self.offset;
            if rest == 0 {
                self.parts = &self.parts[1..];
                self.offset = 0;
                continue;
            }
            let bytes = rest.min(most).min(self.left);
            let start = part.start.wrapping_add(self.offset);
            self.offset += bytes;
            self.left -= bytes;
            return Some((start, bytes));
        }
    }

    /// Move the cursor over `bytes` without copying.
    pub fn skip(&mut self, mut bytes: usize) {
        while bytes > 0 {
            match self.take(bytes) {
                Some((_, taken)) => bytes -= taken,
                None => return,
            }
        }
    }
}

/// Let `act` read the bytes of a slice through a cursor.
#[inline]
pub(crate) fn of_slice<T>(bytes: &[u8], act: impl FnOnce(&mut Parts<'_>) -> T) -> T {
    let part = [Part::of(bytes)];
    act(&mut Parts {
        parts: &part,
        offset: 0,
        left: bytes.len(),
    })
}

/// Let `act` write the bytes of a slice through a cursor.
#[inline]
pub(crate) fn of_slice_mut<T>(bytes: &mut [u8], act: impl FnOnce(&mut Parts<'_>) -> T) -> T {
    let part = [Part::of_mut(bytes)];
    act(&mut Parts {
        parts: &part,
        offset: 0,
        left: bytes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cursor over buffers of these sizes, of which only the lengths are looked at.
    fn over(sizes: &[usize]) -> Vec<Part> {
        let part = |&bytes: &usize| Part {
            start: core::ptr::null_mut(),
            bytes,
        };
        sizes.iter().map(part).collect()
    }

    fn pieces(cursor: &mut Parts<'_>, most: usize) -> Vec<usize> {
        std::iter::from_fn(|| cursor.take(most))
            .map(|(_, bytes)| bytes)
            .collect()
    }

    #[test]
    fn pieces_end_where_buffers_end() {
        let parts = over(&[3, 0, 5, 2]);
        // SAFETY: nothing is read or written through the cursor.
        let mut cursor = unsafe { Parts::new(&parts) }.unwrap();
        assert_eq!(cursor.left(), 10);
        assert_eq!(pieces(&mut cursor.clone(), 4), [3, 4, 1, 2]);
        cursor.skip(4);
        cursor.truncate(5);
        assert_eq!(pieces(&mut cursor, 100), [4, 1]);
        assert_eq!(cursor.left(), 0);
        assert_eq!(cursor.take(1), None);
    }

    #[test]
    fn lengths_that_no_memory_can_have_are_refused() {
        let most = isize::MAX.cast_unsigned();
        for (sizes, is_refused) in [
            ([usize::MAX, 1], true),
            ([most, 1], true),
            ([most, 0], false),
        ] {
            let parts = over(&sizes);
            // SAFETY: nothing is read or written through the cursor.
            let cursor = unsafe { Parts::new(&parts) };
            assert_eq!(cursor.is_none(), is_refused, "{sizes:?}");
        }
    }
}
