//! The ready designs.

use super::{Action, Amount, Design, Step};
use crate::model::tlp::MSI_BYTES;

const DESCRIPTOR_BYTES: u32 = 16;
const POINTER_BYTES: u32 = 4;

const fn step(what: &'static str, action: Action, amount: Amount, every: u32) -> Step {
    Step {
        what,
        action,
        amount,
        every,
        lost_in_print: false,
    }
}

const fn lost(what: &'static str, every: u32) -> Step {
    Step {
        what,
        action: Action::DmaRead,
        amount: Amount::Fixed(DESCRIPTOR_BYTES),
        every,
        lost_in_print: true,
    }
}

const fn doorbell(what: &'static str, every: u32) -> Step {
    step(what, Action::HostWrite, Amount::Fixed(POINTER_BYTES), every)
}

const fn head_read(every: u32) -> Step {
    step(
        "read head pointer",
        Action::HostRead,
        Amount::Fixed(POINTER_BYTES),
        every,
    )
}

const fn interrupt(every: u32) -> Step {
    step(
        "interrupt",
        Action::DmaWrite,
        Amount::Fixed(MSI_BYTES),
        every,
    )
}

const fn packet_read() -> Step {
    step("fetch packet", Action::DmaRead, Amount::Packet, 1)
}

const fn packet_write() -> Step {
    step("write packet", Action::DmaWrite, Amount::Packet, 1)
}

const fn write_back() -> Step {
    step(
        "write back descriptor",
        Action::DmaWrite,
        Amount::Fixed(DESCRIPTOR_BYTES),
        1,
    )
}

/// Everything for every packet (slides 003: the simplistic NIC).
pub static SIMPLE: Design = Design {
    name: "simple",
    about: "every pointer, descriptor and interrupt for every packet",
    tx: &[
        doorbell("write tail pointer", 1),
        step(
            "fetch descriptor",
            Action::DmaRead,
            Amount::Fixed(DESCRIPTOR_BYTES),
            1,
        ),
        packet_read(),
        interrupt(1),
        head_read(1),
    ],
    rx: &[
        doorbell("write tail pointer", 1),
        lost("fetch descriptor", 1),
        packet_write(),
        write_back(),
        interrupt(1),
        head_read(1),
    ],
};

/// Descriptors that the Intel 82599 fetches and writes back at once.
const FETCHED: u32 = 40;
const WRITTEN_BACK: u32 = 8;

/// An 82599 under its kernel driver.
pub static KERNEL: Design = Design {
    name: "kernel",
    about: "Intel 82599 under the kernel's driver: batched descriptors, moderated interrupts",
    tx: &[
        doorbell("write tail pointer", 1),
        step(
            "fetch 40 descriptors",
            Action::DmaRead,
            Amount::Fixed(FETCHED * DESCRIPTOR_BYTES),
            FETCHED,
        ),
        packet_read(),
        step(
            "write back 8 descriptors",
            Action::DmaWrite,
            Amount::Fixed(WRITTEN_BACK * DESCRIPTOR_BYTES),
            WRITTEN_BACK,
        ),
        interrupt(32),
        head_read(1),
    ],
    rx: &[
        doorbell("write free-list tail", 32),
        lost("fetch descriptor", 1),
        packet_write(),
        write_back(),
        interrupt(32),
        head_read(8),
    ],
};

/// An 82599 under DPDK's poll-mode driver.
pub static DPDK: Design = Design {
    name: "dpdk",
    about: "Intel 82599 under a poll-mode driver: batched doorbells, no interrupts, no head reads",
    tx: &[
        doorbell("write tail pointer", 32),
        step(
            "fetch 40 descriptors",
            Action::DmaRead,
            Amount::Fixed(FETCHED * DESCRIPTOR_BYTES),
            FETCHED,
        ),
        packet_read(),
        step(
            "write back 8 descriptors",
            Action::DmaWrite,
            Amount::Fixed(WRITTEN_BACK * DESCRIPTOR_BYTES),
            WRITTEN_BACK,
        ),
    ],
    rx: &[
        doorbell("write free-list tail", 32),
        lost("fetch descriptor", 1),
        packet_write(),
        write_back(),
    ],
};

/// Largest packet inside a NIQ line, and what a line carries of a larger one (NIQ section 3).
const NIQ_SMALL_BYTES: u32 = 60;
const NIQ_SPLIT_BYTES: u32 = 48;

/// NIQ: small packets inside the descriptor and inside the completion, one TLP each way.
pub static NIQ: Design = Design {
    name: "niq",
    about: "NIQ: up to 60 B inside the 64 B descriptor or completion; reads held by the device",
    tx: &[
        step(
            "write descriptor line with data",
            Action::HostWrite,
            Amount::Fixed(super::LINE_BYTES),
            1,
        ),
        step(
            "fetch the rest",
            Action::DmaRead,
            Amount::PacketBeyond(NIQ_SPLIT_BYTES, NIQ_SMALL_BYTES),
            1,
        ),
    ],
    rx: &[
        step(
            "write the rest",
            Action::DmaWrite,
            Amount::PacketBeyond(NIQ_SPLIT_BYTES, NIQ_SMALL_BYTES),
            1,
        ),
        step(
            "answer the waiting read",
            Action::HostRead,
            Amount::Fixed(super::LINE_BYTES),
            1,
        ),
    ],
};

/// Bytes of the header that announces a record in a window ring.
const RECORD_HEADER_BYTES: u32 = 8;
/// Records per returned credit: half a ring of 128.
const RECORDS_PER_CREDIT: u32 = 64;

/// A ring of 64-byte lines in a window that the peer writes: posted writes only, nothing is read.
pub static WINDOW: Design = Design {
    name: "window",
    about: "posted-write window ring: write-combined lines out, credit rarely, no reads",
    tx: &[
        step(
            "write lines",
            Action::HostWrite,
            Amount::Lines(RECORD_HEADER_BYTES),
            1,
        ),
        step(
            "credit comes back",
            Action::DmaWrite,
            Amount::Fixed(RECORD_HEADER_BYTES),
            RECORDS_PER_CREDIT,
        ),
    ],
    rx: &[
        step(
            "lines arrive",
            Action::DmaWrite,
            Amount::Lines(RECORD_HEADER_BYTES),
            1,
        ),
        step(
            "return credit",
            Action::HostWrite,
            Amount::Fixed(RECORD_HEADER_BYTES),
            RECORDS_PER_CREDIT,
        ),
    ],
};

/// Every ready design.
pub static ALL: [&Design; 5] = [&SIMPLE, &KERNEL, &DPDK, &NIQ, &WINDOW];
