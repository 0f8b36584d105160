#!/bin/bash
# Compares the Wireshark dissectors of contrib/wireshark with `signalbox decode`, field by field: over captures of scenarios, and over the seeds
# of the fuzz targets and changed ones. See docs/wireshark.md.
# usage: wireshark.sh [--short] [CAPTURE|FOLDER...]   --short: no scenarios; with captures: those instead of scenarios, which need root
# SIGNALBOX_BIN: the folder of the programs.
set -eu
. "$(dirname "$0")/env.sh"
bin=${SIGNALBOX_BIN:-$bin}
short=
if [ "${1:-}" = --short ]; then
    short=yes
    shift
fi
command -v tshark >/dev/null || die "tshark is missing: apt-get install tshark"
[ -x "$bin/signalbox" ] || die "$bin/signalbox is missing: cargo build --release"
if [ -n "$short" ]; then exec scripts/wireshark.py --signalbox "$bin/signalbox" --changes 3 "$@"; fi
captures=("$@")
if [ ${#captures[@]} = 0 ]; then
    # They cover all protocols, both IP versions, connections, gateways, refusals, and messages of others.
    scenarios=(
        gist-cmode-tcp gist-octets-v6 gist-large gist-nat-gateway-tcp gist-legacy-nat quickstart ping-nsis
        qos-bidirectional qos-receiver qos-aggregate qos-admission refusals hostile-qos
        natfw-proxy natfw-publish natfw-twice-nat natfw-block natfw-v6 natfw-hostile
        boomerang boomerang-v6 boomerang-integrity boomerang-aggregate boomerang-refused
        casp-chain casp-pinhole casp-nat casp-token casp-both casp-local casp-stateless casp-reserve hostile-casp
    )
    captures=(target/wireshark)
    rm -rf "${captures[0]}"
    for scenario in "${scenarios[@]}"; do
        say "$scenario"
        mkdir -p "${captures[0]}/$scenario"
        # Whether its checks hold is the business of `make test`; what was captured counts here.
        "$bin/signalbox" lab run "$scenario" --pcap "${captures[0]}/$scenario" >"${captures[0]}/$scenario/log" 2>&1 || true
        [ -n "$(find "${captures[0]}/$scenario" -name '*.pcap' -print -quit)" ] || {
            tail -n 5 "${captures[0]}/$scenario/log" >&2
            die "$scenario has no captures"
        }
    done
fi
say "comparing"
exec scripts/wireshark.py --signalbox "$bin/signalbox" --changes 25 "${captures[@]}"
