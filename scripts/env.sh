# Sourced by the other scripts: where things are.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
cargo_bin=${CARGO_HOME:-$HOME/.cargo}/bin
# A toolchain of the official installer goes before one of the distribution.
if [ -x "$cargo_bin/cargo" ]; then PATH=$cargo_bin:$PATH; fi
bin=${CARGO_TARGET_DIR:-target}/release
export PATH

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Is version $1 at least $2?
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
