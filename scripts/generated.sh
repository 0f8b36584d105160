#!/bin/bash
# The Rust code of the gRPC API, which tools/protogen makes from the proto files. `generated.sh` makes it again and records
# the hashes of the proto files and the code; `generated.sh check` compares the files with these hashes, without building
# the generator; `generated.sh compare` builds it and compares its output.
set -eu
. "$(dirname "$0")/env.sh"

sums=crates/api/src/generated/sources.sum
protos() { find crates/api/proto -name "*.proto" | sort; }
case ${1:-} in
check)
    if ! sha256sum --check --quiet "$sums"; then
        die "proto files and generated code do not belong together: run make generated, commit the result"
    fi
    # A new proto file without a hash.
    for proto in $(protos); do
        grep -qF "$proto" "$sums" || die "$proto is not in $sums: run make generated"
    done
    ;;
compare) cargo run --quiet --locked --manifest-path tools/protogen/Cargo.toml -- --check ;;
*)
    cargo run --quiet --locked --manifest-path tools/protogen/Cargo.toml
    sha256sum $(protos) crates/api/src/generated/*.rs crates/api/src/generated/descriptors.bin >"$sums"
    ;;
esac
