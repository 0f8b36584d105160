#!/bin/bash
# Builds with the oldest compiler that Cargo.toml promises: libraries and programs, and with --all-targets the tests too.
# `msrv.sh --quick` is the step of `make test`: where rustup cannot provide the compiler, it says so and succeeds.
set -eu
if [ "${1:-}" != --quick ]; then "$(dirname "$0")/setup.sh"; fi
. "$(dirname "$0")/env.sh"

targets=(--all-targets)
unavailable() { die "$1"; }
if [ "${1:-}" = --quick ]; then
    targets=()
    unavailable() { echo "    skipped: $1"; exit 0; }
fi
command -v rustup >/dev/null || unavailable "rustup is needed to fetch Rust $msrv (https://rustup.rs)"
if ! rustup run "$msrv" rustc --version >/dev/null 2>&1; then
    timeout 300 rustup toolchain install "$msrv" --profile minimal >/dev/null 2>&1 ||
        unavailable "rustup cannot fetch Rust $msrv"
fi
# Incremental data would be written once and never used again.
CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv \
    cargo "+$msrv" check --quiet --workspace --locked "${targets[@]}"
