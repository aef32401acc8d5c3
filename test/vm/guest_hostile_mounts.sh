#!/bin/bash
# In the guest: the host's mounts are private, as without systemd. Mounts that exist when the daemon
# starts must not stay in its mount namespace: file systems on its own devices, under any name and
# through any device in between, are not in it at all; others leave it when the host unmounts them.
# Paths of backends can still be opened.
# Runs on: uml
# With --all: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

modprobe brd rd_nr=2 rd_size=$((100 * 1024)) max_part=0
modprobe loop
for module in dm-mod raid1 btrfs; do modprobe -q $module; done
for i in 0 1; do
	mkdir -p /mnt/ram$i
	mkfs.ext4 -q -O ^has_journal /dev/ram$i && mount /dev/ram$i /mnt/ram$i
done

names=(node dm md loop file btrfs)
{
	echo "daemon: {reactors: $reactors}"
	echo "devices:"
	for name in "${names[@]}"; do
		echo "  - {name: $name, backend: {type: mem, size: 128MiB}}"
	done
	echo "  - {name: ram, backend: {type: file, path: /mnt/ram0/f, size: 16MiB, create: true}}"
} >"$work/mounts.yaml"
ok "the host's mounts are private" said '^WARN +mounts +private: .* -> mount --make-rshared /' ublkctl doctor
start_daemon "$work/mounts.yaml"
ok "the log says so too" grep -q "the host's mounts are private" "$work/ublkd.log"

place() { mkdir -p "/mnt/$1" && mount "$2" "/mnt/$1" && echo data >"/mnt/$1/data"; }

use_node() {
	local major minor
	IFS=: read -r major minor <"/sys/block/$(basename "$(node node)")/dev"
	mknod "$work/odd" b "$major" "$minor" && mkfs.ext4 -Fq "$work/odd" && place node "$work/odd"
}
use_dm() {
	dmsetup create line --noudevsync --table "0 200000 linear $(node dm) 0" && dmsetup mknodes line &&
		mkfs.ext4 -Fq /dev/mapper/line && place dm /dev/mapper/line
}
use_md() {
	mdadm --create /dev/md7 --run --level=1 --raid-devices=2 --metadata=1.2 "$(node md)" missing &&
		mkfs.ext4 -Fq /dev/md7 && place md /dev/md7
}
use_loop() {
	loop=$(losetup --find --show "$(node loop)") && mkfs.ext4 -Fq "$loop" && place loop "$loop"
}
use_file() {
	mkfs.ext4 -Fq "$(node file)" && place file "$(node file)" && truncate -s 64M /mnt/file/image &&
		image=$(losetup --find --show /mnt/file/image) && mkfs.ext4 -Fq "$image" && place image "$image"
}
use_btrfs() { mkfs.btrfs -qf "$(node btrfs)" && place btrfs "$(node btrfs)"; }

places=(node loop file image)
ok "a file system by another name" use_node
ok "one over a loop device" use_loop
ok "one in a file of another" use_file
if command -v dmsetup >/dev/null; then
	ok "one over device-mapper" use_dm
	places+=(dm)
else
	skip "one over device-mapper" "needs dmsetup"
fi
if command -v mdadm >/dev/null; then
	ok "one over md" use_md
	places+=(md)
else
	skip "one over md" "needs mdadm"
fi
if command -v mkfs.btrfs >/dev/null; then
	ok "btrfs" use_btrfs
	places+=(btrfs)
else
	skip "btrfs" "needs btrfs-progs"
fi

# Its second life begins with all of them mounted.
killed() {
	kill -KILL "$daemon_pid"
	wait "$daemon_pid"
	start_daemon "$work/mounts.yaml" || return
	[ "$(ublkctl list | grep -cE ' live ')" = $((${#names[@]} + 1)) ] || { ublkctl list; return 1; }
}
ok "the daemon is killed, and adopts all" killed
holds() { grep -E " /mnt/$1 " "/proc/$(server)/mountinfo"; }
lost() { ! holds "$1"; }
for name in "${places[@]}"; do ok "$name: not mounted for the daemon" lost "$name"; done
for name in "${places[@]}"; do ok "$name: its users go on" grep -q data "/mnt/$name/data"; done

# ---- what the configuration needs, and what it may need yet ----
ok "the backend's file system is there" holds ram0
printf 'name: more\nbackend: {type: file, path: /mnt/ram1/f, size: 16MiB, create: true}\n' >"$work/more.yaml"
ok "a path of a later device resolves" ublkctl add -f "$work/more.yaml"
ok "it is the file that the host sees" test -e /mnt/ram1/f
ok "the later device goes" ublkctl del more

# ---- umounts ----
ok "the host unmounts what the daemon does not use" umount /mnt/ram1
ok "the daemon leaves it too" wait_for 20 lost ram1
free_disk() { [ ! -e "/sys/fs/ext4/$(basename "$1")" ]; }
ok "the disk is free" wait_for 20 free_disk /dev/ram1
ok "the other one is left alone" holds ram0

empty() {
	local mounts
	mounts=$(awk '$5 != "/"' "/proc/$(pids ublkd-keeper)/mountinfo")
	echo "$mounts"
	[ -z "$mounts" ]
}
ok "what keeps memory for the daemon has no mounts" empty

umount_all() {
	local place
	umount /mnt/image && losetup --detach "$image" || return
	for place in "${places[@]}"; do [ "$place" = image ] || umount "/mnt/$place" || return; done
}
ok "the host unmounts all that stands on ublk devices" umount_all
take_down() {
	losetup --detach "$loop" || return
	if command -v dmsetup >/dev/null; then dmsetup remove --noudevsync line || return; fi
	if command -v mdadm >/dev/null; then mdadm --stop /dev/md7 || return; fi
}
ok "nothing keeps what stood on them" take_down
for name in "${names[@]}"; do ok "$name: the device can be deleted" ublkctl del "$name"; done

# ---- shared, as with systemd ----
stop_daemon
mount --make-rshared /
ok "now the host's mounts are shared" said '^OK +mounts +shared' ublkctl doctor
start_daemon "$work/mounts.yaml"
silent() { ! grep "the host's mounts are private" "$work/ublkd.log"; }
ok "the log has nothing to say" silent
mount /dev/ram1 /mnt/ram1
ok "a mount arrives" wait_for 10 holds ram1
umount /mnt/ram1
ok "an umount arrives" wait_for 10 lost ram1
finish
