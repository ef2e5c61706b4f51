//! Bytes arrive where the translation says, and nowhere else; doorbells ring where they are heard.

use crosslane_ntb_model::attach::Setup;
use crosslane_sys::memory::Mapping;
use crosslane_window::backend::{Memory, Window, half_bytes, lasting_halves};
use crosslane_window::ntb::{Bridge, NtbWindow, Side};
use crosslane_window::policy::Traits;

use crate::hosts::{LENT, MOMENT, PATIENCE, REGION, bridge, parts, usual, watched};

const REGION_BYTES: usize = 1 << 18;
const _: () = assert!(REGION_BYTES as u64 == REGION);

/// Any memory, as a window.
struct Whole(std::sync::Arc<Mapping>);

impl Window for Whole {
    fn traits(&self) -> Traits {
        Traits::COMBINED_BAR
    }

    fn description(&self) -> String {
        "test".to_owned()
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Shared(&self.0)
    }
}

struct Region(std::sync::Arc<Mapping>);

impl Window for Region {
    fn traits(&self) -> Traits {
        Traits::COMBINED_BAR
    }

    fn description(&self) -> String {
        "test".to_owned()
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Apart {
            local: &self.0,
            remote: &self.0,
            bytes: usize::MAX,
        }
    }
}

fn link(bridges: [&Bridge; 2]) {
    bridges
        .iter()
        .for_each(|bridge| bridge.enable_link().unwrap());
    for bridge in bridges {
        let link = bridge.wait_for_link(PATIENCE).unwrap();
        assert_eq!((link.generation, link.lanes), (4, 16));
        assert_eq!(link.to_string(), "PCIe 4 x16");
    }
}

/// The other host lends a quarter of the region, out of the middle of what the device can reach.
#[test]
fn bytes_arrive_exactly_where_the_translation_says() {
    watched(|model| {
        let base = 1 << 32;
        let (first, _, aperture) = bridge(usual(model, 0)).unwrap();
        let setup = Setup {
            side: 1,
            lent_bytes: 2 * REGION_BYTES,
            lent_address: base,
        };
        let (second, lent, _) = bridge(parts(model, setup)).unwrap();
        assert_eq!(
            (first.side(), second.side()),
            (Side::Upstream, Side::Downstream)
        );
        second.translate(base + REGION, REGION / 4).unwrap();
        link([&first, &second]);

        let region: &'static Region = Box::leak(Box::new(Region(aperture.mapping)));
        let (_, remote) = lasting_halves(region, 0);
        assert_eq!(remote.bytes(), REGION_BYTES);
        let word = |at: usize| at as u64 + 1;
        (0..REGION_BYTES)
            .step_by(8)
            .for_each(|at| remote.store(at, word(at)));
        remote.fence();

        let memory: &'static Whole = Box::leak(Box::new(Whole(lent.mapping.into())));
        assert_eq!(half_bytes(memory), REGION_BYTES);
        let (below, _) = lasting_halves(memory, 0);
        let (there, _) = lasting_halves(memory, 1);
        for at in (0..REGION_BYTES).step_by(8) {
            assert_eq!(below.load(at), 0, "below the translation, at {at:#x}");
            let right = if at < REGION_BYTES / 4 { word(at) } else { 0 };
            assert_eq!(there.load(at), right, "at {at:#x}");
        }
        // Closed, and opened again elsewhere.
        second.close();
        remote.store(0, 7);
        assert_eq!(there.load(0), word(0), "a closed window lets nothing in");
        second.translate(base, REGION).unwrap();
        remote.store(REGION_BYTES - 8, 9);
        assert_eq!(below.load(REGION_BYTES - 8), 9);
    });
}

/// Only the bit that starts the training has to be as it was written.
#[test]
fn states_of_the_port_may_change_as_it_is_written() {
    watched(|model| {
        let (first, ..) = bridge(usual(model, 0)).unwrap();
        let (second, ..) = bridge(usual(model, 1)).unwrap();
        let mut ports = [0; 2];
        let mut port = |when: usize| {
            model.change(|device| {
                ports[when] = device.read(0, 0xb0d4, 32);
                Vec::new()
            });
        };
        port(0);
        link([&first, &second]);
        port(1);
        assert_eq!(ports, [0x1, 0x8]);
    });
}

#[test]
fn doorbells_are_heard_unless_they_are_masked() {
    watched(|model| {
        let (first, ..) = bridge(usual(model, 0)).unwrap();
        let (second, ..) = bridge(usual(model, 1)).unwrap();
        link([&first, &second]);
        first.ring(1 << 31 | 1);
        assert_eq!(second.doorbells().unwrap(), 1 << 31 | 1);
        assert_eq!(second.wait_for_doorbells(MOMENT).unwrap(), 0, "masked");
        second.clear_doorbells(1);
        assert_eq!(second.doorbells().unwrap(), 1 << 31);
        second.unmask_only(1 << 5);
        first.ring(1 << 5);
        assert_eq!(second.wait_for_doorbells(PATIENCE).unwrap(), 1 << 5);
        assert_eq!(second.doorbells().unwrap(), 1 << 31, "not cleared");
        assert_eq!(first.doorbells().unwrap(), 0, "the ringer hears nothing");
    });
}

#[test]
fn scratchpads_are_the_readers_own() {
    watched(|model| {
        let (first, ..) = bridge(usual(model, 0)).unwrap();
        let (second, ..) = bridge(usual(model, 1)).unwrap();
        first.set_peer_scratchpad(0, 3);
        assert_eq!(second.scratchpad(0), 0, "no link");
        link([&first, &second]);
        for number in 0..16 {
            first.set_peer_scratchpad(number, 100 + u32::try_from(number).unwrap());
        }
        let words: Vec<u32> = (0..16).map(|number| second.scratchpad(number)).collect();
        assert_eq!(words, (100..116).collect::<Vec<_>>());
        assert_eq!(first.peer_scratchpad(15), 115);
        assert_eq!(first.scratchpad(15), 0);
        second.set_scratchpad(15, 1);
        assert_eq!(first.peer_scratchpad(15), 1);
    });
}

/// Hosts that lend differently much agree upon the smaller.
#[test]
fn windows_are_as_large_as_the_smaller_memory() {
    watched(|model| {
        let second = parts(model, Setup::of(1, LENT / 2));
        let second = std::thread::spawn(move || NtbWindow::open(second, PATIENCE).unwrap());
        let first = NtbWindow::open(usual(model, 0), PATIENCE).unwrap();
        let second = second.join().unwrap();
        for (side, window) in [(0, &first), (1, &second)] {
            assert_eq!(half_bytes(window), LENT / 2);
            assert_eq!(window.side(), Some(side));
            assert_eq!(window.traits(), Traits::COMBINED_BRIDGE);
            assert!(window.description().contains("PCIe 4 x16"));
            window.check().unwrap();
        }
    });
}
