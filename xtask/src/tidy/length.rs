//! A ratchet on long files and functions: none above the limit, but for a list that only shrinks.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Violation;
use super::allowed::Allowed;
use super::source::Source;

/// Everything that is longer than it may be, and every entry of the lists that could be lower.
pub fn check(sources: &[Source], allowed: &Allowed) -> Vec<Violation> {
    let files: BTreeMap<String, usize> = sources
        .iter()
        .map(|source| (source.path.clone(), source.lines))
        .collect();
    let functions: BTreeMap<String, usize> = sources.iter().flat_map(functions_of).collect();
    let mut violations = ratchet(&files, allowed.limits.file_lines, &allowed.long_files);
    violations.extend(ratchet(
        &functions,
        allowed.limits.function_lines,
        &allowed.long_functions,
    ));
    violations
}

/// Compare `found` with the limit, and with the list of those that may exceed it.
fn ratchet(
    found: &BTreeMap<String, usize>,
    limit: usize,
    exceptions: &BTreeMap<String, usize>,
) -> Vec<Violation> {
    let too_long = found.iter().filter_map(|(name, &lines)| {
        let most = exceptions.get(name).copied().unwrap_or(limit);
        (lines > most).then(|| {
            Violation::new(
                name,
                format!("has {lines} lines, {most} are allowed: split it"),
            )
        })
    });
    let loose = exceptions.iter().filter_map(|(name, &most)| {
        let lines = found.get(name).copied().unwrap_or(0);
        let advice = match lines {
            _ if lines <= limit => format!("has {lines} lines now: take it off the list"),
            _ if lines < most => format!("has {lines} lines now: lower its entry from {most}"),
            _ => return None,
        };
        Some(Violation::new(name, format!("{advice} in xtask/tidy.toml")))
    });
    too_long.chain(loose).collect()
}

/// The functions of a file as `path::name`, each with its lines from signature to closing brace.
/// Of several with one name the longest counts.
fn functions_of(source: &Source) -> BTreeMap<String, usize> {
    let mut functions = Functions {
        path: &source.path,
        lines: BTreeMap::new(),
    };
    functions.visit_file(&source.syntax);
    functions.lines
}

struct Functions<'a> {
    path: &'a str,
    lines: BTreeMap<String, usize>,
}

impl Functions<'_> {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let last = block.span().end().line;
        let lines = self
            .lines
            .entry(format!("{}::{}", self.path, signature.ident))
            .or_default();
        *lines = (*lines).max(last - first + 1);
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> BTreeMap<String, usize> {
        functions_of(&Source::parse("a.rs", text).unwrap())
    }

    fn table(list: &[(&str, usize)]) -> BTreeMap<String, usize> {
        list.iter()
            .map(|(name, lines)| ((*name).to_owned(), *lines))
            .collect()
    }

    #[test]
    fn a_function_counts_from_its_signature_to_its_brace() {
        let text = "/// Doc.\n#[inline]\nfn f(\n  a: u8,\n) -> u8 {\n  a\n}\n";
        assert_eq!(lines_of(text), table(&[("a.rs::f", 5)]));
    }

    #[test]
    fn methods_defaults_and_nested_functions_count() {
        let text = "impl A { fn m() {} }\ntrait T { fn d() {} fn n(); }\nfn o() {\n fn i() {}\n}";
        let expected = table(&[
            ("a.rs::d", 1),
            ("a.rs::i", 1),
            ("a.rs::m", 1),
            ("a.rs::o", 3),
        ]);
        assert_eq!(lines_of(text), expected);
    }

    #[test]
    fn what_is_too_long_is_caught() {
        let violations = ratchet(&table(&[("a.rs", 601), ("b.rs", 600)]), 600, &table(&[]));
        assert_eq!(
            violations,
            [Violation::new(
                "a.rs",
                "has 601 lines, 600 are allowed: split it"
            )]
        );
    }

    #[test]
    fn an_exception_holds_up_to_its_number_only() {
        let exceptions = table(&[("a.rs", 700)]);
        assert_eq!(ratchet(&table(&[("a.rs", 700)]), 600, &exceptions), []);
        assert_eq!(ratchet(&table(&[("a.rs", 701)]), 600, &exceptions).len(), 1);
    }

    #[test]
    fn the_list_must_follow_what_became_shorter() {
        let exceptions = table(&[("a.rs", 700)]);
        for lines in [[("a.rs", 650)], [("a.rs", 500)], [("gone.rs", 1)]] {
            assert_eq!(
                ratchet(&table(&lines), 600, &exceptions).len(),
                1,
                "{lines:?}"
            );
        }
    }
}
