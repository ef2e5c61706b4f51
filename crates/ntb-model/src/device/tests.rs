//! That the model is strict: a driver that does what it should not is found.

use super::*;

const BYTES: u64 = 1 << 16;

fn linked() -> Device {
    let mut device = Device::new(BYTES);
    for side in [0, 1] {
        device.write(side, 0xb050, 16, 0);
        device.write(side, 0xb0d4, 32, TRAINS);
    }
    assert!(device.is_up());
    device
}

/// As a driver opens its window, in any order.
fn open(device: &mut Device, side: usize, base: u64, bytes: u64) {
    let (start, _) = device.region(side);
    device.write(side, 0x10, 64, base);
    device.write(side, 0x18, 64, start + bytes);
    device.write(side, 0x74, 16, u64::from(bytes.ilog2()));
}

#[test]
fn accesses_of_another_width_or_place_are_faults() {
    let mut device = linked();
    for (at, bits) in [(0x10, 32), (0x14, 32), (0x04, 32), (0x82, 32), (0xb052, 32)] {
        assert_eq!(device.read(0, at, bits), u64::from(u32::MAX));
        device.write(0, at, bits, 1);
    }
    device.write(0, 0xb4c0, 32, 0);
    device.write(0, 0x80, 32, 1 << 32);
    assert_eq!(device.faults().len(), 5 * 2 + 2, "{:?}", device.faults());
}

#[test]
fn reserved_bits_do_not_stick() {
    let mut device = linked();
    device.write(0, 0x0, 32, 0xffff_ffff);
    assert_eq!(device.read(0, 0x0, 32), 0x3fc);
    device.write(0, 0x10, 64, 0x1_2345_6789);
    assert_eq!(device.read(0, 0x10, 64), 0x1_2345_0000, "region's size");
    device.write(0, 0x18, 64, 0x1_2345_6789);
    assert_eq!(device.read(0, 0x18, 64), 0x1_2345_6000, "pages");
}

#[test]
fn routes_lead_as_far_as_the_limit_and_where_the_base_says() {
    let mut device = linked();
    assert_eq!(device.route(0, 0), None, "nothing is open");
    open(&mut device, 1, 0x5_0000_0000, BYTES / 2);
    assert_eq!(device.route(0, 0), Some(0x5_0000_0000));
    let last = BYTES / 2 - 1;
    assert_eq!(device.route(0, last), Some(0x5_0000_0000 + last));
    assert_eq!(device.route(0, last + 1), None, "beyond the limit");
    assert_eq!(device.route(1, 0), None, "the other way is closed");
    // A limit beyond the region does not make it larger.
    open(&mut device, 1, 0x5_0000_0000, BYTES * 4);
    assert_eq!(device.route(0, BYTES), None);
    assert!(device.route(0, BYTES - 1).is_some());
    device.write(1, 0x74, 16, 3);
    assert_eq!(device.route(0, 0), None, "the index is another");
    device.write(1, 0x74, 16, 18);
    device.set_cable(false);
    assert_eq!(device.route(0, 0), None, "no cable");
}

#[test]
fn doorbells_interrupt_unless_masked_and_vectors_are_routed() {
    let mut device = linked();
    let bell = |device: &mut Device, n: u64| device.write(0, 0x100 + 4 * n, 32, 1);
    let reset = Effect::Interrupt { side: 1, vector: 6 };
    assert_eq!(bell(&mut device, 5), [reset], "the link is first");
    (0..33).for_each(|bit| drop(device.write(1, 0x50 + bit, 8, bit)));
    let routed = Effect::Interrupt { side: 1, vector: 5 };
    assert_eq!(bell(&mut device, 5), [routed]);
    device.write(1, 0x48, 64, 1 << 5);
    assert_eq!(bell(&mut device, 5), []);
    assert_eq!(device.read(1, 0x40, 64) & 0xffff_ffff, 1 << 5);
    device.write(1, 0x40, 64, 1 << 5);
    assert_eq!(device.read(1, 0x40, 64) & 0xffff_ffff, 0);
}

#[test]
fn the_links_bit_is_cleared_after_the_slots() {
    let mut device = linked();
    assert_eq!(device.read(0, 0x40, 64), LINK_BIT);
    device.write(0, 0x40, 64, LINK_BIT);
    assert_eq!(device.read(0, 0x40, 64), LINK_BIT, "too early");
    device.write(0, 0xb05a, 16, SLOT_LINK_CHANGED);
    device.write(0, 0x40, 64, LINK_BIT);
    assert_eq!(device.read(0, 0x40, 64), 0);
}

#[test]
fn a_device_that_is_gone_reads_as_ones_and_takes_the_link_with_it() {
    let mut device = linked();
    device.remove(0);
    assert_eq!(device.read(0, 0xb4c0, 32), 0xffff_ffff);
    assert_eq!(device.read(0, 0x40, 64), u64::MAX);
    assert_eq!(device.read(1, 0xb052, 16), 0);
    assert_eq!(device.read(1, 0x8080, 32), 0xffff_ffff, "nobody answers");
}
