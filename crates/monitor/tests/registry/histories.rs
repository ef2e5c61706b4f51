//! Random histories, and those that the fuzzer has found worth keeping.

use std::path::Path;

use proptest::prelude::*;

use crate::support::event::EVENT_BYTES;
use crate::support::model::replay;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_history_is_as_in_the_model(
        bytes in proptest::collection::vec(any::<u8>(), 0..120 * EVENT_BYTES),
    ) {
        replay(&bytes);
    }
}

#[test]
fn inputs_of_the_fuzzer_replay() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/registry_model");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        replay(&std::fs::read(path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}
