#!/bin/bash
# Runs the tests of the kernel and all scenarios again and again from one build: what fails by chance fails in one of the rounds.
# usage: rounds.sh COUNT [BUSY]. With BUSY so many processors are busy with something else meanwhile. Nothing gets a second run.
# SIDE_BY_SIDE=N: so many scenarios run at a time, 8 without it, as in make test. BESIDE=WORDS: what else keeps processors busy, for the log.
# The log goes to target/rounds.log, a line for each round and for each failure; it names the build by the hash of its programs.
# target/rounds.times has how long each scenario took: in the next round the longest begins first.
set -u
count=${1:?usage: rounds.sh COUNT [BUSY]}
busy=${2:-0}
"$(dirname "$0")/setup.sh" test || exit 1
. "$(dirname "$0")/env.sh"
[ "$(id -u)" = 0 ] || die "network namespaces need root"

# As CI builds them, so that the programs are the same.
export CARGO_INCREMENTAL=0
features=signalbox-linux/namespace-tests,signalbox-lab/namespace-tests,signalboxd/namespace-tests
say "building"
cargo build --release --quiet --locked -p signalboxd -p signalbox -p signalbox-lab-command || exit 1
programs=$(kernel_programs --features "$features") || exit 1
[ -n "$programs" ] || die "cargo names no program with tests of the kernel"
SIGNALBOX_BIN=$(cd "$bin" && pwd)
export SIGNALBOX_BIN RUST_BACKTRACE=0
log=target/rounds.log
build=$(cut -d ' ' -f 2 <<<"$programs" | xargs cat "$bin/signalboxd" "$bin/signalbox" "$bin/signalbox-lab" | sha256sum | cut -c 1-12)
names=$("$bin/signalbox" lab list --names)

loops=()
trap 'for loop in "${loops[@]}"; do kill "$loop"; done' EXIT
for ((n = 0; n < busy; n++)); do
    sh -c 'while :; do :; done' &
    loops+=($!)
done

note() { echo "$*" | tee -a "$log"; }

times=$PWD/target/rounds.times
scenario() {
    local output start=$SECONDS status=0
    output=$("$SIGNALBOX_BIN/signalbox" lab run "$1" --json 2>&1) || status=$?
    echo "$((SECONDS - start)) $1" >>"$times"
    [ $status = 0 ] || printf 'FAILED %s\n%s\n' "$1" "$output"
}
export -f scenario
export times

# The scenarios of which no time is known come before all others.
longest_first() {
    awk '{ print 1000000, $1 }' <<<"$names" | cat - <(cat "$times" 2>/dev/null) |
        awk '{ took[$2] = $1 } END { for (name in took) print took[name], name }' | sort -rn | cut -d ' ' -f 2 |
        grep -Fx -f <(echo "$names")
}

failures=0
for ((round = 1; round <= count; round++)); do
    start=$SECONDS
    results=$(mktemp -d)
    tests=()
    while read -r place program; do
        (cd "$place" && exec "$program") >"$results/kernel.${#tests[@]}" 2>&1 &
        tests+=($!)
    done <<<"$programs"
    # Some tests of the lab run scenarios, whose networks have names.
    for ((n = 0; n < ${#tests[@]}; n++)); do
        case $(sed -n "$((n + 1))p" <<<"$programs") in
        */crates/lab\ *) wait "${tests[n]}" || fault="the tests of the kernel ended with $?" ;;
        esac
    done
    longest_first | xargs -P "${SIDE_BY_SIDE:-8}" -I '{}' bash -c 'scenario "$1"' _ '{}' >"$results/scenarios"
    for one in "${tests[@]}"; do
        wait "$one" || fault="the tests of the kernel ended with $?"
    done
    passed=$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$results"/kernel.* | awk '{ all += $1 } END { print all + 0 }')
    broken=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$results"/kernel.* | grep -vx helper::process; sed -n 's/^FAILED /scenario /p' "$results/scenarios")
    # A program that died has no names.
    broken=${broken:-${fault:-}}
    fault=
    number=$(grep -c . <<<"$broken")
    failures=$((failures + number))
    note "$(date -u +%FT%TZ) build $build of $(git rev-parse --short HEAD), ${BESIDE:-$busy busy}: $passed tests of the kernel passed," \
        "$(wc -w <<<"$names") scenarios, $number failed, $((SECONDS - start)) s, load $(cut -d ' ' -f 1 /proc/loadavg)"
    if [ "$number" != 0 ]; then
        note "$broken"
        cat "$results"/kernel.* "$results/scenarios" >"target/rounds.$(date +%s).failed"
    fi
    rm -rf "$results"
done
[ "$failures" = 0 ]
