#!/bin/bash
# Installs the release build, or removes what it installed. usage: install.sh [--uninstall]
# DESTDIR: a folder that stands for the root directory. PREFIX: /usr/local without it. UNITDIR: where systemd looks for units.
# A configuration and a file for logrotate that exist are not replaced. --uninstall leaves files that differ from those of this tree, and files
# that belong to a package of Debian.
set -eu
. "$(dirname "$0")/env.sh"
prefix=${PREFIX:-/usr/local} etc=/etc root=${DESTDIR:-}
# The units have the prefix in a command line, in which systemd reads blanks, quotes, % and $.
[[ $prefix =~ ^(/[A-Za-z0-9._+-]+)+$ ]] || die "PREFIX is a path such as /usr/local: letters, digits and . _ + - between slashes"
units=${UNITDIR:-$([ "$prefix" = /usr ] && echo /lib/systemd/system || echo /etc/systemd/system)}
zsh=$prefix/share/zsh/$([ "$prefix" = /usr ] && echo vendor-completions || echo site-functions)
share=$prefix/share

put() { # mode, file, place
    install -D -m "$1" "$2" "$root$3"
}

# For files of the operator.
put_new() { # mode, file, place
    if [ -e "$root$3" ]; then say "$3 is there already and stays as it is"; else put "$@"; fi
}

take() { # place
    local file=$root$1
    [ -e "$file" ] || return 0
    if owned "$1"; then
        say "$1 belongs to a package and stays"
    else
        rm -f "$file"
    fi
}

take_unchanged() { # file that was installed, place
    if [ -e "$root$2" ] && ! cmp -s "$1" "$root$2"; then
        say "$2 was changed and stays"
    else
        take "$2"
    fi
}

# dpkg may know a file of /lib by its place below /usr.
owned() { # place
    local place
    for place in "$1" "/usr$1"; do
        ! dpkg-query --admindir="$root/var/lib/dpkg" --search "$place" >/dev/null 2>&1 || return 0
    done
    return 1
}

programs() {
    for program in signalbox signalbox-lab signalboxd; do
        [ -x "$bin/$program" ] || die "$bin/$program is missing: run cargo build --release -p signalboxd -p signalbox -p signalbox-lab-command"
    done
    put 755 "$bin/signalbox" "$prefix/bin/signalbox"
    put 755 "$bin/signalbox-lab" "$prefix/bin/signalbox-lab"
    put 755 "$bin/signalboxd" "$prefix/sbin/signalboxd"
    # What is left names functions in a report of a fault.
    ! command -v strip >/dev/null || strip --strip-debug "$root$prefix"/bin/signalbox{,-lab} "$root$prefix/sbin/signalboxd"
    local shell place
    for shell in "bash $share/bash-completion/completions/signalbox" "zsh $zsh/_signalbox" "fish $share/fish/vendor_completions.d/signalbox.fish"; do
        place=${shell#* }
        "$bin/signalbox" completion "${shell%% *}" >"$work/script"
        put 644 "$work/script" "$place"
    done
}

# The pages come from the commands' own help. The programs are found by PATH, because the path of the build is no part of a page.
page() { # section, words of the command
    local name=${2// /-}
    local place=$share/man/man$1/$name.$1
    help2man --no-info --section "$1" --version-string "$version" --name "$(about "$2")" --output "$work/page" "$2"
    # man(1) and apropos(1) find a page by a name of one word.
    sed -i "s/^\.TH .* \"$1\" /.TH ${name^^} \"$1\" /; /^\.SH NAME/{n;s/^$2 /$name /}" "$work/page"
    put 644 "$work/page" "$place"
    gzip -9nf "$root$place"
}
about() { $1 --help | sed -n '1{s/\.$//;p}'; }
# The words of all commands, and of those below them.
commands() {
    echo "$1"
    local word
    for word in $($1 --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\)  .*/\1/p'); do
        [ "$word" = help ] || commands "$1 $word"
    done
}
pages() {
    if ! command -v help2man >/dev/null; then
        say "no manual pages: help2man is not installed"
        return
    fi
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    local PATH=$bin:$PATH
    commands signalbox | while read -r words; do page 1 "$words"; done
    page 8 signalboxd
}

# The units name the programs by their place.
with_prefix() { # file in etc
    sed "s|/usr/local/sbin/|$prefix/sbin/|" "etc/$1" >"$work/$1"
}
documents=(README.md docs/*.md docs/*.ipynb docs/*.svg docs/wire/*.md docs/schema/README.md docs/schema/*.json)

settings() {
    local unit file
    for unit in signalboxd.service signalboxd-helper.service signalbox-reserve@.service; do
        with_prefix $unit
        put 644 "$work/$unit" "$units/$unit"
    done
    for unit in signalboxd-helper.conf signalboxd-vrf.conf; do
        with_prefix $unit
        put 644 "$work/$unit" "$share/doc/signalbox/examples/$unit"
    done
    put_new 644 etc/signalbox.logrotate "$etc/logrotate.d/signalbox"
    [ -e "$root$etc/signalbox" ] || install -d -m 750 "$root$etc/signalbox"
    put_new 640 etc/signalboxd.toml "$etc/signalbox/signalboxd.toml"
    for file in "${documents[@]}"; do put 644 "$file" "$share/doc/signalbox/$file"; done
}

next_steps() {
    say "installed. What is left to do, as root (docs/operation.md#install):"
    cat <<END
    useradd --system --no-create-home --shell /usr/sbin/nologin signalbox
    chgrp signalbox $etc/signalbox $etc/signalbox/signalboxd.toml
    $prefix/sbin/signalboxd --config $etc/signalbox/signalboxd.toml --check
    systemctl daemon-reload
    systemctl enable --now signalboxd
END
}

uninstall() {
    local unit file place doc=$share/doc/signalbox
    for place in "$prefix"/bin/signalbox{,-lab} "$prefix/sbin/signalboxd" "$share/bash-completion/completions/signalbox" \
        "$zsh/_signalbox" "$share/fish/vendor_completions.d/signalbox.fish"; do
        take "$place"
    done
    for place in "$root$share"/man/man1/signalbox{,-*}.1.gz "$root$share/man/man8/signalboxd.8.gz"; do take "${place#"$root"}"; done
    for unit in signalboxd.service signalboxd-helper.service signalbox-reserve@.service; do
        with_prefix $unit
        take_unchanged "$work/$unit" "$units/$unit"
    done
    for unit in signalboxd-helper.conf signalboxd-vrf.conf; do take "$doc/examples/$unit"; done
    for file in "${documents[@]}"; do take "$doc/$file"; done
    take_unchanged etc/signalbox.logrotate "$etc/logrotate.d/signalbox"
    take_unchanged etc/signalboxd.toml "$etc/signalbox/signalboxd.toml"
    for place in "$doc"/{docs/wire,docs/schema,docs,examples,} "$etc/signalbox"; do
        [ ! -d "$root$place" ] || rmdir --ignore-fail-on-non-empty "$root$place"
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$(realpath -m "$bin")
case ${1:-} in
"")
    programs
    pages
    settings
    [ -n "$root" ] || next_steps
    ;;
--uninstall) uninstall ;;
*) die "usage: install.sh [--uninstall]" ;;
esac
