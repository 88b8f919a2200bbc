#!/usr/bin/env bash
# A mounted GlusterFS volume on N hosts by hand: the recipe of docs/systems/glusterfs.md as a plain shell script, the peer of
# benchmarks/gluster.py. Prints "mounted" and waits for the end of its input; everything goes with its first process.
# Usage: gluster.sh STATE HOSTS [arguments of volume create]
set -eu
state=$1 hosts=$2
shift 2
if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec setpriv --pdeathsig KILL \
        unshare --mount --net --pid --fork --kill-child=SIGKILL --mount-proc -- "$0" "$state" "$hosts" "$@"
fi
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
{
    echo "127.0.0.1 localhost"
    for i in $(seq "$hosts"); do echo "10.77.0.$((10 + i)) s$i"; done
} >"$state/hosts"
printf '#!/bin/sh\n[ "$1" != --version ] || echo gsyncd.py 4.0.0\n' >"$state/gsyncd"
chmod +x "$state/gsyncd"
cat >"$state/host.sh" <<'HOST'
set -eu
read -r pid _ <"/proc/self/stat"
mount -t proc proc /proc
mount -t tmpfs -o size=64m tmpfs /run
mkdir -p /run/gluster /run/b "$1/glusterd" "$1/log"
mount --bind "$1/glusterd" /var/lib/glusterd
mount --bind "$1/log" /var/log/glusterfs
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/gsyncd" "$(ls /usr/lib/*/glusterfs/gsyncd /usr/libexec/glusterfs/gsyncd 2>/dev/null | head -n 1)"
ip link set lo up
echo "$pid" >"$1/pid.new"
mv "$1/pid.new" "$1/pid"
exec sleep infinity
HOST
inside() { nsenter --target "$pid" --mount --net --pid --uts --ipc -- "$@"; }
start_host() { # name, address
    mkdir -p "$state/$1"
    unshare --mount --net --pid --uts --ipc --fork --kill-child=SIGKILL -- sh "$state/host.sh" "$state/$1" "$state" &
    until [ -s "$state/$1/pid" ]; do sleep 0.01; done
    read -r pid <"$state/$1/pid"
    ip link add "v-$1" type veth peer name eth0 netns "$pid"
    ip link set "v-$1" master br0 up
    inside ip address add "$2/24" dev eth0
    inside ip link set eth0 up
}
start_server() { # name
    read -r pid <"$state/$1/pid"
    truncate -s 600M "$state/$1.img"
    loop=$(flock "$state/loop.lock" losetup --find --show --direct-io=on "$state/$1.img")
    mkfs.xfs -q -f -K -i size=512 "$loop"
    inside mount -o noatime "$loop" /run/b
    losetup --detach "$loop"
    inside glusterd -p /run/glusterd.pid
}
for i in $(seq "$hosts"); do start_host "s$i" "10.77.0.$((10 + i))"; done
start_host c1 10.77.0.101
servers=()
for i in $(seq "$hosts"); do
    start_server "s$i" &
    servers+=($!)
done
wait "${servers[@]}"
read -r pid <"$state/s1/pid"
gluster() { inside gluster --mode=script "$@" >/dev/null; }
bricks=(s1:/run/b/brick)
for i in $(seq 2 "$hosts"); do
    gluster peer probe "s$i"
    bricks+=("s$i:/run/b/brick")
done
for i in $(seq "$hosts"); do
    read -r pid <"$state/s$i/pid"
    until [ "$(inside gluster --xml peer status | grep -c '<state>3</state>')" = $((hosts - 1)) ]; do sleep 0.03; done
done
read -r pid <"$state/s1/pid"
gluster volume create assay "$@" transport tcp "${bricks[@]}"
gluster volume start assay
read -r pid <"$state/c1/pid"
inside mkdir -p /run/mnt
inside mount -t glusterfs s1:/assay /run/mnt
until [ "$(inside sh -c 'cat /run/mnt/.meta/graphs/active/assay-client-*/private' | grep -c '^connected = 1')" = "$hosts" ]; do
    sleep 0.03
done
echo mounted
read -r _ || true
