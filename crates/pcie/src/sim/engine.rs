//! A programmable NIC's DMA engine: bounded contexts, data movers, a paced write port.

use std::collections::BTreeMap;

use super::fabric::{Event, Fabric};
use super::split::pieces;
use super::{Ps, ps};
use crate::model::TlpKind;
use crate::profile::Device;

/// Packets that may wait for credits before the engine holds back.
const WRITE_QUEUE: usize = 16;

/// What to move next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read host memory.
    Read,
    /// Write host memory.
    Write,
}

#[derive(Debug, Clone, Copy, Default)]
struct Context {
    moved_at: Ps,
}

/// Streams commands of one size as fast as the device, the link and the host allow.
#[derive(Debug)]
pub struct Engine<'a> {
    fabric: &'a mut Fabric,
    device: &'a Device,
    bytes: u32,
    mps_bytes: u32,
    /// By the bytes before the first 4 KiB boundary that a write crosses; zero where it crosses none.
    writes: BTreeMap<u32, Write>,
    contexts: Vec<Context>,
    free: Vec<usize>,
    write_port_free_at: Ps,
    memory_free_at: Ps,
    after_read: bool,
    finished: [u64; 2],
}

const WRITE_PORT: u64 = u64::MAX;

impl<'a> Engine<'a> {
    /// An idle engine that will move `bytes` at a time.
    #[must_use]
    pub fn new(fabric: &'a mut Fabric, device: &'a Device, bytes: u32, mps_bytes: u32) -> Self {
        Self {
            fabric,
            device,
            bytes,
            mps_bytes,
            writes: BTreeMap::new(),
            contexts: vec![Context::default(); device.contexts],
            free: (0..device.contexts).rev().collect(),
            write_port_free_at: 0,
            memory_free_at: 0,
            after_read: false,
            finished: [0; 2],
        }
    }

    /// Reads finished, and writes visible.
    #[must_use]
    pub fn finished(&self) -> [u64; 2] {
        self.finished
    }

    /// Virtual time, with the deep sleeps that a run as long as the measured ones would have met.
    #[must_use]
    pub fn time(&self) -> Ps {
        self.fabric.now().saturating_add(self.fabric.deep_sleep())
    }

    /// Starts a command if it can start now.
    pub fn start(&mut self, command: Command, address: u64) -> bool {
        match command {
            Command::Read => self.start_read(address),
            Command::Write => self.start_write(address),
        }
    }

    fn start_read(&mut self, address: u64) -> bool {
        let Some(context) = self.free.pop() else {
            return false;
        };
        self.contexts[context].moved_at = 0;
        self.after_read = true;
        self.fabric.dma_read(address, self.bytes, context as u64);
        true
    }

    fn start_write(&mut self, address: u64) -> bool {
        let now = self.fabric.now();
        if self.write_port_free_at > now || self.fabric.writes_waiting() > WRITE_QUEUE {
            return false;
        }
        let (fabric, device) = (&*self.fabric, self.device);
        let (bytes, mps_bytes) = (self.bytes, self.mps_bytes);
        let write = self
            .writes
            .entry(before_boundary(address, bytes))
            .or_insert_with(|| Write::plan(fabric, device, address, bytes, mps_bytes));
        let port_time = if self.after_read {
            write.time_after_read
        } else {
            write.time
        };
        self.after_read = false;
        self.write_port_free_at = now + port_time;
        self.fabric.dma_write_parts(address, &write.parts, 0);
        self.fabric.timer(self.write_port_free_at, WRITE_PORT);
        true
    }

    /// Advances to the next moment at which something could start; false when nothing is left.
    pub fn step(&mut self) -> bool {
        while let Some(event) = self.fabric.poll() {
            match event {
                Event::ReadData {
                    cookie,
                    bytes,
                    last,
                    ..
                } => self.data(cookie, bytes, last),
                Event::WriteVisible { .. } => {
                    self.finished[1] += 1;
                    return true;
                }
                Event::Timer { cookie: WRITE_PORT } => return true,
                Event::Timer { cookie } => {
                    self.free
                        .push(usize::try_from(cookie).expect("a context's index"));
                    self.finished[0] += 1;
                    return true;
                }
                Event::HostWrite { .. } | Event::HostRead { .. } | Event::HostReadDone { .. } => {}
            }
        }
        false
    }

