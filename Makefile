# The two commands of the README. Everything else: `cargo xtask --help`.

.PHONY: demo test tidy

# Not quietly: on a fresh machine this compiles for a minute.
demo: compiler
	cargo run --package xtask -- demo

test: compiler
	cargo xtask test

tidy: compiler
	cargo xtask tidy

# Rust links with the system's C compiler, which a bare Debian lacks.
.PHONY: compiler
compiler:
	@command -v cc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q gcc libc6-dev; } || \
	  { echo "no C compiler: run as root: apt-get install gcc libc6-dev" >&2; exit 1; }
