#!/bin/bash
# Makes packages for Debian 12 and newer from the release build: target/package/*.deb. With --test each is installed and purged in fresh
# root directories of the releases. It needs a git clone: the date, the examples, the proto files and the
# schemas of the packages are those of the commit.
# usage: package.sh [--test]
# SIGNALBOX_MAINTAINER: name and address of who publishes the packages. SIGNALBOX_BIN: the folder `release` of a build that was tested.
set -eu
. "$(dirname "$0")/env.sh"
case ${1:-} in "" | --test) ;; *) die "usage: package.sh [--test]" ;; esac
[ -e .git ] || die "packages are made in a git clone: their date, their examples, the proto files and the schemas are those of its commit, and $PWD has no commit"
# The tools of Debian put the path into makefiles and command lines.
case $PWD in *[[:space:]]*) die "the path \"$PWD\" has a blank, with which the tools of Debian make no packages" ;; esac
case ${SIGNALBOX_BIN:-/release} in */release) ;; *) die "SIGNALBOX_BIN=$SIGNALBOX_BIN is not the folder \`release\` of a build" ;; esac
scripts/setup.sh package

if [ -z "${SIGNALBOX_BIN:-}" ]; then
    say "building"
    cargo build --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
else
    # As it is: for packages of a build that was tested.
    export CARGO_TARGET_DIR=${SIGNALBOX_BIN%/release}
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# What comes before a release is older than it.
version=${version/-/\~}
place=$PWD/target/package source=$PWD/target/package/source
rm -rf "$place"
mkdir -p "$source"
cp -r packaging/debian "$source/"
sed -i "s/@MAINTAINER@/${SIGNALBOX_MAINTAINER:-unknown <unknown@localhost>}/" "$source/debian/control"
# The packages are from the commit, so is their date.
date=$(git log -1 --format=%cD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH SIGNALBOX_SOURCE=$PWD
cat >"$source/debian/changelog" <<END
signalbox ($version) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' "$source/debian/control")  $date
END
say "packing $version"
(cd "$source" && dpkg-buildpackage --build=binary --unsigned-changes --no-check-builddeps >"$place/build.log" 2>&1) || {
    tail -n 20 "$place/build.log" >&2
    die "the packages were not built: $place/build.log"
}
rm -rf "$source"
ls -sh1 "$place"/*.deb
[ "${1:-}" = --test ] || exit 0

say "lintian"
# The programs keep the names of their functions (scripts/install.sh).
tags=unstripped-binary-or-object
# Packages that nobody publishes have no address.
[ -n "${SIGNALBOX_MAINTAINER:-}" ] || tags+=,bogus-mail-host,bogus-mail-host-in-debian-changelog
lintian --allow-root --fail-on error --suppress-tags "$tags" "$place"/*.deb
for release in bookworm trixie; do
    say "install and purge in $release"
    scripts/package-test.sh "$release" "$place"
done
