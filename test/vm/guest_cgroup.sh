#!/bin/bash
# In the guest: whose I/O is it? What docs/ublk.md says about control groups and I/O priorities: a client is counted
# and limited at /dev/ublkbN in its own group, the storage below in the daemon's.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

groups=/mnt/groups
mkdir -p $groups
if ! mount -t cgroup2 none $groups || ! echo +io >$groups/cgroup.subtree_control; then
	skip "control groups" "no cgroup2 with the io controller"
	finish
fi
mkdir $groups/client $groups/daemon
modprobe brd rd_nr=1 rd_size=$((64 * 1024)) max_part=0

cat >"$work/group.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: disk, id: 1, queues: 1, backend: {type: file, path: /dev/ram0}}
EOF
start_daemon "$work/group.yaml"
ok "a device on a block device" wait_for 20 test -b /dev/ublkb1
ok "the daemon moves to a group of its own" bash -c "echo $daemon_pid >$groups/daemon/cgroup.procs"

number() { echo "$((0x$(stat -c %t "$1"))):$((0x$(stat -c %T "$1")))"; }
above=$(number /dev/ublkb1) below=$(number /dev/ram0)
in_client() { bash -c "echo \$\$ >$groups/client/cgroup.procs; exec $*"; }
bytes() { # GROUP DEVICE: written so far
	local n
	n=$(sed -nE "s/^$2 .*wbytes=([0-9]+).*/\1/p" "$groups/$1/io.stat")
	echo "${n:-0}"
}
write_mib() { in_client dd if=/dev/zero of=/dev/ublkb1 bs=256k count=$(($1 * 4)) oflag=direct status=none; }
ms() { # COMMAND...: how long it takes by the guest's clock
	local begin=${EPOCHREALTIME/./}
	"$@" >&2 && echo $(((${EPOCHREALTIME/./} - begin) / 1000))
}

ok "a client writes 4 MiB" write_mib 4
counted() { [ "$(bytes "$1" "$2")" = "$3" ]; }
ok "... counted in its group at the ublk device" counted client "$above" $((4 << 20))
ok "... in the daemon's at the storage" counted daemon "$below" $((4 << 20))
ok "... and nowhere else" counted client "$below" 0
ok "... either" counted daemon "$above" 0

limit() { echo "$2 wbps=$3" >"$groups/$1/io.max"; }
# At 1 MiB/s 3 MiB take nearly three seconds.
slow() {
	local took
	limit "$1" "$2" $((1 << 20))
	took=$(ms write_mib 3)
	limit "$1" "$2" max
	echo "$took ms"
	[ "$took" -ge 2000 ]
}
# A busy machine is slow now and then; under a limit it would be so each time.
not_slow() {
	for _ in 1 2 3 4 5 6; do
		if ! slow "$@"; then return; fi
	done
	return 1
}
ok "io.max of the client at the storage does not limit it" not_slow client "$below"
ok "io.max of the client at the ublk device does" slow client "$above"
ok "io.max of the daemon at the storage limits it, too" slow daemon "$below"

stop_daemon
finish
