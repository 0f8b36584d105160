#!/bin/bash
# Builds the image of a container from the packages in target/package, on a base that mmdebstrap makes, and tries it: two nodes on one
# link reserve for each other. podman keeps the image in target/image, and nothing else of this machine is touched.
# BASE: a base from a registry instead, such as docker.io/library/debian:12-slim. ENGINE: the runtime of podman, crun or runc.
# usage: image.sh, as root
set -eu
. "$(dirname "$0")/env.sh"
[ "$(id -u)" = 0 ] || die "as root: the two containers get a link between their network namespaces"
scripts/setup.sh image
ls target/package/signalbox_*.deb >/dev/null 2>&1 || die "no packages in target/package: make package"

place=$PWD/target/image
mkdir -p "$place"
work=$(mktemp -d)
# crun needs cgroups of version 2 alone.
engine=${ENGINE:-$([ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ] && echo crun || echo runc)}
podman() {
    command podman --root "$place/storage" --runroot "$place/run" --storage-driver vfs --runtime "$engine" --cgroup-manager cgroupfs "$@"
}
clean() {
    podman rm --force --time 1 signalbox-left signalbox-right >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean EXIT

if [ -z "${BASE:-}" ]; then
    BASE=localhost/signalbox-base
    if ! podman image exists "$BASE"; then
        say "a base of Debian 12"
        mmdebstrap --quiet --variant=minbase --include=adduser,init-system-helpers,iproute2,libgcc-s1,nftables,procps bookworm "$work/base.tar"
        podman import --quiet "$work/base.tar" "$BASE" >/dev/null
    fi
fi
say "the image"
podman build --quiet --isolation chroot --build-arg "BASE=$BASE" --file packaging/container/Dockerfile --tag signalbox target/package

say "two nodes on one link"
# The limits of this process: a container may not have more.
limits=(--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit "nproc=4096:4096")
start() { # node, other node
    cat >"$work/$1.toml" <<END
version = 1
[node]
name = "$1"
protocols = ["gist", "ping", "qos"]
[interfaces.lan0]
capacity = "10mbit"
[policy]
default = "allow"
[enforcement]
mode = "best-effort"
END
    podman run --detach --name "signalbox-$1" --network none --cap-add NET_ADMIN --cap-add NET_RAW "${limits[@]}" \
        --volume "$work/$1.toml:/etc/signalbox/signalboxd.toml:ro" signalbox >/dev/null
}
inside() { podman exec "signalbox-$1" "${@:2}"; }
start left
start right
pid() { podman inspect --format '{{.State.Pid}}' "signalbox-$1"; }
ip link add name lan0 netns "$(pid left)" type veth peer name lan0 netns "$(pid right)"
nsenter --target "$(pid left)" --net sh -c 'ip address add 10.55.0.1/24 dev lan0 && ip link set lan0 up'
nsenter --target "$(pid right)" --net sh -c 'ip address add 10.55.0.2/24 dev lan0 && ip link set lan0 up'
for node in left right; do
    tries=0
    until inside "$node" signalbox show interfaces --json 2>/dev/null | grep -q '"name":"lan0".*"up":true'; do
        tries=$((tries + 1))
        if [ $tries = 100 ]; then
            podman logs "signalbox-$node" >&2
            die "the daemon of $node does not show its link"
        fi
        sleep 0.2
    done
done
inside left signalbox reserve 10.55.0.2 --rate 1mbit --proto udp --dport 5004 --hold 1s
for node in left right; do
    podman stop --time 20 "signalbox-$node" >/dev/null
    status=$(podman inspect --format '{{.State.ExitCode}}' "signalbox-$node")
    [ "$status" = 0 ] || die "the daemon of $node ended with $status"
done
say "the image localhost/signalbox is in $place/storage: two nodes reserved for each other, and ended with 0"
