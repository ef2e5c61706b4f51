# The commands of the README. Everything else: `cargo xtask --help`.

.PHONY: demo test tidy install uninstall

# Not quietly: on a fresh machine this compiles for a minute.
demo: compiler
	cargo run --package xtask -- demo

test: compiler
	cargo xtask test

tidy: compiler
	cargo xtask tidy

PREFIX ?= /usr/local
CARGO_TARGET_DIR ?= target

# What `cargo build --release --workspace` has built, and without cargo, which root may not have.
# `cargo xtask install --help` lists it.
install uninstall: $(CARGO_TARGET_DIR)/release/xtask
	CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" $< $@ --prefix "$(PREFIX)"$(if $(DESTDIR), --destdir "$(DESTDIR)")

$(CARGO_TARGET_DIR)/release/xtask:
	@echo "build first: cargo build --release --workspace" >&2; exit 1

# Rust links with the system's C compiler, which a bare Debian lacks.
.PHONY: compiler
compiler:
	@command -v cc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q gcc libc6-dev; } || \
	  { echo "no C compiler: run as root: apt-get install gcc libc6-dev" >&2; exit 1; }
