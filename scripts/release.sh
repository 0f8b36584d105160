#!/bin/bash
# Makes a release of the commit that is checked out: see RELEASING.md.
#   release.sh --check   checks everything, and makes what needs no build: notes, archive of the sources, SBOM, checksums
#   release.sh           does the same, compares the libraries with the last release and packs them, builds the programs, makes their
#                        archive, and tags the commit; with --sign the tag is signed
set -eu
. "$(dirname "$0")/env.sh"

mode=release
sign=()
for option in "$@"; do
    case $option in
    --check) mode=check ;;
    --sign) sign=(--sign) ;;
    *) die "unknown option $option; there are --check and --sign" ;;
    esac
done

version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
# Tags are compared as numbers, which a pre-release has not.
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+- ]] && die "Cargo.toml: \"$version\" is a pre-release; this script makes releases X.Y.Z only"
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "Cargo.toml: the version \"$version\" does not have the form X.Y.Z of Semantic Versioning"
tag=v$version
latest=$(git tag --list 'v*' --sort=-version:refname | head -n 1)
today=$(date -u +%F)

faults=0
fault() {
    echo "release: $*" >&2
    faults=$((faults + 1))
}

# The text below a heading of CHANGELOG.md up to the next one, without empty lines around it.
section() { # begin of the heading
    awk -v heading="## [$1]" '
        index($0, heading) == 1 { inside = 1; next }
        /^## / { inside = 0 }
        inside && (/[^ ]/ || text) { text = text $0 "\n" }
        END { sub(/\n+$/, "\n", text); printf "%s", text }' CHANGELOG.md
}

check_tree() {
    local changed
    changed=$(git status --porcelain)
    [ -z "$changed" ] || fault "the tree is not clean: commit, or take away:"$'\n'"$changed"
}

# Cargo writes the versions of our crates into its lock files; with --locked it refuses a file that lags.
check_locks() {
    local lock other
    for lock in Cargo.lock fuzz/Cargo.lock; do
        other=$(awk -v RS= -v want="version = \"$version\"" '
            /name = "signalbox/ && !/name = "signalbox-fuzz"/ && !/\nsource = / && !index($0, "\n" want) { split($0, line, "\n"); print line[2] }' "$lock")
        [ -z "$other" ] || fault "$lock has other versions than Cargo.toml, $version: run cargo metadata in its folder, commit the result"
    done
}

check_changelog() {
    local heading first
    first=$(grep '^## \[' CHANGELOG.md | grep -vF '## [Unreleased]' | head -n 1)
    heading="## [$version] - $today"
    # A release that is tagged keeps its day, on whichever day its files are made again.
    if [ "$latest" = "$tag" ] && [[ $first =~ ^"## [$version] - "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]]; then heading=$first; fi
    [ "$first" = "$heading" ] || fault "CHANGELOG.md: the last version has the heading \"$first\"; this release needs \"$heading\""
    [ -n "$(section "$version")" ] || fault "CHANGELOG.md: the section $version says nothing"
    [ -z "$(section Unreleased)" ] || fault "CHANGELOG.md: what stands under Unreleased belongs to the section $version"
    # A fault, or a former state, that no release had is no news to its readers.
    if [ -z "$latest" ] && section "$version" | grep '^### ' | grep -qvx '### Added'; then
        fault "CHANGELOG.md: $version is the first release, so everything in it is Added"
    fi
}

check_placeholders() {
    local found
    found=$(grep -n 'PLACEHOLDER\|://example\.' SECURITY.md Cargo.toml) || return 0
    fault "whoever publishes writes here what is true for them:"$'\n'"$found"
}

check_tag() {
    if [ "$latest" = "$tag" ]; then
        [ "$(git rev-parse "$tag^{commit}")" = "$(git rev-parse HEAD)" ] || fault "the tag $tag is there, and is another commit: raise the version"
    elif [ -n "$latest" ] && at_least "${latest#v}" "$version"; then
        fault "the version $version is not above that of the tag $latest"
    fi
}

check_api() {
    cargo xtask api --complete >/dev/null || fault "the gate of the API does not know all of it: cargo xtask api --complete"
}

check_crates() {
    cargo xtask crates >/dev/null || fault "a registry does not take the libraries as they are: cargo xtask crates"
}

say "checking $version"
check_tree
check_locks
check_changelog
check_placeholders
check_tag
check_api
check_crates
[ "$faults" = 0 ] || die "$faults faults: nothing was made"

if [ $mode = release ]; then
    # What a tag has was compared when it was made.
    if [ "$latest" != "$tag" ]; then
        scripts/semver.sh || die "the libraries take something from their users, which version $version does not say: nothing was made"
    fi
    scripts/crates.sh || die "a library does not compile from its archive: nothing was made"
fi

# What is made has the time of the commit, so that the same commit gives the same octets.
time=$(git log -1 --format=%ct)
host=$(rustc -vV | sed -n 's/^host: //p')
# A check leaves the files of a release as they are.
case $mode in check) folder=release-check-$version ;; *) folder=release-$version ;; esac
out=${CARGO_TARGET_DIR:-target}/$folder
rm -rf "$out"
mkdir -p "$out"

say "notes, sources, SBOM"
{
    echo "# Signalbox $version"
    echo
    section "$version"
} >"$out/notes.md"
# The modes of files do not depend on who makes them either.
git -c tar.umask=0022 archive --format=tar --prefix="signalbox-$version/" HEAD | gzip -n9 >"$out/signalbox-$version-source.tar.gz"
cargo metadata --format-version 1 --locked --filter-platform "$host" |
    /usr/bin/python3 scripts/sbom.py Cargo.lock "$(date -u -d "@$time" +%FT%TZ)" signalboxd signalbox signalbox-lab-command >"$out/signalbox-$version.cdx.json"

if [ $mode = release ]; then
    say "building"
    cargo build --release --locked -p signalboxd -p signalbox -p signalbox-lab-command
    for program in signalboxd signalbox signalbox-lab; do
        [[ $("$bin/$program" --version) = *"$version"* ]] || die "$bin/$program is not of version $version"
    done
    name=signalbox-$version-$host
    mkdir "$out/$name"
    git archive HEAD etc docs contrib README.md CHANGELOG.md SECURITY.md LICENSE-* | tar --directory "$out/$name" --extract
    cp "$bin/signalboxd" "$bin/signalbox" "$bin/signalbox-lab" "$out/$name"
    tar --directory "$out" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --create "$name" |
        gzip -n9 >"$out/$name.tar.gz"
    rm -r "${out:?}/$name"
fi
(cd "$out" && sha256sum -- *.* >SHA256SUMS)

if [ $mode = check ]; then
    echo "$version can be released; what needs no build is in $out"
    exit
fi
if [ "$latest" = "$tag" ]; then
    echo "the tag $tag is there already"
else
    git tag --annotate "${sign[@]}" --cleanup=whitespace --file="$out/notes.md" "$tag"
    echo "tagged $tag"
fi
echo "now push the tag (git push REMOTE $tag), and publish $out with notes.md as its text"
