#!/bin/bash
# Makes the documentation into a site, target/site/book/index.html, and follows each of its links. The pages stay where they are:
# docs/site/SUMMARY.md says which ones belong to the site, in which order.
set -eu
. "$(dirname "$0")/env.sh"
scripts/setup.sh site

version=0.5.4
place=${CARGO_TARGET_DIR:-target}/site
tools=${CARGO_TARGET_DIR:-target}/tools
mkdir -p "$place" "$tools"
tools=$(cd "$tools" && pwd)
mdbook=$(command -v mdbook || true)
if [ -z "$mdbook" ] || ! at_least "$("$mdbook" --version | sed 's/.*v//')" "$version"; then
    mdbook=$tools/bin/mdbook
    if [ ! -x "$mdbook" ]; then
        say "building mdBook $version, once; some minutes"
        CARGO_TARGET_DIR=$tools/build cargo install --quiet --locked --root "$tools" \
            --no-default-features --features search "mdbook@$version"
        rm -rf "$tools/build"
    fi
fi

say "the pages"
scripts/site.py lay "$place"
log=$place/mdbook.log
"$mdbook" build "$place" >"$log" 2>&1 || { cat "$log"; die "mdBook failed"; }
if grep -qE 'WARN|ERROR' "$log"; then
    cat "$log"
    die "mdBook warns"
fi
say "the links"
scripts/site.py check "$place"
echo "the site is $place/book/index.html"
