//! The committed module says what the native model says, bit for bit.

use crosslane_pcie::model::{AddressWidth, LinkSpec};
use crosslane_pcie_wasm::{MODEL_WASM, api};
use wasmi::{Engine, Instance, Linker, Module, Store, TypedFunc, WasmParams};

struct Wasm {
    store: Store<()>,
    instance: Instance,
}

impl Wasm {
    fn load() -> Self {
        let engine = Engine::default();
        let module = Module::new(&engine, MODEL_WASM).unwrap();
        let mut store = Store::new(&engine, ());
        // No imports: the page needs to provide nothing.
        let instance = Linker::new(&engine)
            .instantiate_and_start(&mut store, &module)
            .unwrap();
        Self { store, instance }
    }

    fn call<P: WasmParams>(&mut self, name: &str, parameters: P) -> f64 {
        let function: TypedFunc<P, f64> = self.instance.get_typed_func(&self.store, name).unwrap();
        function.call(&mut self.store, parameters).unwrap()
    }
}

#[track_caller]
fn same(wasm: f64, native: f64, what: &str) {
    let equal = wasm.to_bits() == native.to_bits() || (wasm.is_nan() && native.is_nan());
    assert!(
        equal,
        "{what}: {wasm} in model.wasm, {native} natively; run `cargo xtask wasm`"
    );
}

/// The usual rest of a link, and others: 32-bit addresses, ECRC, completions cut at the boundary.
fn rests() -> Vec<u32> {
    let with = |rcb_bytes, address, ecrc, split_at_rcb| {
        api::rest_of(&LinkSpec {
            rcb_bytes,
            address,
            ecrc,
            split_at_rcb,
            ..LinkSpec::default()
        })
    };
    let (short, long) = (AddressWidth::Bits32, AddressWidth::Bits64);
    vec![
        with(64, long, false, false),
        with(128, short, true, false),
        with(256, long, false, true),
        0,
    ]
}

type Link = (u32, u32, u32, u32);

fn compare(wasm: &mut Wasm, (generation, lanes, mps, mrrs): Link, rest: u32) {
    for what in 0..2 {
        let p = (generation, lanes, mps, mrrs, rest, what);
        let native = api::link_gbps(p.0, p.1, p.2, p.3, p.4, p.5);
        same(wasm.call("crosslane_link_gbps", p), native, "link");
    }
    for bytes in [0, 1, 63, 64, 65, 256, 257, 1500, 4096] {
        for mix in 0..4 {
            let p = (generation, lanes, mps, mrrs, rest, mix, bytes);
            let native = api::transfer_gbps(p.0, p.1, p.2, p.3, p.4, p.5, p.6);
            same(wasm.call("crosslane_transfer_gbps", p), native, "transfer");
        }
        for design in 0..6 {
            let p = (generation, lanes, mps, mrrs, rest, design, bytes);
            let native = api::nic_gbps(p.0, p.1, p.2, p.3, p.4, p.5, p.6);
            same(wasm.call("crosslane_nic_gbps", p), native, "nic");
        }
    }
}

#[test]
fn what_no_slider_sets_makes_a_difference() {
    let gbps = |rest| api::transfer_gbps(3, 8, 256, 512, rest, 1, 512);
    let rests = rests();
    assert!(
        gbps(rests[1]) < gbps(rests[0]),
        "ECRC costs 4 bytes of each packet"
    );
    let at_rcb = api::rest_of(&LinkSpec {
        split_at_rcb: true,
        ..LinkSpec::default()
    });
    assert!(
        gbps(at_rcb) < 0.9 * gbps(rests[0]),
        "eight completions instead of two"
    );
    assert!(gbps(0).is_nan(), "a boundary of no bytes");
}

#[test]
fn it_agrees_with_the_native_model() {
    let mut wasm = Wasm::load();
    for generation in 0..=8 {
        for lanes in [1, 2, 3, 4, 8, 16, 32] {
            for (mps, mrrs) in [
                (128, 512),
                (256, 512),
                (512, 512),
                (512, 256),
                (4096, 4096),
                (300, 512),
            ] {
                let link = (generation, lanes, mps, mrrs);
                for rest in rests() {
                    compare(&mut wasm, link, rest);
                }
            }
        }
    }
    for bytes in [0, 1, 64, 1518] {
        same(
            wasm.call("crosslane_ethernet_gbps", (100.0, bytes)),
            api::ethernet_gbps(100.0, bytes),
            "ethernet",
        );
    }
}

#[test]
fn it_is_small_enough_to_embed() {
    assert!(MODEL_WASM.len() < 64 << 10, "{} bytes", MODEL_WASM.len());
}
