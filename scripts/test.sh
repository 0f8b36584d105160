#!/bin/bash
# Everything that is checked, in one list; `test.sh lint` stops before anything is run.
# Each step says how long it took; the last line sums up.
set -u
"$(dirname "$0")/setup.sh" test || exit 1
. "$(dirname "$0")/env.sh"

passed=0
failed=0
broken=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

step() { # name, command...
    local name=$1 start=$SECONDS
    shift
    say "$name"
    if "$@"; then
        echo "    ok, $((SECONDS - start)) s"
    else
        echo "    FAILED, $((SECONDS - start)) s"
        failed=$((failed + 1))
        broken+=("$name")
    fi
}

finish() {
    echo
    if [ ${#broken[@]} -gt 0 ]; then
        printf 'broken: %s\n' "${broken[@]}"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
}

# Tests on the real kernel want root: they make network namespaces.
features=()
if [ "$(id -u)" = 0 ]; then
    features=(--features signalbox-linux/namespace-tests,signalbox-lab/namespace-tests)
else
    echo "skipped: namespace tests (they need root)"
fi

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked; }

run_tests() {
    cargo test --workspace --locked --no-fail-fast "${features[@]}" -- --show-output 2>&1 | tee "$log" |
        grep --line-buffered -E '^( +Running|test result:|test .* FAILED|skipped|error|---- |thread |failures:|  left:| right:)|panicked at'
    local status=${PIPESTATUS[0]} counts
    # A test that fails is counted by name; a build that fails counts as the step.
    counts=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$log" |
        awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }')
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
    if [ "$status" != 0 ] && [ "${counts#* }" != 0 ]; then
        broken+=("cargo test")
        return 0
    fi
    return "$status"
}

scenario() {
    local name=$1
    if "$bin/signalbox" lab run "$name" --json >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        cat "$log"
        return 1
    fi
}

step "format" cargo fmt --all --check
step "clippy" cargo clippy --quiet --workspace --all-targets --locked "${features[@]}" -- -D warnings
step "arrows between crates" cargo xtask deps
step "conformance tables" cargo xtask conformance --check
step "documentation" documentation
if [ "${1:-}" = lint ]; then finish; fi

step "build the tests" cargo test --quiet --workspace --locked --no-run "${features[@]}"
step "tests" run_tests
step "build the programs" cargo build --quiet --release --locked -p signalboxd -p signalbox
for name in quickstart gist-dmode-v6 gist-bypass gist-loss; do
    step "scenario $name" scenario "$name"
done
finish
