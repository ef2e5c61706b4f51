//! In which order records leave for another host's memory, and what is found there when they arrive as early and as late as
//! the fences permit.

use std::cell::{Cell, RefCell};

use super::*;

const WORD: usize = size_of::<u64>();

/// What leaves this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Word { at: usize, word: u64 },
    Fence,
}

/// What is done wrong on purpose, to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The header is written and fenced before the payload.
    HeaderBeforePayload,
    /// No fence between payload and header.
    HeaderUnfenced,
    /// No fence after the header: it may stay in its buffer.
    HeaderNotPushed,
}

/// Writes down what is written and fenced.
struct Recorder {
    left: RefCell<Vec<Left>>,
    /// Where the header is that is to come last.
    header: usize,
    has_header: Cell<bool>,
    fault: Fault,
}

impl Remote for Recorder {
    unsafe fn write(&self, at: usize, from: *const u8, words: usize) {
        for index in 0..words {
            let from = from.wrapping_add(index * WORD).cast::<u64>();
            // SAFETY: the caller's promise, for word `index`.
            self.store(at + index * WORD, unsafe { from.read_unaligned() });
        }
    }

    fn store(&self, at: usize, word: u64) {
        let mut left = self.left.borrow_mut();
        let is_header = at == self.header;
        self.has_header.set(self.has_header.get() || is_header);
        match is_header && self.fault == Fault::HeaderBeforePayload {
            true => drop(left.splice(0..0, [Left::Word { at, word }, Left::Fence])),
            false => left.push(Left::Word { at, word }),
        }
    }

    fn fence(&self) {
        let lacks = match self.has_header.get() {
            true => Fault::HeaderNotPushed,
            false => Fault::HeaderUnfenced,
        };
        if self.fault != lacks {
            self.left.borrow_mut().push(Left::Fence);
        }
    }
}

/// Records of a lane on their way to another host.
struct Post<'a> {
    own: &'a WindowLane,
    first: u64,
    end: u64,
    header: usize,
    left: Vec<Left>,
}

impl<'a> Post<'a> {
    fn of(own: &'a WindowLane, first: u64, end: u64, fault: Fault) -> Self {
        let header = LANE_CONTROL_BYTES + TxCursor::offset(own, first);
        let recorder = Recorder {
            left: RefCell::default(),
            header,
            has_header: Cell::new(false),
            fault,
        };
        post_away(own, &recorder, 0, first, end);
        Self {
            own,
            first,
            end,
            header,
            left: recorder.left.into_inner(),
        }
    }

    /// Payload, fence, header, fence.
    fn is_in_order(&self) -> bool {
        let is_header = |left: &Left| matches!(left, Left::Word { at, .. } if *at == self.header);
        let [payload @ .., Left::Fence, last, Left::Fence] = self.left.as_slice() else {
            return false;
        };
        let is_payload = |left: &Left| *left != Left::Fence && !is_header(left);
        is_header(last) && payload.iter().all(is_payload)
    }

    /// Have all arrive, the header before everything that no fence holds in front of it. Returns whether it announces what is
    /// there. What no fence has pushed out does not arrive.
    fn arrives_whole(&self, there: &Outbound, window: &WindowLane) -> bool {
        let fenced = |group: &&[Left]| group.last() == Some(&Left::Fence);
        let is_fence = |left: &Left| *left == Left::Fence;
        for group in self.left.split_inclusive(is_fence).filter(fenced) {
            let word = |left: &Left| match *left {
                Left::Word { at, word } => Some((at, word)),
                Left::Fence => None,
            };
            let mut words: Vec<_> = group.iter().filter_map(word).collect();
            words.sort_by_key(|(at, _)| *at != self.header);
            for (at, word) in words {
                there.store(at, word);
                if at == self.header {
                    return self.is_there(window);
                }
            }
        }
        false
    }

    /// Whether all its lines are, and behind them one in which there is nothing.
    fn is_there(&self, window: &WindowLane) -> bool {
        let lines = usize::try_from(self.end - self.first).unwrap();
        let of = |lane| {
            let mut bytes = vec![0; lines * LINE_BYTES];
            lines_out(lane, self.first, &mut bytes);
            bytes
        };
        let behind = window.header(TxCursor::wrapped(window, self.end));
        of(self.own) == of(window) && behind == 0
    }
}

fn outbound(memory: &mut [Line]) -> Outbound {
    let bytes = size_of_val(memory);
    // SAFETY: the memory outlives the view in each test.
    let view = unsafe { View::from_raw(NonNull::from(memory).cast(), bytes) };
    Outbound::new(view, Traits::MEMORY).unwrap()
}

#[test]
fn payload_fence_header_fence_leave_whatever_is_posted() {
    let (mut credit, mut theirs) = (memory(), memory());
    let there = outbound(&mut theirs);
    let (window, controls) = (lane(&mut theirs), lane(&mut credit));
    find_what_is_posted(&controls, &window, |own, first, end| {
        let post = Post::of(own, first, end, Fault::None);
        assert!(post.is_in_order(), "{:?}", post.left);
        assert!(post.arrives_whole(&there, &window), "lines {first}..{end}");
        controls.set_consumed(window.consumed(), false);
    });
}

/// Whether it is found by the order, and by what arrives.
fn is_found(fault: Fault, bytes: usize) -> [bool; 2] {
    let (mut credit, mut ours, mut theirs) = (memory(), memory(), memory());
    let there = outbound(&mut theirs);
    let (own, window) = (lane(&mut ours), lane(&mut theirs));
    let sending = lane(&mut credit).with_ring_of(&own).unwrap();
    let mut tx = TxCursor::default();
    assert_eq!(tx.write_slice(&sending, &vec![7; bytes]), Ok(bytes));
    let post = Post::of(&own, 0, tx.tail, fault);
    [!post.is_in_order(), !post.arrives_whole(&there, &window)]
}

#[test]
fn a_header_before_its_payload_and_a_fence_that_is_missing_are_found() {
    for bytes in [1, 56, 64, 5000] {
        assert_eq!(is_found(Fault::None, bytes), [false, false], "{bytes}");
        for fault in [
            Fault::HeaderBeforePayload,
            Fault::HeaderUnfenced,
            Fault::HeaderNotPushed,
        ] {
            assert_eq!(is_found(fault, bytes), [true, true], "{fault:?}, {bytes}");
        }
    }
}
