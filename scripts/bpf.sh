#!/usr/bin/env bash
# The eBPF program of crates/linux. `bpf.sh` compiles it and records the hashes of source and object; `bpf.sh check`
# compares the files with these hashes, so that a source without its object is noticed. Only compiling needs clang.
set -euo pipefail
cd "$(dirname "$0")/../crates/linux/bpf"

if [ "${1-}" = check ]; then
    sha256sum --check --quiet traffic.sum
    exit
fi
command -v clang llvm-strip >/dev/null || { echo "clang and llvm-strip are needed: apt-get install clang llvm" >&2; exit 1; }
include="/usr/include/$(uname -m)-linux-gnu"
clang -O2 -Wall -Wextra -Werror -Wno-sign-compare -target bpfel -mcpu=v2 -I"$include" -c traffic.c -o traffic.o
llvm-strip --strip-debug traffic.o
sha256sum traffic.c traffic.o >traffic.sum
cat traffic.sum
