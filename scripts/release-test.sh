#!/bin/bash
# Tests scripts/release.sh in a repository of its own, with a cargo that builds nothing.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A clock that stands, and a cargo whose checks fail where a file says so.
mkdir -p "$work/home/bin" "$work/repository/scripts" "$work/repository/fuzz" "$work/repository"/{etc,docs,contrib,crates/wire}
cat >"$work/home/bin/date" <<'EOF'
#!/bin/sh
[ "$*" = "-u +%F" ] && exec echo "${TEST_DAY:-2030-01-02}"
exec /bin/date "$@"
EOF
cat >"$work/home/bin/cargo" <<'EOF'
#!/bin/sh
case $1 in
--version) echo "cargo ${TEST_CARGO:-1.90.0} (of the test)" ;;
xtask)
    [ "$*" = "xtask crates --names" ] && echo signalbox-wire
    [ ! -e "$TEST_WORK/$2-lags" ]
    ;;
semver-checks)
    [ "$2" = --version ] && exit
    echo "compared: $*" >>"$TEST_WORK/compared"
    [ ! -e "$TEST_WORK/semver-breaks" ]
    ;;
package)
    [ ! -e "$TEST_WORK/archive-lags" ] || exit
    echo "packed: $*" >>"$TEST_WORK/packed"
    ;;
metadata) cat "$TEST_WORK/metadata.json" ;;
build)
    mkdir -p target/release
    for program in signalboxd signalbox signalbox-lab; do
        printf '#!/bin/sh\necho "%s 0.2.0"\n' $program >target/release/$program
        chmod +x target/release/$program
    done
    ;;
