#!/bin/bash
# Checks the metrics of a real daemon with promtool, where promtool (Debian: package prometheus) and curl are
# installed. The daemon runs in a network namespace of its own, which needs root.
# usage: metrics.sh DIRECTORY-OF-THE-PROGRAMS
set -eu
bin=$(cd "$1" && pwd)
for tool in promtool curl unshare; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: a network namespace needs root"; exit 0; }

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cat >"$directory/node.toml" <<END
[control]
socket = "$directory/control.sock"
[metrics]
listen = "127.0.0.1:9464"
END
export bin directory
unshare --net bash -eu <<'END'
ip link set lo up
"$bin/signalboxd" --config "$directory/node.toml" 2>"$directory/log" &
daemon=$!
trap 'kill "$daemon"; wait "$daemon" || true' EXIT
url=http://127.0.0.1:9464/metrics
if ! curl --silent --fail --retry 20 --retry-connrefused --retry-delay 1 --output "$directory/text" "$url"; then
    cat "$directory/log"
    exit 1
fi
promtool check metrics <"$directory/text"
# Prometheus asks for this format; its last line shows that nothing is cut off.
curl --silent --fail --header 'Accept: application/openmetrics-text' "$url" | tail -n 1 | grep -qx '# EOF'
END
