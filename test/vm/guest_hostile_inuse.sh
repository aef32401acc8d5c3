#!/bin/bash
# In the guest: devices in use in ways that the path /dev/ublkbN does not show: loop devices, nodes
# with other names, other mount namespaces, device-mapper, md, swap, file systems that are no longer
# mounted anywhere. del without --force, a shrink, and a reload that restarts the device are refused
# with the reason; --force works.
# Runs on: uml
# With --all: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

names=(loop node mount space lazy luks lvm md swap part deep btrfs)
modprobe loop
for module in dm-crypt dm-mod raid1 btrfs; do modprobe -q $module; done

# yaml SIZE: the configuration; SIZE is that of the device "space", all others are fixed.
yaml() {
	local name size
	echo "daemon: {reactors: $reactors}"
	echo "devices:"
	for name in "${names[@]}"; do
		size=128MiB
		[ "$name" != space ] || size=$1
		echo "  - {name: $name, backend: {type: mem, size: $size}}"
	done
}
yaml 128MiB >"$work/inuse.yaml"
start_daemon "$work/inuse.yaml"

# refused WORDS COMMAND...: the command fails and prints WORDS.
refused() {
	local code=0
	answers "$@" || code=$?
	[ $code = 1 ]
}

can_resize=
! driver_has UPDATE_SIZE || can_resize=1

# kept NAME WORDS: del and a shrink are refused while the device is in use, with the reason WORDS.
kept() {
	ok "$1: del is refused" refused "in use: .*$2" ublkctl del "$1"
	if [ "$can_resize" ]; then
		ok "$1: a shrink is refused" refused "in use: .*$2" ublkctl resize "$1" 64MiB
	else
		skip "$1: a shrink is refused" "the driver has no UPDATE_SIZE"
	fi
	ok "$1: it serves" dd if="$(node "$1")" of=/dev/null bs=4k count=1 iflag=direct status=none
}
freed() { ok "$1: it goes when nobody uses it" ublkctl del "$1"; }
forced() { ok "$1: --force" ublkctl del --force "$1"; }

# alias NAME: a node of another name in another place, whose path it sets in $alias.
alias=
alias() {
	local major minor
	alias=$work/$1.node
	IFS=: read -r major minor <"/sys/block/$(basename "$(node "$1")")/dev"
	mknod "$alias" b "$major" "$minor"
}

# hold COMMAND...: runs it in the background as process $held; it creates $work/held when it is ready.
hold() {
	rm -f "$work/held"
	"$@" &
	held=$!
	wait_for 20 test -e "$work/held"
}
let_go() {
	kill "$held" 2>/dev/null
	wait "$held" 2>/dev/null
	return 0
}
hold_open() { exec 9<"$1" && touch "$work/held" && exec sleep 600; }
hold_folder() { cd "$1" && touch "$work/held" && exec sleep 600; }

# ---- loop devices ----
loop=$(losetup --find --show "$(node loop)")
ok "a loop device stands on it" test -b "$loop"
kept loop "held by $(basename "$loop")"
# Then only the loop device is left, which no process uses.
forced loop
losetup --detach "$loop"

# ---- nodes of other names ----
alias node
ok "a node of another name is open" hold hold_open "$alias"
kept node "open by sleep\[$held\]"
let_go
freed node

alias mount
mkfs.ext4 -Fq "$alias"
mkdir -p /mnt/alias
ok "a file system is mounted by another name" mount "$alias" /mnt/alias
kept mount "mounted on /mnt/alias"
umount /mnt/alias
freed mount

# ---- another mount namespace, as a container's ----
mkdir -p /mnt/space
mkfs.ext4 -Fq "$(node space)"
cat >"$work/space.sh" <<'END'
mount "$1" /mnt/space && cp -r /bin/bash /mnt/space/file && touch "$2/held" && exec sleep 600
END
ok "a file system is mounted in another namespace" \
	hold unshare --mount --propagation private bash "$work/space.sh" "$(node space)" "$work"
kept space "mounted on /mnt/space"
reloaded() {
	yaml "$1" >"$work/inuse.yaml"
	kill -HUP "$daemon_pid"
	wait_for 20 grep -qE "$2" "$work/ublkd.log"
}
if [ "$can_resize" ]; then
	ok "a reload with another size makes it larger" reloaded 192MiB 'device is resized.*device=space'
