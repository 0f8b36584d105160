#!/bin/bash
# Checks the dashboard for Grafana and the alert rules for Prometheus (contrib/): the dashboard is what its program builds, the rules
# pass their tests, and on the metrics of a real network that Prometheus reads, each expression of both gives data.
# `dashboards.sh --write` builds the dashboard anew first. Needs root for the network. SIGNALBOX_BIN: a folder with the programs, if they are
# not to be built.
set -eu
. "$(dirname "$0")/env.sh"
scripts/setup.sh dashboards

# The versions of the library are those of Grafana; a later Grafana reads the dashboards of an earlier one.
sdk='grafana_foundation_sdk==1769699998!10.1.0'
place=${CARGO_TARGET_DIR:-target}/dashboards
mkdir -p "$place"
place=$(cd "$place" && pwd)

# The package of the distribution would start a service, so it is unpacked only.
if ! command -v prometheus >/dev/null; then
    if [ ! -x "$place/prometheus/usr/bin/prometheus" ]; then
        say "fetching Prometheus of the distribution"
        rm -f "$place"/prometheus_*.deb
        (cd "$place" && apt-get download -qq -o APT::Sandbox::User=root prometheus) || die "apt-get could not fetch prometheus"
        dpkg -x "$place"/prometheus_*.deb "$place/prometheus"
    fi
    PATH=$PATH:$place/prometheus/usr/bin
fi

say "the dashboard is what contrib/grafana/dashboard.py builds"
if [ "$(cat "$place/venv/holds" 2>/dev/null)" != "$sdk" ]; then
    /usr/bin/python3 -m venv --clear "$place/venv"
    "$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$sdk"
    echo "$sdk" >"$place/venv/holds"
fi
"$place/venv/bin/python" contrib/grafana/dashboard.py >"$place/signalbox.json"
if [ "${1:-}" = --write ]; then cp "$place/signalbox.json" contrib/grafana/signalbox.json; fi
cmp "$place/signalbox.json" contrib/grafana/signalbox.json || die "run scripts/dashboards.sh --write"

say "the alert rules pass their tests"
promtool check rules contrib/prometheus/signalbox.rules.yml
promtool test rules contrib/prometheus/signalbox.test.yml

say "each expression gives data on the metrics of a network"
[ "$(id -u)" = 0 ] || die "the network needs root"
if [ -n "${SIGNALBOX_BIN:-}" ]; then
    bin=$SIGNALBOX_BIN
else
    cargo build --quiet --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
fi
bin=$(cd "$bin" && pwd)
export bin place
# The lab has lists of namespaces and of labs of its own: what else runs on this machine is not in its way.
# shellcheck disable=SC2016 # expanded in the other mount namespace
unshare --mount --propagation private bash -euc '
    for list in /run/netns /run/signalbox; do
        mkdir -p "$list"
        mount -t tmpfs -o mode=755 labs "$list"
    done
    prometheus=
    finish() {
        if [ -n "$prometheus" ]; then
            kill "$prometheus" 2>/dev/null || true
            wait "$prometheus" || true
        fi
        "$bin/signalbox" lab down --all >/dev/null 2>&1 || true
    }
    trap finish EXIT
    "$bin/signalbox" lab up ./contrib/grafana/lab.toml --json >"$place/lab.json"
    scripts/dashboards.py prometheus "$place"
    rm -rf "$place/data"
    # nsenter becomes Prometheus, so that what is ended is Prometheus.
    nsenter --net=/run/netns/sbx-dashboards-h1 prometheus --config.file="$place/prometheus.yml" --storage.tsdb.path="$place/data" \
        --web.listen-address=127.0.0.1:9090 --log.level=warn >"$place/prometheus.log" 2>&1 &
    prometheus=$!
    nsenter --net=/run/netns/sbx-dashboards-h1 scripts/dashboards.py evaluate "$place" "$bin/signalbox"
'
