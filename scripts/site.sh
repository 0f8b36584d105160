#!/bin/bash
# Makes the documentation into a site, target/site/book/index.html, and follows each of its links. The pages stay where they are:
# docs/site/SUMMARY.md says which ones belong to the site, in which order. Then runs each command of the tutorials
# and of the troubleshooting, which needs root. SIGNALBOX_BIN: a folder with the programs, if they are not to be built.
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

if [ -n "${SIGNALBOX_BIN:-}" ]; then
    bin=$SIGNALBOX_BIN
else
    cargo build --quiet --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
fi
bin=$(cd "$bin" && pwd)
export bin

say "the pages"
scripts/site.py lay "$place" "$bin"
log=$place/mdbook.log
"$mdbook" build "$place" >"$log" 2>&1 || { cat "$log"; die "mdBook failed"; }
if grep -qE 'WARN|ERROR' "$log"; then
    cat "$log"
    die "mdBook warns"
fi
say "the links"
scripts/site.py check "$place"
say "the commands of the tutorials"
if [ "$(id -u)" = 0 ]; then
    # The labs of the tutorials have lists of namespaces and of labs of their own: what else runs on this machine is not in their way.
    # shellcheck disable=SC2016 # expanded in the other mount namespace
    unshare --mount --propagation private bash -euc '
        for list in /run/netns /run/signalbox; do
            mkdir -p "$list"
            mount -t tmpfs -o mode=755 labs "$list"
        done
        exec scripts/tutorials.py "$bin" docs/tutorials/*.md docs/troubleshooting.md
    '
else
    echo "skipped: the lab needs root"
fi
echo "the site is $place/book/index.html"
