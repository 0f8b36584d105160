#!/bin/bash
# Packs each library that is published, as a registry takes it, and compiles it from its archive without the rest of the tree:
# target/crates/package/*.crate. usage: crates.sh [--quick]. With --quick nothing is compiled.
# What is in the tree is packed, committed or not. Cargo asks its registry which versions of dependencies there are.
set -eu
options=(--all-features --allow-dirty)
case ${1:-} in
"") ;;
--quick) options+=(--no-verify) ;;
*) echo "usage: crates.sh [--quick]" >&2; exit 2 ;;
esac
"$(dirname "$0")/setup.sh"
. "$(dirname "$0")/env.sh"

# An older one looks for libraries of ours in the registry while they are packed.
cargo_version=$(cargo --version | cut -d ' ' -f 2)
at_least "$cargo_version" 1.90.0 || die "cargo is $cargo_version: libraries that need each other are packed by 1.90.0 or newer"

cargo xtask crates
names=$(cargo xtask crates --names)
for name in $names; do options+=(--package "$name"); done
# Each is compiled once, to see whether it does.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/crates CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
cargo package "${options[@]}"
