#!/bin/bash
# A short run of every fuzz target; for a long one: SECONDS_EACH=600 make fuzz.
set -eu
"$(dirname "$0")/setup.sh" fuzz
. "$(dirname "$0")/env.sh"

cargo fuzz --version >/dev/null 2>&1 || { say "installing cargo-fuzz"; cargo install --locked cargo-fuzz; }
# libFuzzer's coverage needs unstable compiler flags; this lets the stable compiler take them.
export RUSTC_BOOTSTRAP=1
# The engines have no unsafe code, in which a sanitizer could find something, and run several times as fast without. Only TLS
# contains code in C.
sanitizer() { if [ "$1" = tls_octets ]; then echo address; else echo none; fi; }
targets=$(cargo fuzz list)
[ -n "$targets" ] || die "no fuzz targets"
for target in $targets; do
    say "fuzz $target, ${SECONDS_EACH:-10} s"
    # What a run finds goes into a folder that git ignores; the seeds stay as they are.
    mkdir -p "fuzz/found/$target"
    folders=("fuzz/found/$target")
    # Some targets make their inputs from random octets alone.
    if [ -d "fuzz/corpus/$target" ]; then folders+=("fuzz/corpus/$target"); fi
    cargo fuzz run --sanitizer "$(sanitizer "$target")" "$target" "${folders[@]}" -- -max_total_time="${SECONDS_EACH:-10}" -verbosity=0 -print_final_stats=1
done
