//! A programmable NIC's DMA engine: bounded contexts, data movers, a paced write port.

use super::fabric::{Event, Fabric};
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
    parts: Vec<u32>,
    contexts: Vec<Context>,
    free: Vec<usize>,
    write_port_free_at: Ps,
    write_time: Ps,
    write_time_after_read: Ps,
    memory_free_at: Ps,
    after_read: bool,
    finished: [u64; 2],
}

const WRITE_PORT: u64 = u64::MAX;

impl<'a> Engine<'a> {
    /// An idle engine that will move `bytes` at a time.
    #[must_use]
    pub fn new(fabric: &'a mut Fabric, device: &'a Device, bytes: u32, mps_bytes: u32) -> Self {
        let parts = write_parts(bytes, mps_bytes, device.power_of_two_tail);
        let wires = parts
            .iter()
            .map(|&part| fabric.wire_time(TlpKind::MemoryWrite, part));
        let packets: Ps = wires
            .clone()
            .map(|wire| wire.max(ps(device.packet_gap_ns)))
            .sum();
        let gap = ps(device.write_gap_ns);
        let bubble = ps(device.write_bubble_ns);
        let write_time = (packets + bubble).max(gap);
        // A read request takes the port too, but fits into the pauses that short packets leave.
        let with_request = wires.sum::<Ps>() + bubble + ps(device.request_gap_ns);
        let shared = ps(f64::from(bytes.min(1024)) * device.shared_ns_per_byte
            + f64::from(bytes.saturating_sub(1024)) * device.shared_beyond_ns_per_byte);
        Self {
            fabric,
            device,
            bytes,
            parts,
            contexts: vec![Context::default(); device.contexts],
            free: (0..device.contexts).rev().collect(),
            write_port_free_at: 0,
            write_time,
            write_time_after_read: write_time.max(with_request).max(shared),
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
        self.fabric.now() + self.fabric.deep_sleep()
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
        let port_time = if self.after_read {
            self.write_time_after_read
        } else {
            self.write_time
        };
        self.after_read = false;
        self.write_port_free_at = now + port_time;
        self.fabric.dma_write_parts(address, &self.parts, 0);
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

/// The packets of a write: full ones, and a tail that some engines send in powers of two.
#[must_use]
pub fn write_parts(bytes: u32, mps_bytes: u32, power_of_two_tail: bool) -> Vec<u32> {
    let mut parts = vec![mps_bytes; (bytes / mps_bytes) as usize];
    let mut tail = bytes % mps_bytes;
    let mut part = mps_bytes / 2;
    while tail > 0 {
        // A tail that rounds up to the next power of two of lines goes out as one packet.
        if !power_of_two_tail || tail.div_ceil(64).is_power_of_two() || tail > mps_bytes - 64 {
            parts.push(tail);
            return parts;
        }
        if tail > part {
            parts.push(part);
            tail -= part;
        }
        part /= 2;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_go_out_in_powers_of_two() {
        assert_eq!(write_parts(192, 256, true), [128, 64]);
        assert_eq!(write_parts(129, 256, true), [128, 1]);
        assert_eq!(write_parts(255, 256, true), [255]);
        assert_eq!(write_parts(704, 256, true), [256, 256, 128, 64]);
        assert_eq!(write_parts(704, 256, false), [256, 256, 192]);
        for bytes in 1..2050 {
            assert_eq!(write_parts(bytes, 256, true).iter().sum::<u32>(), bytes);
        }
    }
}
