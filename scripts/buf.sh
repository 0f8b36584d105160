#!/bin/bash
# The rules of buf for the proto files, crates/api/proto/buf.yaml, and its format. Without buf, npm's package of it is used.
set -eu
. "$(dirname "$0")/env.sh"

buf=(buf)
if ! command -v buf >/dev/null; then
    command -v npx >/dev/null || die "neither buf nor npx is here: install buf, or npm"
    buf=(npx --yes @bufbuild/buf@1.75.0)
fi
cd crates/api/proto
"${buf[@]}" lint
"${buf[@]}" format --diff --exit-code
