#!/bin/bash
# Compares what the published libraries offer with the last release: where users lose something, the version in Cargo.toml has to say so
# (RELEASING.md). usage: semver.sh [REVISION]. Without REVISION it is the last tag. Before the first tag there is nothing to compare with:
# the script says so and ends with 0.
set -eu
. "$(dirname "$0")/env.sh"

released=${1:-$(git tag --list 'v*' --sort=-version:refname | head -n 1)}
if [ -z "$released" ]; then
    echo "no release has a tag yet, so there is nothing to compare the libraries with"
    exit
fi
git rev-parse --quiet --verify "$released^{commit}" >/dev/null || die "$released is no commit of this repository"
scripts/setup.sh
cargo semver-checks --version >/dev/null 2>&1 || { say "installing cargo-semver-checks"; cargo install --locked cargo-semver-checks; }

names=$(cargo xtask crates --names)
libraries=()
for name in $names; do
    if git cat-file -e "$released:crates/${name#signalbox-}/Cargo.toml" 2>/dev/null; then
        libraries+=(--package "$name")
    else
        say "$name is newer than $released"
    fi
done
[ ${#libraries[@]} -gt 0 ] || exit 0
cargo semver-checks --baseline-rev "$released" "${libraries[@]}"
