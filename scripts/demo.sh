#!/bin/bash
# Builds everything and runs the first scenario: host - router - router - host in network namespaces of this machine.
set -eu
"$(dirname "$0")/setup.sh"
. "$(dirname "$0")/env.sh"

say "building"
cargo build --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
say "signalbox lab run quickstart"
exec "$bin/signalbox" lab run quickstart
