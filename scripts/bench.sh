#!/bin/bash
# Measures the cost of a session and of a message. docs/performance.md has the figures of one machine.
set -eu
"$(dirname "$0")/setup.sh"
. "$(dirname "$0")/env.sh"

cargo build --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
failed=()
# An invalid figure of one benchmark leaves out no other one.
bench() { # what, words of the command...
    say "$1"
    "$bin/signalbox" bench "${@:2}" || failed+=("${*:2}")
}
bench "the engine in memory" engine gist
bench "RSVP in memory" engine rsvp
bench "RSVP in memory: refreshes by MESSAGE_IDs" engine rsvp-refresh
bench "the share of each routine" profile
bench "a node on the wire, and a bare forwarder" forward gist
[ ${#failed[@]} = 0 ] || die "failed:$(printf ' [%s]' "${failed[@]}")"
