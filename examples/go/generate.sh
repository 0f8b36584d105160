#!/bin/bash
# Makes the Go code of the daemon's interface below api/ from its proto files. It needs go, and protoc 3.21 or newer. The module of this
# code is signalbox.example/api, as the proto files say (`go_package`); go.mod of a program that uses it says where it is.
set -eu
cd "$(dirname "$0")"
proto=../../crates/api/proto
tools=$(mktemp -d)
trap 'rm -r "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
mapfile -t files < <(cd "$proto" && find signalbox -name '*.proto' | sort)
mkdir -p api
PATH=$tools:$PATH protoc --proto_path="$proto" --go_out=api --go-grpc_out=api \
    --go_opt=module=signalbox.example/api --go-grpc_opt=module=signalbox.example/api "${files[@]}"
# The same versions of gRPC and its messages as the program's.
sed '/signalbox\.example\/api/d; s/^module .*/module signalbox.example\/api/' go.mod >api/go.mod
