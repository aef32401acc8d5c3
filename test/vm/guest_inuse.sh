#!/bin/bash
# In the guest: copies files to mounted file systems all the time, while the daemon is killed and
# upgraded and the devices grow. Every copy must be equal and the file systems clean.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

rounds=1
[ -z "${UBLKD_SOAK:-}" ] || rounds=10
tree=$(dirname "$(dirname "$here")")
source=$work/source

ram_disk 700 || exit 1
cat >"$work/inuse.yaml" <<EOF2
daemon: {reactors: $reactors}
devices:
  - {name: ext4, queues: 2, backend: {type: file, path: /mnt/ram/f, size: 320MiB, create: true}}
  - {name: xfs, queues: 2, backend: {type: mem, size: 320MiB}}
EOF2

make_source() {
	mkdir -p "$source" && cp -r "$tree"/{base,reactor,ublk,backends,config,daemon} "$source"
}

# use TYPE: a file system on the device of that name, and copies to it until $work/enough is there.
use() {
	local type=$1 device
	device=$(node "$type")
	mkdir -p "/mnt/$type"
	mkfs."$type" "$([ "$type" = ext4 ] && echo -F || echo -f)" -q "$device" && mount "$device" "/mnt/$type" ||
		return
	(
		renice -n 19 -p $BASHPID >/dev/null
		copies=0
		while [ ! -e "$work/enough" ]; do
			place=/mnt/$type/copy$((copies % 3))
			rm -rf "$place" && cp -r "$source" "$place" && sync -f "$place" || exit 1
			copies=$((copies + 1))
			echo $copies >"$work/$type.copies"
		done
	) >"$work/$type.log" 2>&1 &
	echo $! >"$work/$type.pid"
}

# copied TYPE: the copying saw no error, and all that is there is equal.
copied() {
	local pid place
	read -r pid <"$work/$1.pid"
	wait "$pid" || { cat "$work/$1.log"; return 1; }
	echo "copies: $(cat "$work/$1.copies")"
	for place in "/mnt/$1"/copy*; do diff -r "$source" "$place" || return; done
}

checked() {
	local device
	device=$(node "$1")
	umount "/mnt/$1" || return
	case $1 in
	ext4) fsck.ext4 -fn "$device" ;;
	xfs) xfs_repair -n "$device" ;;
	esac
}

crash() {
	kill -KILL "$(server)"
	wait_for 60 no_server || return
	ublkd --config "$work/inuse.yaml" 2>>"$work/ublkd.log" &
	wait_for 60 settled
}

grow() {
	local size=$((320 + $1 * 20))
	ublkctl resize ext4 ${size}MiB && grow_ext4 /mnt/ext4 && ublkctl resize xfs ${size}MiB && xfs_growfs /mnt/xfs
}

ok "a tree to copy" make_source
ok "two devices start" start_daemon "$work/inuse.yaml"
ok "ext4 in use" use ext4
ok "xfs in use" use xfs
for ((round = 1; round <= rounds; round++)); do
	sleep 1
	ok "round $round: killed and started" crash
	sleep 1
	if driver_has QUIESCE; then
		ok "round $round: upgraded" ublkctl upgrade
	else
		skip "round $round: upgraded" "the driver is older than Linux 6.16: ublkctl upgrade refuses"
	fi
	wait_for 20 settled
	if ublkctl --json show xfs | grep -q '"UPDATE_SIZE"'; then
		ok "round $round: grown" grow $round
	else
		skip "round $round: grown" "the driver has no UPDATE_SIZE"
	fi
	ok "round $round: killed right after" crash
done
sleep 1
touch "$work/enough"
for type in ext4 xfs; do
	ok "$type: every copy is equal" copied $type
	ok "$type: clean" checked $type
done
ok "it ends" end_server
finish
