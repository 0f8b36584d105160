#!/bin/bash
# Measures the cost of a session and of a message. docs/performance.md has the figures of one machine.
set -eu
"$(dirname "$0")/setup.sh"
. "$(dirname "$0")/env.sh"

cargo build --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
say "the engine in memory"
"$bin/signalbox" bench engine gist
say "RSVP in memory"
"$bin/signalbox" bench engine rsvp
say "RSVP in memory: refreshes by MESSAGE_IDs"
"$bin/signalbox" bench engine rsvp-refresh
say "the share of each routine"
"$bin/signalbox" bench profile
say "a node on the wire, and a bare forwarder"
"$bin/signalbox" bench forward gist
