//! What is wrong, and that it is said with the thing, the value and the remedy.

use crosslane_ntb_model::attach::Setup;
use crosslane_ntb_model::device::Device;
use crosslane_ntb_model::serve::Model;
use crosslane_window::backend::Window;
use crosslane_window::ntb::{Bridge, Id, NtbError, NtbWindow, Parts};

use crate::hosts::{LENT, MOMENT, PATIENCE, REGION, bridge, parts, usual, watched};

/// That an error says all of this.
fn says(error: &NtbError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

fn refused(parts: Parts) -> NtbError {
    bridge(parts).map(drop).unwrap_err()
}

/// Windows at both sides.
fn windows(model: &Model) -> [NtbWindow; 2] {
    let second = usual(model, 1);
    let second = std::thread::spawn(move || NtbWindow::open(second, PATIENCE).unwrap());
    let first = NtbWindow::open(usual(model, 0), PATIENCE).unwrap();
    [first, second.join().unwrap()]
}

#[test]
fn another_device_is_refused() {
    watched(|model| {
        for (device, revision) in [(0x201c, 4), (0x347e, 0), (0x347e, 0x10)] {
            let error = refused(Parts {
                id: Id {
                    vendor: 0x8086,
                    device,
                    revision,
                },
                ..usual(model, 0)
            });
            says(
                &error,
                &["model:0", &format!("8086:{device:04x}"), "window probe"],
            );
        }
    });
}

#[test]
fn a_port_that_stands_alone_is_refused() {
    watched(|model| {
        let parts = usual(model, 0);
        model.change(|device| {
            device.unpair(0);
            Vec::new()
        });
        says(&refused(parts), &["PPD1 is 0xc", "firmware"]);
        model.change(|device| {
            assert_eq!(device.writes(0), 0, "it leads somewhere else");
            Vec::new()
        });
    });
}

#[test]
fn a_region_that_leads_nowhere_is_refused() {
    watched(|model| {
        let mut parts = usual(model, 0);
        parts.aperture.bar = 0;
        says(&refused(parts), &["BAR 0", "BAR 2 and BAR 4"]);
    });
}

#[test]
fn a_removed_device_is_noticed() {
    watched(|model| {
        let [first, second] = windows(model);
        model.change(|device| device.remove(0));
        says(
            &first.check().unwrap_err(),
            &["model:0", "LINK_STATUS", "ones", "rescan"],
        );
        assert!(first.bridge().doorbells().is_err());
        assert!(first.bridge().enable_link().is_err());
        says(
            &second.check().unwrap_err(),
            &["model:1", "link is down", "cable"],
        );
        // As whoever has opened any window asks.
        let window: &dyn Window = &second;
        let said = window.check().unwrap_err().to_string();
        assert!(said.contains("link is down"), "{said}");
        drop(first);
        let again = usual(model, 0);
        model.change(|device| device.remove(0));
        says(&refused(again), &["PPD1 reads as ones"]);
    });
}

#[test]
fn sizes_and_places_that_cannot_be_translated_are_refused() {
    watched(|model| {
        let (open, ..) = bridge(usual(model, 0)).unwrap();
        for bytes in [0, 2048, 12288, 2 * REGION] {
            let error = open.translate(1 << 32, bytes).unwrap_err();
            says(&error, &["BAR 2", &bytes.to_string(), &REGION.to_string()]);
        }
        for at in [4096, REGION / 2, (1 << 32) + REGION / 2] {
            let error = open.translate(at, REGION / 2).unwrap_err();
            says(&error, &[&format!("{at:#x}"), "0x40000", "IOMMU"]);
        }
        open.translate(1 << 32, REGION).unwrap();
    });
}

/// Whichever register it is, it is named, and the window is left closed.
#[test]
fn a_register_that_is_not_as_written_is_noticed() {
    for (at, name) in [
        (0x10, "IM23XBASE"),
        (0x74, "IM23XBASEIDX"),
        (0x18, "IM23XLMT"),
    ] {
        watched(move |model| {
            let (first, ..) = bridge(usual(model, 0)).unwrap();
            let (second, ..) = bridge(usual(model, 1)).unwrap();
            let both = [&first, &second];
            both.iter().for_each(|bridge| bridge.enable_link().unwrap());
            first.wait_for_link(PATIENCE).unwrap();
            let stuck = |device: &mut Device| {
                device.stick(at);
                Vec::new()
            };
            model.change(stuck);
            let error = second.translate(1 << 32, REGION).unwrap_err();
            says(
                &error,
                &["model:1", &format!("{name} was written"), "reset"],
            );
            model.change(|device| {
                assert_eq!(device.route(0, 0), None, "nothing comes in");
                Vec::new()
            });
        });
    }
}

#[test]
fn a_link_that_does_not_come_is_noticed() {
    watched(|model| {
        let error = NtbWindow::open(usual(model, 0), MOMENT).map(drop);
        says(
            &error.unwrap_err(),
            &["model:0", "link is down", "100ms", "other host"],
        );
        let (bridge, ..) = bridge(usual(model, 1)).unwrap();
        model.change(|device| {
            device.write(1, 0xb0d4, 32, 0);
            device.stick(0xb0d4);
            Vec::new()
        });
        says(
            &bridge.enable_link().unwrap_err(),
            &["PPD0 was written 0x9"],
        );
    });
}

/// A host whose bridge is up, and that says by hand what the test wants.
fn dumb(model: &Model) -> Bridge {
    let (bridge, ..) = bridge(usual(model, 1)).unwrap();
    bridge.enable_link().unwrap();
    bridge
}

/// Why the window does not open, once the link is up, which can take a busy machine longer than a moment.
fn open_in_vain(model: &Model) -> NtbError {
    let start = std::time::Instant::now();
    loop {
        let error = NtbWindow::open(usual(model, 0), MOMENT).map(drop);
        let error = error.unwrap_err();
        if !matches!(error, NtbError::LinkDown { .. }) || start.elapsed() > PATIENCE {
            return error;
        }
    }
}

#[test]
fn a_host_that_never_answers_is_noticed() {
    watched(|model| {
        let _dumb = dumb(model);
        says(
            &open_in_vain(model),
            &[
                "model:0",
                "link is up",
                "not said anything",
                "start Crosslane",
            ],
        );
    });
}

/// What a driver of another life has left behind is nobody's word.
#[test]
fn what_an_earlier_driver_has_said_means_nothing() {
    watched(|model| {
        drop(windows(model));
        let _dumb = dumb(model);
        let error = open_in_vain(model);
        assert!(matches!(error, NtbError::Silent { .. }), "{error}");
    });
}

/// Says what it likes, and answers as it should.
fn speak(dumb: &Bridge, version: u32, bytes: u32) {
    for (number, word) in [(0, 0x544e_4c58), (1, version), (2, bytes), (3, 0), (4, 77)] {
        dumb.set_peer_scratchpad(number, word);
    }
    let start = std::time::Instant::now();
    while dumb.scratchpad(4) == 0 && start.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    dumb.set_peer_scratchpad(5, dumb.scratchpad(4));
}

#[test]
fn a_host_of_another_version_or_size_is_refused() {
    for (version, bytes, words) in [
        (9, 1 << 16, ["speaks version 9", "this one 1"]),
        (1, 12_288, ["lends 12288 bytes", "power of two"]),
        (1, 4096, ["lends 4096 bytes", "at least 8192"]),
    ] {
        watched(move |model| {
            let dumb = dumb(model);
            let parts = usual(model, 0);
            let open = std::thread::spawn(move || NtbWindow::open(parts, PATIENCE).map(drop));
            dumb.wait_for_link(PATIENCE).unwrap();
            speak(&dumb, version, bytes);
            says(&open.join().unwrap().unwrap_err(), &words);
        });
    }
}

#[test]
fn a_host_that_begins_anew_is_noticed_and_met_again() {
    watched(|model| {
        let [first, second] = windows(model);
        let met = second.met();
        drop(second);
        assert!(matches!(first.check(), Err(NtbError::LinkDown { .. })));
        let second = usual(model, 1);
        let second = std::thread::spawn(move || NtbWindow::open(second, PATIENCE).unwrap());
        // The link comes up again by itself; whoever is there now is another.
        first.bridge().wait_for_link(PATIENCE).unwrap();
        let start = std::time::Instant::now();
        let error = loop {
            assert!(start.elapsed() < PATIENCE, "not noticed");
            match first.check() {
                Err(error) => break error,
                Ok(()) => std::thread::yield_now(),
            }
        };
        says(
            &error,
            &["begun anew", &format!("{:#x}", met.epoch), "again"],
        );
        first.meet_again(PATIENCE).unwrap();
        let second = second.join().unwrap();
        assert_eq!(first.met().their_epoch, second.met().epoch);
        first.check().unwrap();
        second.check().unwrap();
        // Once met, a host may not come back with less.
        drop(second);
        let third = parts(model, Setup::of(1, LENT / 2));
        let third = std::thread::spawn(move || NtbWindow::open(third, PATIENCE));
        says(
            &first.meet_again(PATIENCE).unwrap_err(),
            &["lends 32768", "65536"],
        );
        third.join().unwrap().unwrap();
    });
}
