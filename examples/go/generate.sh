#!/bin/bash
# Makes the Go code of the daemon's interface below api/ from its proto files. It needs go, and protoc 3.21 or newer.
set -eu
cd "$(dirname "$0")"
proto=../../crates/api/proto
tools=$(mktemp -d)
trap 'rm -r "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
mapfile -t files < <(cd "$proto" && find signalbox -name '*.proto' | sort)
options=()
for file in "${files[@]}"; do
    # signalbox/gist/v1/gist.proto: package gist in api/gist
    package=$(dirname "$(dirname "$file")")
    package=${package#signalbox}
    package=${package#/}
    package=${package:-signalbox}
    # node.proto shows rows of GIST, whose package needs the common types: Go forbids such a cycle of packages.
    if [ "$file" = signalbox/v1/node.proto ]; then package=node; fi
    options+=("--go_opt=M$file=signalbox.example/client/api/$package" "--go-grpc_opt=M$file=signalbox.example/client/api/$package")
done
PATH=$tools:$PATH protoc --proto_path="$proto" --go_out=. --go-grpc_out=. \
    --go_opt=module=signalbox.example/client --go-grpc_opt=module=signalbox.example/client "${options[@]}" "${files[@]}"
