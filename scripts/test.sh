#!/bin/bash
# All checks and tests, in one list. `test.sh lint` stops before anything is run.
# Each step prints how long it took; the last line counts what passed and failed.
set -u
"$(dirname "$0")/setup.sh" test || exit 1
. "$(dirname "$0")/env.sh"

passed=0
failed=0
broken=()
unsteady=()
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# A step that has counted its failures by name returns 2.
step() { # name, command...
    local name=$1 start=$SECONDS status
    shift
    say "$name"
    "$@"
    status=$?
    if [ $status = 0 ]; then
        echo "    ok, $((SECONDS - start)) s"
        return
    fi
    echo "    FAILED, $((SECONDS - start)) s"
    if [ $status != 2 ]; then
        failed=$((failed + 1))
        broken+=("$name")
    fi
}

finish() {
    echo
    if [ ${#unsteady[@]} -gt 0 ]; then
        printf 'failed at first, passed at the second run: %s\n' "${unsteady[@]}"
    fi
    if [ ${#broken[@]} -gt 0 ]; then
        printf 'broken: %s\n' "${broken[@]}"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
}

# The same random cases in each run: a run that fails, fails again. Fuzzing looks for new cases (`make fuzz`).
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-5971}

# Tests on the real kernel need root: they make network namespaces.
features=()
if [ "$(id -u)" = 0 ]; then
    features=(--features signalbox-linux/namespace-tests,signalbox-lab/namespace-tests,signalboxd/namespace-tests)
else
    echo "skipped: namespace tests (they need root)"
fi

# Built with the features of the whole workspace: for its package alone, cargo compiles ten crates that the tests use a second time.
xtask() {
    cargo build --quiet --workspace --locked --bin xtask && "${CARGO_TARGET_DIR:-target}/debug/xtask" "$@"
}

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked; }

# Prints one line for each test program that has tests, and everything that failed.
digest() {
    awk '
        /^ +(Running|Doc-tests)/ { sub(/^ +(Running )?/, ""); sub(/ \(.*/, ""); program = $0 }
        /^test result: ok\. 0 passed; 0 failed; 0 ignored/ { next }
        /^test result:/ { sub(/^test result: /, ""); sub(/; 0 measured.*finished in /, ", "); print "    " program ": " $0 }
        /^skipped|^test .* FAILED$|^error/ { print "    " $0 }
        { fflush() }'
}

# Runs some of the test programs, and keeps what they print.
run_group() { # name, arguments of cargo test...
    local name=$1
    shift
    cargo test --workspace --locked --no-fail-fast "${features[@]}" "$@" -- --show-output 2>&1 | tee "$logs/$name" | digest
    return "${PIPESTATUS[0]}"
}

# The tests of the kernel mostly wait for it, so their programs run beside each other; each has network namespaces of its own.
run_kernel_tests() {
    local programs place program running=() status=0
    programs=$(kernel_programs "${features[@]}")
    if [ -z "$programs" ]; then
        echo "    error: cargo names no program with tests of the kernel"
        return 1
    fi
    while read -r place program; do
        {
            (
                cd "$place" || exit 1
                echo "     Running $(basename "$place")/tests/namespace/main.rs"
                exec "$program" --show-output
            ) 2>&1 | tee "$logs/kernel.$(basename "$place")" | digest
            exit "${PIPESTATUS[0]}"
        } &
        running+=($!)
    done <<<"$programs"
    for program in "${running[@]}"; do
        wait "$program" || status=1
    done
    return $status
}

run_tests() {
    # The lab runs the programs that people run.
    SIGNALBOX_BIN=$(cd "$bin" && pwd)
    export SIGNALBOX_BIN
    # A property that shrinks its case panics hundreds of times; their backtraces would bury the message.
    export RUST_BACKTRACE=0
    local status=0 kernel= counts
    # Campaigns compute, so they run at the same time as the tests of the kernel.
    if [ ${#features[@]} -gt 0 ]; then
        run_kernel_tests &
        kernel=$!
    fi
    run_group programs --lib --bins --test '[!n]*' --test 'n[!a]*' || status=1
    run_group documentation --doc || status=1
    if [ -n "$kernel" ]; then wait "$kernel" || status=1; fi
    # A test that fails is counted by name; a build that fails, or a program that dies, counts as the step.
    counts=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$logs"/* |
        awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }')
    passed=$((passed + ${counts% *}))
    if [ "$status" = 0 ]; then return 0; fi
    awk '/^failures:$/ { show = 1 } /^test result/ { show = 0 } show || /panicked at|^error/' "$logs"/*
    if [ "${counts#* }" = 0 ]; then return 1; fi
    failed=$((failed + ${counts#* }))
    broken+=("tests")
    return 2
}

# Requests at random that policies judge: more than the 1,000 draws among the tests.
oracle() {
    SIGNALBOX_SEEDS=${SIGNALBOX_SEEDS:-100000} cargo test --quiet --workspace --locked "${features[@]}" --test oracle policy::
}

# Scenarios mostly wait, so eight run at a time (SIDE_BY_SIDE); each has namespaces of its own. They measure times on a machine that
# others may use too: one that fails runs a second time, alone. Both results are printed, and the end names it.
# Each has its own list of namespaces and of labs: one of the same name that stands on this machine is not in its way.
private() { # command...
    if [ "$(id -u)" != 0 ]; then "$@"; return; fi
    # shellcheck disable=SC2016 # expanded in the other mount namespace
    unshare --mount --propagation private bash -ec '
        for place in /run/netns /run/signalbox; do
            mkdir -p "$place"
            mount -t tmpfs -o mode=755 labs "$place"
        done
        exec "$@"' _ "$@"
}
export -f private

run_scenario() { # name, folder of the results
    local start=$SECONDS status=FAILED
    if private "$bin/signalbox" lab run "$1" --json >"$2/$1" 2>&1; then status=ok; fi
    [ $status = ok ] || touch "$2/$1.failed"
    echo "    $1 $status, $((SECONDS - start)) s"
    [ $status = ok ]
}
export -f run_scenario
export bin

run_scenarios() { # names...
    local results name status=0
    results=$(mktemp -d)
    printf '%s\n' "$@" | xargs -P "${SIDE_BY_SIDE:-8}" -I '{}' bash -c 'run_scenario "$1" "$2"' _ '{}' "$results"
    for name in "$@"; do
        if [ ! -e "$results/$name.failed" ]; then
            passed=$((passed + 1))
            continue
        fi
        say "$name failed at first; a second run, alone"
        cat "$results/$name"
        if run_scenario "$name" "$results"; then
            passed=$((passed + 1))
            unsteady+=("scenario $name")
        else
            cat "$results/$name"
            failed=$((failed + 1))
            broken+=("scenario $name")
            status=2
        fi
    done
    rm -rf "$results"
    return $status
}

# The fuzz targets build with the stable compiler; only running them needs libFuzzer, which this variable leaves out.
fuzz_targets() {
    CUSTOM_LIBFUZZER_PATH=/nonexistent/libFuzzer.a CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target} \
        cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
}

step "format" cargo fmt --all --check
step "commit subjects" scripts/commits.sh
step "clippy" cargo clippy --quiet --workspace --all-targets --locked "${features[@]}" -- -D warnings
step "arrows between crates" xtask deps
step "gRPC API compared with the released one" xtask api
step "libraries for a registry" xtask crates
step "skeleton of the engines" xtask skeleton
step "licences and sources of dependencies" xtask licences
step "conformance tables" xtask conformance --check
step "mutations" xtask mutate --check
step "schemas of the command's JSON" xtask schema --check
step "documentation" documentation
step "generated code of the API" scripts/generated.sh check
step "generated code of the example" examples/pathping/generate.sh --check
step "eBPF object" scripts/bpf.sh check
step "release script" scripts/release-test.sh
if [ "${1:-}" = lint ]; then finish; fi

step "fuzz targets build" fuzz_targets
step "oldest compiler, Rust $msrv" scripts/msrv.sh --quick
step "build the programs" cargo build --quiet --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
step "instructions against the record" "$bin/signalbox" bench instructions --compare scripts/instructions.tsv
step "metrics" scripts/metrics.sh "$bin"
step "RSVP messages of scapy" /usr/bin/python3 -W ignore scripts/scapy_rsvp.py "$bin/signalbox"
step "Wireshark dissectors" scripts/wireshark.sh --short
step "build the tests" cargo test --quiet --workspace --locked --no-run "${features[@]}"
step "tests" run_tests
step "oracle" oracle
scenarios=$("$bin/signalbox" lab list --names) || scenarios=
step "list of scenarios" [ -n "$scenarios" ]
# shellcheck disable=SC2086 # one word for each name
step "scenarios" run_scenarios $scenarios
finish
