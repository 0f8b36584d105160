#!/bin/bash
# Installs the release build, or takes away what it installed. usage: install.sh [--uninstall]
# DESTDIR: a folder that stands for the root directory. PREFIX: /usr/local without it. SYSCONFDIR: /etc. UNITDIR: where systemd looks for units.
# A configuration that exists is not replaced, and --uninstall leaves it where it has been changed.
set -eu
. "$(dirname "$0")/env.sh"
prefix=${PREFIX:-/usr/local} etc=${SYSCONFDIR:-/etc} root=${DESTDIR:-}
case $prefix in /*) ;; *) die "PREFIX is a path that begins with /" ;; esac
units=${UNITDIR:-$([ "$prefix" = /usr ] && echo /lib/systemd/system || echo /etc/systemd/system)}
zsh=$prefix/share/zsh/$([ "$prefix" = /usr ] && echo vendor-completions || echo site-functions)
share=$prefix/share

put() { # mode, file, place
    install -D -m "$1" "$2" "$root$3"
}

programs() {
    for program in signalbox signalboxd; do
        [ -x "$bin/$program" ] || die "$bin/$program is missing: run cargo build --release -p signalboxd -p signalbox"
    done
    put 755 "$bin/signalbox" "$prefix/bin/signalbox"
    put 755 "$bin/signalboxd" "$prefix/sbin/signalboxd"
    # What is left names functions in a report of a fault.
    ! command -v strip >/dev/null || strip --strip-debug "$root$prefix/bin/signalbox" "$root$prefix/sbin/signalboxd"
    local shell place
    for shell in "bash $share/bash-completion/completions/signalbox" "zsh $zsh/_signalbox" "fish $share/fish/vendor_completions.d/signalbox.fish"; do
        place=${shell#* }
        "$bin/signalbox" completion "${shell%% *}" >"$work/script"
        put 644 "$work/script" "$place"
    done
}

# The pages come from the commands' own help.
page() { # section, words of the command, program with these words
    local place=$share/man/man$1/${2// /-}.$1
    help2man --no-info --section "$1" --version-string "$version" --name "$(about "$3")" --output "$work/page" "$3"
    # The path of the build is no part of the command.
    sed -i "s|$bin/||g" "$work/page"
    put 644 "$work/page" "$place"
    gzip -9nf "$root$place"
}
about() { $1 --help | sed -n '1s/\.$//p'; }
# The words of all commands, and of those below them.
commands() {
    echo "$1"
    local word
    for word in $("$bin"/$1 --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\)  .*/\1/p'); do
        [ "$word" = help ] || commands "$1 $word"
    done
}
pages() {
    if ! command -v help2man >/dev/null; then
        say "no manual pages: help2man is not installed"
        return
    fi
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    commands signalbox | while read -r words; do page 1 "$words" "$bin/$words"; done
    page 8 signalboxd "$bin/signalboxd"
}

settings() {
    local unit
    for unit in signalboxd.service signalboxd-helper.service; do
        sed "s|/usr/local/sbin/|$prefix/sbin/|" "etc/$unit" >"$work/$unit"
        put 644 "$work/$unit" "$units/$unit"
    done
    for unit in signalboxd-helper.conf signalboxd-vrf.conf; do
        sed "s|/usr/local/sbin/|$prefix/sbin/|" "etc/$unit" >"$work/$unit"
        put 644 "$work/$unit" "$share/doc/signalbox/examples/$unit"
    done
    put 644 etc/signalbox.logrotate "$etc/logrotate.d/signalbox"
    if [ -e "$root$etc/signalbox/signalboxd.toml" ]; then
        say "$etc/signalbox/signalboxd.toml stays as it is"
    else
        install -d -m 750 "$root$etc/signalbox"
        put 640 etc/signalboxd.toml "$etc/signalbox/signalboxd.toml"
    fi
    put 644 README.md "$share/doc/signalbox/README.md"
    local file
    for file in docs/*.md docs/wire/*.md docs/schema/*.json; do put 644 "$file" "$share/doc/signalbox/$file"; done
}

uninstall() {
    local unit
    rm -f "$root$prefix/bin/signalbox" "$root$prefix/sbin/signalboxd" "$root$share/bash-completion/completions/signalbox" \
        "$root$zsh/_signalbox" "$root$share/fish/vendor_completions.d/signalbox.fish" "$root$etc/logrotate.d/signalbox" \
        "$root$share"/man/man1/signalbox.1.gz "$root$share"/man/man1/signalbox-*.1.gz "$root$share/man/man8/signalboxd.8.gz"
    for unit in signalboxd.service signalboxd-helper.service; do rm -f "$root$units/$unit"; done
    rm -rf "$root$share/doc/signalbox"
    local place=$root$etc/signalbox/signalboxd.toml
    if cmp -s etc/signalboxd.toml "$place"; then
        rm -f "$place"
        rmdir --ignore-fail-on-non-empty "${place%/*}"
    elif [ -e "$place" ]; then
        say "${place#"$root"} was changed and stays"
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$(realpath -m "$bin")
case ${1:-} in
"")
    programs
    pages
    settings
    if [ -z "$root" ]; then
        say "installed. Next: a user for the daemon, and its start (docs/operation.md#install)"
    fi
    ;;
--uninstall) uninstall ;;
*) die "usage: install.sh [--uninstall]" ;;
esac
