//! Unsafe code stands only where the design allows it, and is forbidden by the compiler elsewhere.

use proc_macro2::{TokenStream, TokenTree};

use super::Violation;
use super::allowed::UnsafePlace;
use super::graph::Package;
use super::source::Source;

/// Every file with the keyword `unsafe` outside the places, and every place with too many.
///
/// Tokens are counted, not syntax, so that the bodies of macros count too.
pub fn check(sources: &[Source], places: &[UnsafePlace]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut counts = vec![0; places.len()];
    for source in sources {
        let count = count_unsafe(source.tokens.clone());
        match places.iter().position(|place| place.covers(&source.path)) {
            Some(index) => counts[index] += count,
            None if count > 0 => violations.push(Violation::new(
                &source.path,
                format!("has `unsafe` {count} times, and is no place for it (xtask/tidy.toml)"),
            )),
            None => {}
        }
    }
    for (place, count) in places.iter().zip(counts) {
        if place.why.is_empty() {
            violations.push(Violation::new(
                &place.path,
                "needs a `why` in xtask/tidy.toml",
            ));
        }
        if let Some(most) = place.at_most.filter(|&most| count > most) {
            violations.push(Violation::new(
                &place.path,
                format!("has `unsafe` {count} times, {most} are allowed: move it further down"),
            ));
        }
    }
    violations
}

/// Every library and program without `#![forbid(unsafe_code)]` that is no place for unsafe code.
pub fn check_forbidden_at_roots(
    sources: &[Source],
    packages: &[Package],
    places: &[UnsafePlace],
) -> Vec<Violation> {
    let root = crate::workspace_root();
    packages
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| {
            target
                .kind
                .iter()
                .all(|kind| !matches!(kind.as_str(), "test" | "bench"))
        })
        .filter_map(|target| target.src_path.strip_prefix(root).ok()?.to_str())
        .filter(|path| !holds_a_place(path, places))
        .filter_map(|path| sources.iter().find(|source| source.path == path))
        .filter(|source| !forbids_unsafe(&source.syntax))
        .map(|source| Violation::new(&source.path, "lacks #![forbid(unsafe_code)]"))
        .collect()
}

/// Whether unsafe code is allowed in the crate root at `path` or in a file below its folder.
fn holds_a_place(path: &str, places: &[UnsafePlace]) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    places
        .iter()
        .any(|place| place.covers(path) || std::path::Path::new(&place.path).starts_with(folder))
}

fn forbids_unsafe(file: &syn::File) -> bool {
    file.attrs.iter().any(|attribute| {
        attribute.path().is_ident("forbid")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|lint| lint.is_ident("unsafe_code"))
    })
}

fn count_unsafe(tokens: TokenStream) -> usize {
    tokens
        .into_iter()
        .map(|tree| match tree {
            TokenTree::Group(group) => count_unsafe(group.stream()),
            TokenTree::Ident(ident) => usize::from(ident == "unsafe"),
            TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::graph::Target;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(path, text).unwrap()
    }

    fn place(path: &str, at_most: Option<usize>) -> UnsafePlace {
        UnsafePlace {
            path: path.into(),
            at_most,
            why: "test".into(),
        }
    }

    fn root(path: &str, kind: &str) -> Package {
        let src_path = crate::workspace_root().join(path);
        Package {
            name: "a".into(),
            manifest_path: Default::default(),
            dependencies: Vec::new(),
            targets: vec![Target {
                kind: vec![kind.into()],
                src_path,
            }],
        }
    }

    #[test]
    fn unsafe_outside_its_places_is_caught() {
        let inside = source("crates/sys/src/a.rs", "fn f() { unsafe { g() } }");
        let outside = source("crates/ctl/src/a.rs", "fn f() { unsafe { g() } }");
        let violations = check(&[inside, outside], &[place("crates/sys", None)]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].place, "crates/ctl/src/a.rs");
    }

    #[test]
    fn unsafe_in_a_macro_is_caught_and_in_prose_is_not() {
        let macro_body = source("a.rs", "macro_rules! m { () => { unsafe { g() } } }");
        let prose = source(
            "b.rs",
            "//! unsafe\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\";",
        );
        let violations = check(&[macro_body, prose], &[]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].place, "a.rs");
    }

    #[test]
    fn more_than_little_is_caught() {
        let text = "fn f() { unsafe { g() }; unsafe { g() } }";
        let sources = [source("crates/stream/src/a.rs", text)];
        assert_eq!(check(&sources, &[place("crates/stream", Some(2))]), []);
        assert_eq!(check(&sources, &[place("crates/stream", Some(1))]).len(), 1);
    }

    #[test]
    fn a_place_without_a_reason_is_caught() {
        let place = UnsafePlace {
            why: String::new(),
            ..place("crates/sys", None)
        };
        assert_eq!(check(&[], &[place]).len(), 1);
    }

    #[test]
    fn a_root_that_does_not_forbid_unsafe_is_caught() {
        let path = "crates/a/src/lib.rs";
        let plain = [source(path, "//! A.")];
        let forbidding = [source(path, "//! A.\n#![forbid(unsafe_code)]")];
        let packages = [root(path, "lib")];
        assert_eq!(check_forbidden_at_roots(&plain, &packages, &[]).len(), 1);
        assert_eq!(check_forbidden_at_roots(&forbidding, &packages, &[]), []);
        let one_file = [place("crates/a/src/c.rs", None)];
        assert_eq!(check_forbidden_at_roots(&plain, &packages, &one_file), []);
    }
}
