//! The committed module says what the native model says, bit for bit.

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
                for what in 0..2 {
                    let native = api::link_gbps(generation, lanes, mps, mrrs, what);
                    same(
                        wasm.call("crosslane_link_gbps", (generation, lanes, mps, mrrs, what)),
                        native,
                        "link",
                    );
                }
                for bytes in [0, 1, 63, 64, 65, 256, 257, 1500, 4096] {
                    for mix in 0..4 {
                        let p = (generation, lanes, mps, mrrs, mix, bytes);
                        let native = api::transfer_gbps(p.0, p.1, p.2, p.3, p.4, p.5);
                        same(wasm.call("crosslane_transfer_gbps", p), native, "transfer");
                    }
                    for design in 0..6 {
                        let p = (generation, lanes, mps, mrrs, design, bytes);
                        let native = api::nic_gbps(p.0, p.1, p.2, p.3, p.4, p.5);
                        same(wasm.call("crosslane_nic_gbps", p), native, "nic");
                    }
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
