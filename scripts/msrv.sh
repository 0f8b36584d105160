#!/bin/bash
# Builds with the oldest compiler that Cargo.toml promises.
set -eu
"$(dirname "$0")/setup.sh"
. "$(dirname "$0")/env.sh"

command -v rustup >/dev/null || die "rustup is needed to fetch Rust $msrv (https://rustup.rs)"
say "Rust $msrv"
rustup toolchain install "$msrv" --profile minimal
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv cargo "+$msrv" check --workspace --all-targets --locked
