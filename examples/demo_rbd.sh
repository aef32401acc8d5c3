#!/bin/bash
# The demo of Ceph: starts a cluster of one monitor and one OSD, creates an image, serves it as a disk,
# uses it, shows where the time goes and what a disk whose OSD stands still looks like, and removes
# everything at the end. ./dev demo --rbd runs it on this machine or in the test guest. Needs root, the
# ublk driver, and Ceph's programs.
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/demo_lib.sh"

ceph=$work/ceph
cluster() { "$here/../test/ceph/cluster.sh" "$1" "$ceph" "${@:2}"; }
# Without a cluster that answers it would wait for ever.
rbd() { CEPH_CONF=$ceph/ceph.conf CEPH_ARGS='' timeout -k 1 60 rbd "$@"; }

# What waits for the OSD ends before the disk is given back, and the cluster after that.
undo() {
	if [ ! -e "$ceph/ceph.conf" ]; then return; fi
	case $1 in
	first) cluster resume-osd 2>/dev/null || true ;;
	last) cluster kill || true ;;
	esac
}

# A guest's loopback is down.
start_cluster() {
	local kept=$here/../build/ceph/memstore from=()
	if [ -e "$kept/made" ]; then from=(--from "$kept"); fi
	ip link set lo up 2>/dev/null || true
	cluster start "${from[@]}"
	rbd create --size 256M rbd/vm-1
	rbd info rbd/vm-1
}

# Reads one block of the image while its OSD is paused.
read_paused() {
	local i
	cluster pause-osd
	dd if="$1" of=/dev/null bs=4k count=1 iflag=direct status=none &
	load=$!
	for i in $(seq 200); do
		if grep -q 'does not answer' "$work/why" 2>/dev/null; then break; fi
		sleep 0.1
		ctl why-stuck vm-1 >"$work/why" 2>&1 || true
	done
	cat "$work/why"
	if ! grep -q 'does not answer' "$work/why"; then
		echo "demo: after $((i / 10)) s there is no verdict" >&2
		return 1
	fi
	cluster resume-osd
	wait "$load"
	load=''
}

step "a Ceph cluster in $ceph: one monitor, one OSD in memory, one image"
"$here/../test/ceph/cluster.sh" check
start_cluster

step "the image as a disk, from $here/demo_rbd.yaml"
serve demo_rbd.yaml "s|/etc/ceph/ceph.conf|$ceph/ceph.conf|"
disk=$(node vm-1)

step "a file system on $disk"
use_filesystem "$disk"

step "random reads and writes in a file of it, every block verified"
run_load "$work/mnt/load" 8M

step "where the time of these requests went: in ublkd, or in librbd and the OSD (BACKEND)"
ctl stats --layers vm-1

step "the connection: requests that waited for the image (WAIT), and for its cluster (ANSWER); librbd's threads"
ctl show vm-1 | grep -E '^(library|QUEUE| +[0-9])'

step "the OSD stands still, and a read waits: why?"
read_paused "$disk"
echo "   The OSD goes on: the read has ended."

step "the file system is clean, and all of it is in the image"
umount "$work/mnt"
fsck.ext4 -fn "$disk"
cmp "$disk" <(rbd export --no-progress rbd/vm-1 -)

step "everything is removed"
remove "$disk"
cluster kill

finished "an image served, ext4 checked, data verified, an OSD waited for, nothing left behind"
