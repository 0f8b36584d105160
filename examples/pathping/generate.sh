#!/bin/bash
# Makes application_pb2.py anew from the daemon's proto file, or with --check says whether it agrees.
# protoc 3.21 (Debian 12: apt-get install protobuf-compiler): code of a newer one wants a newer python3-protobuf.
set -eu
cd "$(dirname "$0")"
proto=../../crates/api/proto/signalbox/v1
out=.
if [ "${1:-}" = --check ]; then
    out=$(mktemp -d)
    trap 'rm -r "$out"' EXIT
fi
protoc --proto_path="$proto" --python_out="$out" application.proto
if [ "$out" != . ]; then
    cmp "$out/application_pb2.py" application_pb2.py
fi
