#!/bin/bash
# Makes application_pb2.py from the daemon's proto file; with --check, compares the two.
# Use protoc 3.21 (Debian 12: apt-get install protobuf-compiler): the code of a newer one needs a newer python3-protobuf.
set -eu
cd "$(dirname "$0")"
proto=../../crates/api/proto/signalbox/v0
if [ "${1:-}" != --check ]; then
    exec protoc --proto_path="$proto" --python_out=. application.proto
fi
described=$(mktemp)
trap 'rm "$described"' EXIT
protoc --proto_path="$proto" --descriptor_set_out="$described" application.proto
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 - "$described" <<'PYTHON'
import sys

import application_pb2
from google.protobuf import descriptor_pb2

with open(sys.argv[1], "rb") as file:
    (proto,) = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
for message in proto.message_type:
    for field in message.field:
        field.ClearField("json_name")  # Generated code leaves it out.
if proto != descriptor_pb2.FileDescriptorProto.FromString(application_pb2.DESCRIPTOR.serialized_pb):
    sys.exit("application_pb2.py does not agree with the proto file: run generate.sh without --check")
PYTHON
