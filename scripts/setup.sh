#!/bin/bash
# Installs what is missing: a C compiler for linking, nftables and iproute2 for the lab, and a Rust toolchain by
# its official installer where cargo is absent or too old. Does nothing where nothing is missing.
set -eu
. "$(dirname "$0")/env.sh"

quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

packages=()
need() { # program, Debian package
    if ! PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null; then packages+=("$2"); fi
}
need cc gcc
need nft nftables
need ip iproute2
need sysctl procps
if [ ! -e /usr/include/stdlib.h ]; then packages+=(libc6-dev); fi
# Another implementation of SCTP, for the tests of interoperation.
if [ "${1:-}" = test ] && [ ! -e /usr/include/usrsctp.h ]; then packages+=(libusrsctp-dev); fi
# An independent decoder for the RSVP messages of the scenarios; its installation asks no questions.
if [ "${1:-}" = test ]; then need tshark tshark; fi
# A program that knows nothing of reservations, for the scenarios of `signalbox run`.
if [ "${1:-}" = test ]; then need iperf3 iperf3; fi
# A program that asks routers for ports, which knows nothing of this suite.
if [ "${1:-}" = test ]; then need natpmpc natpmpc; fi
# Counts the instructions of each message.
if [ "${1:-}" = test ]; then need valgrind valgrind; fi
# Virtual machines with other kernels; the rest of what they need is fetched and not installed.
case "${1:-}" in
kernels | units)
    need qemu-system-x86_64 qemu-system-x86
    need python3 python3
    ;;
esac
# Installs a release of the distribution into an archive.
if [ "${1:-}" = units ]; then need mmdebstrap mmdebstrap; fi
# Tools of the distribution that make packages, judge them, and install releases to try them in.
if [ "${1:-}" = package ]; then
    need git git
    need dpkg-buildpackage dpkg-dev
    need dh debhelper
    need help2man help2man
    need lintian lintian
    need mmdebstrap mmdebstrap
fi
# What the tutorials need: the interface in Python.
if [ "${1:-}" = site ] && ! /usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null; then
    packages+=(python3 python3-grpcio python3-protobuf)
fi
# Builds and runs the image of a container, on a release that mmdebstrap makes.
if [ "${1:-}" = image ]; then
    need podman podman
    need runc runc
    need mmdebstrap mmdebstrap
fi
# Builds the dashboard; Prometheus itself is fetched and not installed.
if [ "${1:-}" = dashboards ]; then
    if ! /usr/bin/python3 -c 'import ensurepip' 2>/dev/null; then packages+=(python3 python3-venv); fi
fi
# libFuzzer is C++.
if [ "${1:-}" = fuzz ]; then need c++ g++; fi
# The example of a signaling application in Python, and the generator of its code.
if [ "${1:-}" = test ]; then
    need protoc protobuf-compiler
    if ! /usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null; then
        packages+=(python3 python3-grpcio python3-protobuf)
    fi
    # Independent readers of the command's JSON and of the metrics.
    if ! /usr/bin/python3 -c 'import jsonschema, prometheus_client.openmetrics' 2>/dev/null; then
        packages+=(python3 python3-jsonschema python3-prometheus-client)
    fi
    # Another composer and reader of RSVP messages.
    if ! /usr/bin/python3 -W ignore -c 'import scapy.contrib.rsvp' 2>/dev/null; then packages+=(python3 python3-scapy); fi
fi

cargo_version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2 || true)
rust_is_fit=no
if [ -n "$cargo_version" ] && at_least "$cargo_version" "$msrv"; then rust_is_fit=yes; fi
if [ $rust_is_fit = no ] && ! command -v rustup >/dev/null; then
    need curl curl
    if [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then packages+=(ca-certificates); fi
fi

if [ ${#packages[@]} -gt 0 ]; then
    say "installing ${packages[*]}"
    command -v apt-get >/dev/null || die "no apt-get here: install ${packages[*]} yourself, then try again"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "as root: apt-get install ${packages[*]}"
    quietly as_root apt-get update -qq || die "apt-get update failed: is there a network?"
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}" ||
        die "apt-get could not install ${packages[*]}"
fi

if [ $rust_is_fit = no ]; then
    if command -v rustup >/dev/null; then
        say "Rust ${cargo_version:-(none)} is older than $msrv: updating the stable toolchain"
        quietly rustup toolchain install stable --profile minimal --component clippy --component rustfmt ||
            die "rustup could not install the stable toolchain"
        quietly rustup default stable || die "rustup could not select the stable toolchain"
    else
        say "installing Rust by its official installer (found: ${cargo_version:-none}, needed: $msrv or newer)"
        installer=$(mktemp)
        trap 'rm -f "$installer"' EXIT
        curl --proto '=https' --tlsv1.2 --retry 3 -sSf https://sh.rustup.rs -o "$installer" ||
            die "cannot fetch https://sh.rustup.rs: install Rust $msrv or newer (https://rustup.rs), then try again"
        quietly sh "$installer" -y --no-modify-path --profile minimal --component clippy --component rustfmt ||
            die "the Rust installer failed"
        PATH=$cargo_bin:$PATH
    fi
    cargo_version=$(cargo --version | cut -d ' ' -f 2)
    at_least "$cargo_version" "$msrv" || die "cargo is still $cargo_version; $msrv or newer is needed"
fi

if [ "${1:-}" = test ]; then
    for part in fmt clippy; do
        if ! cargo $part --version >/dev/null 2>&1; then
            say "adding cargo $part"
            component=${part/fmt/rustfmt}
            quietly rustup component add "$component" || die "cargo $part is missing: install $component"
        fi
    done
fi
