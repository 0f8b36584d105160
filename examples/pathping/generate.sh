#!/bin/bash
# Makes the messages of the daemon's interface below signalbox/ from its proto files; with --check, compares them.
# Use protoc 3.21 (Debian 12: apt-get install protobuf-compiler): the code of a newer one needs a newer python3-protobuf.
set -eu
cd "$(dirname "$0")"
proto=../../crates/api/proto
files=(signalbox/casp/v1/client.proto signalbox/gist/v1/application.proto signalbox/v1/types.proto)
if [ "${1:-}" != --check ]; then
    exec protoc --proto_path="$proto" --python_out=. "${files[@]}"
fi
described=$(mktemp)
trap 'rm "$described"' EXIT
protoc --proto_path="$proto" --descriptor_set_out="$described" "${files[@]}"
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 - "$described" <<'PYTHON'
import sys

from google.protobuf import descriptor_pb2

from signalbox.casp.v1 import client_pb2
from signalbox.gist.v1 import application_pb2
from signalbox.v1 import types_pb2

generated = {}
for module in (client_pb2, application_pb2, types_pb2):
    proto = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    generated[proto.name] = proto
with open(sys.argv[1], "rb") as file:
    protos = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
for proto in protos:
    for message in proto.message_type:
        for field in message.field:
            field.ClearField("json_name")  # Generated code leaves it out.
    if proto != generated[proto.name]:
        sys.exit(f"the code of {proto.name} does not agree with it: run generate.sh without --check")
PYTHON
