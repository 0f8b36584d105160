#!/bin/bash
# Runs scenarios on other kernels under QEMU: see docs/kernels.md and `scripts/kernels.sh --help`.
set -eu
"$(dirname "$0")/setup.sh" kernels
. "$(dirname "$0")/env.sh"

say "building"
cargo build --release --locked -p signalboxd -p signalbox
PROGRAMS=$bin exec /usr/bin/python3 scripts/kernels/kernels.py "$@"
