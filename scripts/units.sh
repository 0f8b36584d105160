#!/bin/bash
# Starts the systemd units under the systemd of Debian's releases, under QEMU: see docs/operation.md and `scripts/units.sh --help`.
set -eu
"$(dirname "$0")/setup.sh" units
. "$(dirname "$0")/env.sh"

[ "$(id -u)" = 0 ] || die "as root: the systems of the virtual machines are installed with their owners and devices"
say "building"
cargo build --release --locked -p signalboxd -p signalbox
PROGRAMS=$bin exec /usr/bin/python3 scripts/kernels/units.py "$@"
