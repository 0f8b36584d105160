#!/bin/bash
# Runs scenarios and tests of the kernel on other kernels under QEMU: see docs/kernels.md and `scripts/kernels.sh --help`.
# SIGNALBOX_BIN: the directory of a release build, which is taken as it is. Tests are then those of the programs that TESTS names, a file
# with what `cargo test --no-run --message-format json` printed; without TESTS there are none.
set -eu
"$(dirname "$0")/setup.sh" kernels
. "$(dirname "$0")/env.sh"

if [ -n "${SIGNALBOX_BIN:-}" ]; then
    [ -x "$SIGNALBOX_BIN/signalbox-lab" ] || die "$SIGNALBOX_BIN has no signalbox-lab"
    PROGRAMS=$SIGNALBOX_BIN exec /usr/bin/python3 scripts/kernels/kernels.py "$@"
fi
say "building"
cargo build --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
case " $* " in
*" --short "*) ;;
*)
    mkdir -p target/kernels
    export TESTS=target/kernels/tests.json
    features=signalbox-linux/namespace-tests,signalbox-lab/namespace-tests,signalboxd/namespace-tests
    cargo test --locked --workspace --features "$features" --test namespace --no-run --message-format json >$TESTS
    ;;
esac
PROGRAMS=$bin exec /usr/bin/python3 scripts/kernels/kernels.py "$@"