    fn data(&mut self, cookie: u64, bytes: u32, last: bool) {
        let now = self.fabric.now();
        let context = &mut self.contexts[usize::try_from(cookie).expect("a context's index")];
        context.moved_at =
            context.moved_at.max(now) + ps(f64::from(bytes) * self.device.read_ns_per_byte);
        if !last {
            return;
        }
        let mut done = context.moved_at;
        if !self.bytes.is_multiple_of(16) {
            // A partial word is merged in the device's memory, one DMA at a time.
            let start = self.memory_free_at.max(now);
            self.memory_free_at = start + ps(self.device.partial_ns);
            done = done.max(start);
        }
        self.fabric.timer(done, cookie);
    }
}

/// A write's packets, and how long the port is busy with them.
#[derive(Debug)]
struct Write {
    parts: Vec<u32>,
    time: Ps,
    time_after_read: Ps,
}

impl Write {
    fn plan(fabric: &Fabric, device: &Device, address: u64, bytes: u32, mps_bytes: u32) -> Self {
        let parts = write_parts(address, bytes, mps_bytes, device.power_of_two_tail);
        let wires = parts
            .iter()
            .map(|&part| fabric.wire_time(TlpKind::MemoryWrite, part));
        let packets: Ps = wires
            .clone()
            .map(|wire| wire.max(ps(device.packet_gap_ns)))
            .sum();
        let gap = ps(device.write_gap_ns);
        let bubble = ps(device.write_bubble_ns);
        let time = (packets + bubble).max(gap);
        // A read request takes the port too, but fits into the pauses that short packets leave.
        let with_request = wires.sum::<Ps>() + bubble + ps(device.request_gap_ns);
        let shared = ps(f64::from(bytes.min(1024)) * device.shared_ns_per_byte
            + f64::from(bytes.saturating_sub(1024)) * device.shared_beyond_ns_per_byte);
        Self {
            parts,
            time,
            time_after_read: time.max(with_request).max(shared),
        }
    }
}

/// Bytes of a transfer before the first 4 KiB boundary that it crosses; zero if it crosses none.
fn before_boundary(address: u64, bytes: u32) -> u32 {
    let (_, first) = pieces(address, bytes, u32::MAX)
        .next()
        .unwrap_or((address, bytes));
    if first < bytes { first } else { 0 }
}

/// The packets of a write: full ones, and a tail that some engines send in powers of two. A write
/// across a 4 KiB boundary is several, none of whose packets crosses it.
#[must_use]
pub fn write_parts(address: u64, bytes: u32, mps_bytes: u32, power_of_two_tail: bool) -> Vec<u32> {
    let mut parts = Vec::new();
    for (_, piece) in pieces(address, bytes, u32::MAX) {
        add_parts(piece, mps_bytes, power_of_two_tail, &mut parts);
    }
    parts
}

fn add_parts(bytes: u32, mps_bytes: u32, power_of_two_tail: bool, parts: &mut Vec<u32>) {
    let full = (bytes / mps_bytes) as usize;
    parts.extend(std::iter::repeat_n(mps_bytes, full));
    let mut tail = bytes % mps_bytes;
    let mut part = mps_bytes / 2;
    while tail > 0 {
        // A tail that rounds up to the next power of two of lines goes out as one packet.
        if !power_of_two_tail || tail.div_ceil(64).is_power_of_two() || tail > mps_bytes - 64 {
            parts.push(tail);
            return;
        }
        if tail > part {
            parts.push(part);
            tail -= part;
        }
        part /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_go_out_in_powers_of_two() {
        assert_eq!(write_parts(0, 192, 256, true), [128, 64]);
        assert_eq!(write_parts(0, 129, 256, true), [128, 1]);
        assert_eq!(write_parts(0, 255, 256, true), [255]);
        assert_eq!(write_parts(0, 704, 256, true), [256, 256, 128, 64]);
        assert_eq!(write_parts(0, 704, 256, false), [256, 256, 192]);
        for bytes in 1..2050 {
            assert_eq!(write_parts(0, bytes, 256, true).iter().sum::<u32>(), bytes);
        }
    }

    #[test]
    fn no_packet_crosses_four_kibibytes() {
        assert_eq!(write_parts(4096 - 64, 256, 256, true), [64, 128, 64]);
        assert_eq!(write_parts(4096 - 1, 64, 256, true), [1, 63]);
        for (address, bytes) in [(32, 9000), (4095, 2), (60, 4096), (3840, 256), (1, 16_384)] {
            let mut at = address;
            for part in write_parts(address, bytes, 256, false) {
                let last = at + u64::from(part) - 1;
                assert_eq!(at / 4096, last / 4096, "{part} bytes at {at}");
                at = last + 1;
            }
            assert_eq!(at, address + u64::from(bytes));
        }
    }
}