esac
EOF
printf '#!/bin/sh\necho "host: x86_64-unknown-linux-gnu"\n' >"$work/home/bin/rustc"
chmod +x "$work/home/bin"/*
export CARGO_HOME=$work/home TEST_WORK=$work RUSTUP_TOOLCHAIN=any GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
unset CARGO_TARGET_DIR

cat >"$work/metadata.json" <<'EOF'
{"workspace_members": ["d", "c", "l"],
 "packages": [{"id": "d", "name": "signalboxd", "version": "0.2.0", "license": "MIT", "targets": [{"kind": ["bin"]}]},
              {"id": "c", "name": "signalbox", "version": "0.2.0", "license": "MIT", "targets": [{"kind": ["bin"]}]},
              {"id": "l", "name": "signalbox-lab-command", "version": "0.2.0", "license": "MIT", "targets": [{"kind": ["bin"]}]},
              {"id": "r", "name": "ring", "version": "1.0.0", "license": "MIT/Apache-2.0", "targets": [{"kind": ["lib"]}, {"kind": ["custom-build"]}]},
              {"id": "m", "name": "derived", "version": "1.0.0", "license": "MIT", "targets": [{"kind": ["proc-macro"]}]},
              {"id": "q", "name": "of-the-macro", "version": "1.0.0", "license": "MIT", "targets": [{"kind": ["lib"]}]},
              {"id": "b", "name": "built", "version": "1.0.0", "license": "MIT", "targets": [{"kind": ["lib"]}]},
              {"id": "t", "name": "tested", "version": "1.0.0", "license": "MIT", "targets": [{"kind": ["lib"]}]}],
 "resolve": {"nodes": [
  {"id": "d", "deps": [{"pkg": "r", "dep_kinds": [{"kind": null}]}, {"pkg": "m", "dep_kinds": [{"kind": null}]},
                       {"pkg": "t", "dep_kinds": [{"kind": "dev"}]}]},
  {"id": "r", "deps": [{"pkg": "b", "dep_kinds": [{"kind": "build"}]}]},
  {"id": "m", "deps": [{"pkg": "q", "dep_kinds": [{"kind": null}]}]},
  {"id": "c", "deps": []}, {"id": "l", "deps": []}, {"id": "q", "deps": []}, {"id": "b", "deps": []}, {"id": "t", "deps": []}]}}
EOF

cd "$work/repository"
cp "$root"/scripts/{release,env,crates,semver}.sh "$root/scripts/sbom.py" scripts/
printf '#!/bin/sh\n' >scripts/setup.sh
chmod +x scripts/setup.sh
cat >Cargo.toml <<'EOF'
[workspace.package]
version = "0.2.0"
rust-version = "1.88"
repository = "https://git.example.net/signalbox"
EOF
cat >Cargo.lock <<'EOF'
version = 4

[[package]]
name = "ring"
version = "1.0.0"
source = "registry+x"
checksum = "aa00"

[[package]]
name = "signalboxd"
version = "0.2.0"
EOF
cp Cargo.lock fuzz/
cat >CHANGELOG.md <<'EOF'
# Changelog

## [Unreleased]

## [0.2.0] - 2030-01-02

### Added

* The first line.

* The last line.
EOF
echo "Write to security@example.net." >SECURITY.md
touch README.md LICENSE-MIT etc/a docs/a contrib/a crates/wire/Cargo.toml
printf '/target\n*.ignored\n' >.gitignore
touch docs/b.ignored
git init -q -b main .
git add .
git commit -q -m "Begin"

tests=0
failed=0
say() { # name, whether it holds
    tests=$((tests + 1))
    if [ "$2" = 0 ]; then return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    cat "$work/log"
}

# A change that a release must refuse: the command makes it, the text is in the fault.
refused() { # text, command...
    local text=$1 status=0
    shift
    "$@"
    [ "${dirty:-}" ] || git commit -q -a -m "Change" --allow-empty
    scripts/release.sh --check >"$work/log" 2>&1 && status=1
    grep -qF -- "$text" "$work/log" || status=1
    [ ! -e target ] || status=1
    say "refused: $text" $status
    git reset -q --hard "$start"
    git clean -qfd
    rm -rf target "$work"/*-lags
}
start=$(git rev-parse HEAD)

dirty=yes refused "the tree is not clean" touch new
refused "does not have the form X.Y.Z" sed -i 's/"0.2.0"/"0.2"/' Cargo.toml
refused "\"0.2.0-rc.1\" is a pre-release" sed -i 's/"0.2.0"/"0.2.0-rc.1"/' Cargo.toml
refused "Cargo.lock has other versions" sed -i 's/"0.2.0"/"0.1.0"/' fuzz/Cargo.lock
refused "this release needs \"## [0.3.0] - 2030-01-02\"" sed -i 's/"0.2.0"/"0.3.0"/' Cargo.toml
refused "has the heading \"## [0.2.0] - unreleased\"" sed -i 's/2030-01-02/unreleased/' CHANGELOG.md
refused "says nothing" sed -i '/2030/,$ { /2030/! d }' CHANGELOG.md
refused "belongs to the section 0.2.0" sed -i '/Unreleased/a * More.' CHANGELOG.md
refused "is the first release" sed -i 's/### Added/### Fixed/' CHANGELOG.md
refused "SECURITY.md:1:PLACEHOLDER" sed -i 's/.*/PLACEHOLDER/' SECURITY.md
refused "Cargo.toml:4:" sed -i 's/repository.*/& # PLACEHOLDER/' Cargo.toml
refused "Cargo.toml:4:" sed -i 's,https://git,https://example.org,' Cargo.toml
refused "does not know all of it" touch "$work/api-lags"
refused "does not take the libraries" touch "$work/crates-lags"
git tag v0.2.0
refused "is another commit" true
git tag -d v0.2.0 >/dev/null
git tag v0.3.0
refused "is not above that of the tag v0.3.0" true
git tag -d v0.3.0 >/dev/null

# What is found when the release is made: neither files nor a tag.
not_made() { # text
    local status=0
    scripts/release.sh >"$work/log" 2>&1 && status=1
    grep -qF -- "$1" "$work/log" && [ ! -e target ] && [ -z "$(git tag --list v0.2.0)" ] || status=1
    say "not made: $1" $status
}
status=0
[ "$(scripts/semver.sh)" = "no release has a tag yet, so there is nothing to compare the libraries with" ] || status=1
say "without a tag there is nothing to compare with" $status
touch "$work/archive-lags"
not_made "does not compile from its archive"
rm "$work/archive-lags"
TEST_CARGO=1.89.0 not_made "cargo is 1.89.0"
[ ! -e "$work/compared" ] || { cat "$work/compared" >"$work/log"; say "before the first release nothing is compared" 1; }
git tag v0.1.0
touch "$work/semver-breaks"
not_made "which version 0.2.0 does not say"
rm "$work/semver-breaks"
status=0
grep -q -- "--baseline-rev v0.1.0 --package signalbox-wire" "$work/compared" || status=1
say "the libraries are compared with the last tag" $status
git tag -d v0.1.0 >/dev/null

