# Sourced by the other scripts: paths and helpers.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
cargo_bin=${CARGO_HOME:-$HOME/.cargo}/bin
# A toolchain of the official installer is preferred to one of the distribution.
if [ -x "$cargo_bin/cargo" ]; then PATH=$cargo_bin:$PATH; fi
bin=${CARGO_TARGET_DIR:-target}/release
export PATH

# rust-toolchain.toml asks for the stable toolchain. Where rustup has only another one, the scripts use that, and
# scripts/setup.sh decides whether it is new enough.
if [ -z "${RUSTUP_TOOLCHAIN:-}" ] && command -v rustup >/dev/null &&
    ! RUSTUP_AUTO_INSTALL=0 rustup run stable cargo --version >/dev/null 2>&1; then
    other=$(rustup default 2>/dev/null | cut -d ' ' -f 1)
    if [ -n "$other" ]; then export RUSTUP_TOOLCHAIN=$other; fi
fi

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Is version $1 at least $2?
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The directory of each package with tests of the real kernel, and their program, so that they can run beside each other; cargo runs them
# one after another.
kernel_programs() { # options of cargo test...
    local built
    built=$(cargo test --workspace --locked --test namespace --no-run --message-format json "$@" 2>/dev/null) || return 1
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"executable":"\([^"]*namespace-[^"]*\)".*/\1 \2/p' <<<"$built" | sort -k 2
}
