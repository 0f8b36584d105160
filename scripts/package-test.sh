#!/bin/bash
# Installs packages in a fresh root directory of a release, looks at what is there, purges them, and looks at what is left. There is no service
# manager: scripts/units.sh tries the units. usage: package-test.sh RELEASE FOLDER, as root
set -eu
release=$1 packages=$(realpath "$2")
. "$(dirname "$0")/env.sh"
[ "$(id -u)" = 0 ] || die "a root directory of its own needs root"
root=$(mktemp -d /tmp/signalbox-package.XXXXXX) log=$(mktemp)
trap 'rm -rf "$root" "$log"' EXIT
failed=0
check() { # what, command...
    local what=$1
    shift
    if "$@" >"$root/tmp/check" 2>&1; then
        echo "  ok      $what"
    else
        echo "  FAILED  $what"
        tail -n 10 "$root/tmp/check"
        failed=1
    fi
}
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
# All files, without those that tools of the distribution change when any package comes or goes.
listed() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/cache -o -path ./var/log/apt -o -path ./var/log/dpkg.log \
        -o -path './var/lib/dpkg/*' -o -path './var/lib/apt/*' -o -path ./run/adduser -o -name '*-' \) -prune -o -print | sort)
}

mmdebstrap --quiet --variant=minbase --include=adduser,iproute2,nftables,init-system-helpers,libgcc-s1,man-db,bash-completion,logrotate,tshark \
    --setup-hook='mkdir -p "$1/etc/dpkg/dpkg.cfg.d"' "$release" "$root" 2>"$log" || {
    tail -n 5 "$log" >&2
    die "$release could not be installed"
}
cp "$packages"/*.deb "$root/tmp/"
listed >"$root/tmp/before"

check "they are installed" inside sh -c 'dpkg --install /tmp/*.deb'
check "the command runs" inside signalbox --version
check "the command finds the lab" inside signalbox lab list --names
check "the configuration is sound" inside signalboxd --config /etc/signalbox/signalboxd.toml --check
check "the configuration belongs to the group of the daemon" test "$(inside stat -c %U:%G:%a /etc/signalbox/signalboxd.toml)" = root:signalbox:640
check "the daemon's user exists" inside getent passwd signalbox
check "there are pages of the manual" inside man --where signalbox-reserve signalbox-lab signalbox-lab-run signalboxd
check "applications find the interface" inside test -e /usr/share/signalbox/proto/signalbox/v1/node.proto
check "programs find the schemas" inside test -e /usr/share/signalbox/schema/decision.json
check "the examples are there" inside test -e /usr/share/doc/signalbox-dev/examples/pathping/pathping.py
check "the pages of the documentation name each other" inside test -e /usr/share/doc/signalbox/docs/operation.md
check "the page about the schemas is there" inside test -e /usr/share/doc/signalbox/docs/schema/README.md
check "a shell completes words" inside bash -c '. /usr/share/bash-completion/completions/signalbox && complete -p signalbox'
check "Wireshark has the dissectors" inside sh -c 'tshark -G protocols | grep -w boomerang'
check "logrotate reads its file" inside logrotate --debug /etc/logrotate.d/signalbox
check "the units name the installed program" inside grep -q '^ExecStart=/usr/sbin/signalboxd ' /lib/systemd/system/signalboxd.service
echo '# a change' >>"$root/etc/signalbox/signalboxd.toml"
check "they are installed again" inside sh -c 'dpkg --install /tmp/*.deb'
check "a changed configuration stays" inside grep -q '# a change' /etc/signalbox/signalboxd.toml
check "they are removed" inside dpkg --remove signalbox signalbox-dev signalbox-lab signalbox-wireshark
check "the configuration stays" test -e "$root/etc/signalbox/signalboxd.toml"
check "they are purged" inside dpkg --purge signalbox signalbox-dev signalbox-lab signalbox-wireshark
check "the daemon's user is gone" sh -c "! chroot '$root' getent passwd signalbox"
listed >"$root/tmp/after"
check "nothing is left" diff "$root/tmp/before" "$root/tmp/after"
exit $failed