# Later releases say what they changed and mended.
git tag v0.1.0
sed -i 's/### Added/### Fixed/' CHANGELOG.md
git commit -q -a -m "Change"
status=0
scripts/release.sh --check >"$work/log" 2>&1 || status=1
say "a later release has other sections" $status
git reset -q --hard "$start"
git tag -d v0.1.0 >/dev/null

# The whole of it.
out=target/release-0.2.0
checked=target/release-check-0.2.0
status=0
scripts/release.sh --check >"$work/log" 2>&1 || status=1
[ -z "$(git tag)" ] && [ ! -e target/release ] && [ ! -e $out ] && (cd $checked && sha256sum --quiet --check SHA256SUMS) || status=1
say "a check builds nothing and makes no tag" $status
status=0
scripts/release.sh >"$work/log" 2>&1 || status=1
[ "$(git tag)" = v0.2.0 ] && [ "$(git tag --list --format='%(contents)' v0.2.0)" = "$(cat $out/notes.md)" ] || status=1
[ "$(cat $out/notes.md)" = "# Signalbox 0.2.0

### Added

* The first line.

* The last line." ] || status=1
say "a release is tagged with its notes" $status
status=0
grep -q -- "--package signalbox-wire" "$work/packed" || status=1
say "the libraries of a release are packed" $status
status=0
(cd $out && sha256sum --quiet --check SHA256SUMS) && [ "$(wc -l <$out/SHA256SUMS)" = 4 ] || status=1
[ "$(grep -v -x -F -f $out/SHA256SUMS $checked/SHA256SUMS)" = "" ] || status=1
say "the sums are those of the files, and those of the check" $status
status=0
tar -tzf $out/signalbox-0.2.0-x86_64-unknown-linux-gnu.tar.gz | grep -q '/signalboxd$' || status=1
tar -tzf $out/signalbox-0.2.0-source.tar.gz | grep -q '^signalbox-0.2.0/scripts/release.sh$' || status=1
! tar -tzf $out/signalbox-0.2.0-x86_64-unknown-linux-gnu.tar.gz | grep -q ignored || status=1
say "the archives have the programs and the sources, and nothing that git ignores" $status
status=0
/usr/bin/python3 - $out/signalbox-0.2.0.cdx.json <<'EOF' >"$work/log" 2>&1 || status=1
import json, sys
sbom = json.load(open(sys.argv[1]))
rows = {row["name"]: row for row in sbom["components"]}
assert set(rows) == {"signalboxd", "signalbox", "signalbox-lab-command", "ring"}, rows
assert rows["ring"]["hashes"] == [{"alg": "SHA-256", "content": "aa00"}]
assert rows["ring"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
assert {"ref": "pkg:cargo/signalboxd@0.2.0", "dependsOn": ["pkg:cargo/ring@1.0.0"]} in sbom["dependencies"]
EOF
say "the SBOM has what the programs use, and no crate of the tests, the build or the compiler" $status
# The files have other times and modes, and it is the day after.
touch -d 2000-01-01 etc/a
chmod 600 docs/a
cp $out/SHA256SUMS "$work/first"
status=0
(umask 077 && TEST_DAY=2030-01-03 scripts/release.sh >"$work/log" 2>&1) || status=1
grep -q "is there already" "$work/log" && cmp $out/SHA256SUMS "$work/first" >>"$work/log" 2>&1 || status=1
say "a release can be made again on another day, octet by octet" $status
status=0
TEST_DAY=2030-01-03 scripts/release.sh --check >"$work/log" 2>&1 || status=1
cmp $out/SHA256SUMS "$work/first" >>"$work/log" 2>&1 || status=1
say "a check leaves the files of a release as they are" $status

echo "$tests checks of the release script, $failed failed"
[ "$failed" = 0 ]
