#!/bin/bash
# Runs scenarios and tests of the kernel on other kernels under QEMU: see docs/kernels.md and `scripts/kernels.sh --help`.
set -eu
"$(dirname "$0")/setup.sh" kernels
. "$(dirname "$0")/env.sh"

say "building"
cargo build --release --locked -p signalboxd -p signalbox
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
