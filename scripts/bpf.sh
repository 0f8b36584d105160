#!/usr/bin/env bash
# The eBPF program of crates/linux: `bpf.sh` compiles it and writes down what was compiled from what; `bpf.sh check`
# says whether what is checked in belongs together. Building Signalbox itself needs no clang.
set -euo pipefail
cd "$(dirname "$0")/../crates/linux/bpf"

if [ "${1-}" = check ]; then
	sha256sum --check traffic.sum
	exit
fi
command -v clang llvm-strip >/dev/null || { echo "clang and llvm-strip are needed: apt-get install clang llvm" >&2; exit 1; }
include="/usr/include/$(uname -m)-linux-gnu"
clang -O2 -Wall -Wextra -Werror -Wno-sign-compare -target bpfel -mcpu=v2 -I"$include" -c traffic.c -o traffic.o
llvm-strip --strip-debug traffic.o
sha256sum traffic.c traffic.o >traffic.sum
cat traffic.sum
