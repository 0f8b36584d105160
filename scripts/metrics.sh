#!/bin/bash
# Checks the metrics of a real daemon over HTTP with the OpenMetrics parser of Prometheus' client library, and with promtool
# where it is installed (Debian: package prometheus). The daemon runs in a network namespace of its own, which needs root.
# usage: metrics.sh DIRECTORY-OF-THE-PROGRAMS
set -eu
bin=$(cd "$1" && pwd)
scripts=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "skipped: a network namespace needs root"; exit 0; }

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cat >"$directory/node.toml" <<END
version = 1
[control]
socket = "$directory/control.sock"
[metrics]
listen = "127.0.0.1:9464"
END
export bin scripts directory
unshare --net bash -eu <<'END'
ip link set lo up
"$bin/signalboxd" --config "$directory/node.toml" 2>"$directory/log" &
daemon=$!
trap 'kill "$daemon"; wait "$daemon" || true' EXIT
# Prometheus asks for this format first.
get() {
    /usr/bin/python3 - "$1" <<'PYTHON'
import sys
import time
import urllib.error
import urllib.request

request = urllib.request.Request("http://127.0.0.1:9464/metrics", headers={"Accept": sys.argv[1]})
for attempt in range(100):
    try:
        sys.stdout.write(urllib.request.urlopen(request, timeout=5).read().decode())
        sys.exit()
    except urllib.error.URLError:
        time.sleep(0.1)
sys.exit("no answer on port 9464")
PYTHON
}
if ! get 'application/openmetrics-text; version=1.0.0' >"$directory/open"; then
    cat "$directory/log"
    exit 1
fi
"$scripts/openmetrics.py" <"$directory/open"
"$bin/signalbox" show counters --openmetrics --socket "$directory/control.sock" | "$scripts/openmetrics.py"
if command -v promtool >/dev/null; then
    get text/plain | promtool check metrics
else
    echo "skipped: promtool is not installed"
fi
END