else
	ok "a reload with another size leaves it as it is" \
		reloaded 192MiB 'device is not stopped and stays as it is.*device=space.*mounted on /mnt/space'
fi
ok "the container's file system is whole" \
	cmp /bin/bash "/proc/$held/root/mnt/space/file"
forced space
let_go

# ---- no mount is left, but the file system is ----
mkdir -p /mnt/lazy
mkfs.ext4 -Fq "$(node lazy)" && mount "$(node lazy)" /mnt/lazy
ok "a process is in a file system" hold hold_folder /mnt/lazy
ok "which is unmounted lazily" umount --lazy /mnt/lazy
kept lazy "ublkb[0-9]+ has a file system in use"
let_go
idle() { [ ! -e "/sys/fs/ext4/$(basename "$(node "$1")")" ]; }
wait_for 10 idle lazy
freed lazy

# ---- device-mapper ----
luks() {
	printf 'a key of no secret' >"$work/key"
	cryptsetup luksFormat --batch-mode --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
		--key-file "$work/key" "$(node luks)" &&
		cryptsetup open --key-file "$work/key" "$(node luks)" secret
}
if ! command -v cryptsetup >/dev/null; then
	skip "LUKS" "needs cryptsetup"
else
	ok "LUKS is open on it" luks
	kept luks 'held by dm-[0-9]+ \(secret\)'
	cryptsetup close secret
	freed luks
fi

export LVM_SYSTEM_DIR=$work/lvm LVM_SUPPRESS_FD_WARNINGS=1
mkdir -p "$LVM_SYSTEM_DIR"
lvm_config='devices { scan="/dev" use_devicesfile=0 } activation { udev_sync=0 udev_rules=0 }
	global { use_lvmpolld=0 locking_dir="/run/lock/lvm" } backup { backup=0 archive=0 }'
lvm_do() { lvm "$@" --config "$lvm_config"; }
volume() {
	local types="devices { types=[ \"ublk-block\", 16 ] }"
	lvm_config+=" $types"
	mkdir -p /run/lock/lvm
	lvm_do pvcreate -y "$(node lvm)" && lvm_do vgcreate group "$(node lvm)" &&
		lvm_do lvcreate -y -Wn -Zn -l 100%FREE -n volume group
}
if ! command -v lvm >/dev/null; then
	skip "LVM" "needs lvm2"
else
	ok "a logical volume is on it" volume
	kept lvm 'held by dm-[0-9]+ \(group-volume\)'
	lvm_do vgchange -an group
	freed lvm
fi

# ---- md ----
array() { mdadm --create /dev/md7 --run --level=1 --raid-devices=2 --metadata=1.2 "$(node md)" missing; }
if ! command -v mdadm >/dev/null; then
	skip "md" "needs mdadm"
else
	ok "an md array is on it" array
	kept md 'held by md7'
	mdadm --stop /dev/md7
	freed md
fi

# ---- swap ----
alias swap
mkswap -q "$alias"
ok "swap by another name" swapon "$alias"
kept swap 'used as swap'
swapoff "$alias"
freed swap

# ---- a partition; a loop device over a file in a file system that nobody has mounted any more ----
part=$(node part)p1
ok "a partition is there" addpart "$(node part)" 1 2048 65536
ok "a partition is open" hold hold_open "$part"
kept part "open by sleep\[$held\]"
let_go
freed part

mkdir -p /mnt/deep
mkfs.ext4 -Fq -O ^has_journal "$(node deep)" && mount "$(node deep)" /mnt/deep
truncate -s 32M /mnt/deep/image
loop=$(losetup --find --show /mnt/deep/image)
ok "a loop device over a file on it is all that is left" umount --lazy /mnt/deep
kept deep "held by $(basename "$loop")"
losetup --detach "$loop"
wait_for 10 idle deep
freed deep

# ---- a file system with a device number of its own ----
if ! command -v mkfs.btrfs >/dev/null; then
	skip "btrfs" "needs btrfs-progs"
else
	mkdir -p /mnt/btrfs
	sed 's/space/btrfs/g; s/ && cp [^&]*&&/ \&\&/' "$work/space.sh" >"$work/btrfs.sh"
	mkfs.btrfs -qf "$(node btrfs)"
	ok "btrfs is mounted in another namespace" hold unshare --mount --propagation private \
		bash "$work/btrfs.sh" "$(node btrfs)" "$work"
	kept btrfs 'mounted on /mnt/btrfs'
	let_go
	freed btrfs
fi
finish
