#!/bin/bash
# Licences, sources, advisories and duplicates of all dependencies (deny.toml).
set -eu
"$(dirname "$0")/setup.sh"
. "$(dirname "$0")/env.sh"

cargo deny --version >/dev/null 2>&1 || { say "installing cargo-deny"; cargo install --locked cargo-deny; }
cargo deny check
