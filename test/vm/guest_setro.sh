#!/bin/bash
# In the guest: who may write to a device, and who changes that. BLKROSET (blockdev --setro, --setrw) on a device
# that is writable and on those that are read_only; what a crash, an upgrade and a resize leave of it; a file system
# that is mounted meanwhile.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 200 || exit 1
mkdir -p /mnt/fs
truncate -s 16M /mnt/ram/origin
mkfs.ext4 -q /mnt/ram/origin
cp /mnt/ram/origin /mnt/ram/reader
cp /mnt/ram/origin /mnt/ram/writer

cat >"$work/setro.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: writer, id: 1, backend: {type: file, path: /mnt/ram/writer}}
  - {name: reader, id: 2, read_only: true, backend: {type: file, path: /mnt/ram/reader}}
  - {name: memory, id: 3, read_only: true, backend: {type: mem, size: 16MiB}}
EOF
writer=/dev/ublkb1 reader=/dev/ublkb2 memory=/dev/ublkb3

is_ro() { [ "$(blockdev --getro "$1")" = 1 ]; }
live() { [ "$(ublkctl --json list | jq '[.[] | select(.state == "live")] | length')" = 3 ]; }
block() { dd if=/dev/urandom of="$1" bs=4k count=1 oflag=direct conv=notrunc status=none; }
refused() {
	answers 'Operation not permitted|Permission denied' block "$1"
	[ $? = 1 ]
}
reads() { dd if="$1" of=/dev/null bs=1M iflag=direct status=none; }
written() { ublkctl --json stats | jq ".devices[] | select(.name == \"$1\") | [.ops[\"write\", \"discard\", \"write_zeroes\"].done] | add"; }
was_asked_nothing() { [ "$(written "$1")" = 0 ]; }
no_discard() { ! blkdiscard -f "$1" && ! blkdiscard -f -z "$1"; }
# -w: or mount(8) tries again, read-only
no_mount() { ! mount -w "$1" /mnt/fs; }
mounts_read_only() {
	mount -o ro "$1" /mnt/fs && ! touch /mnt/fs/file && ls /mnt/fs/lost+found
	local ret=$?
	umount /mnt/fs
	return $ret
}
crash() {
	kill -KILL "$(server)"
	wait "$daemon_pid"
	start_daemon "$work/setro.yaml"
	wait_for 20 live
}

start_daemon "$work/setro.yaml"
ok "three devices" wait_for 20 live

# ---- read_only ----

for kind in reader memory; do
	device=${!kind}
	# the ioctl is about a flag of its own, beside that of the disk: there is nothing to refuse
	ok "$kind: --setrw is no error" blockdev --setrw "$device"
	ok "$kind: ... and changes nothing" is_ro "$device"
	ok "$kind: a write is refused" refused "$device"
	ok "$kind: discards are refused" no_discard "$device"
	ok "$kind: reads are not" reads "$device"
	ok "$kind: ublkd was not asked to write" was_asked_nothing $kind
done
ok "reader: is not mounted for writing" no_mount $reader
ok "reader: is mounted for reading" mounts_read_only $reader
if command -v dmsetup >/dev/null && modprobe dm-mod; then
	# dmsetup(8) takes what it may not write to for reading; but the flag of its device is its own, and can be changed
	over() { dmsetup create over --noudevsync --table "0 2048 linear $memory 0" && dmsetup mknodes over; }
	ok "memory: the device mapper takes it" over
	ok "... and --setrw of what lies above is no error" blockdev --setrw /dev/mapper/over
	refused_by_ublkd() {
		answers 'Input/output error' block /dev/mapper/over
		[ $? = 1 ] && [ "$(ublkctl --json stats | jq '.devices[] | select(.name == "memory").ops.write.failed')" -gt 0 ]
	}
	ok "... so that a write reaches ublkd, which refuses it" refused_by_ublkd
	ok "... and keeps its content" cmp -n 4096 $memory /dev/zero
	dmsetup remove --noudevsync over
else
	skip "memory: the device mapper takes it for reading" "no dmsetup or dm-mod"
fi

# ---- one that is writable ----

ok "writer: --setro" blockdev --setro $writer
ok "... and it is" is_ro $writer
ok "... writes are refused" refused $writer
ok "... reads are not" reads $writer
ok "... ublkd was not asked to write" was_asked_nothing writer
if driver_has UPDATE_SIZE; then
	ok "an upgrade" ublkctl upgrade
	ok "... leaves it read-only" is_ro $writer
	ok "... with writes refused" refused $writer
else
	skip "an upgrade leaves it read-only" "ublkctl upgrade wants Linux 6.16"
fi
ok "a crash" crash
ok "... leaves it read-only" is_ro $writer
ok "... with writes refused" refused $writer
ok "... and so the others" is_ro $reader
ok "--setrw of a read_only device after a crash" blockdev --setrw $reader
ok "... changes nothing either" refused $reader
if driver_has UPDATE_SIZE; then
	truncate -s 32M /mnt/ram/writer
	ok "a resize" ublkctl resize writer
	ok "... leaves it read-only" is_ro $writer
else
	skip "a resize leaves it read-only" "the driver has no UPDATE_SIZE"
fi
ok "--setrw" blockdev --setrw $writer
reaches_the_file() { block $writer && ! cmp -s -n 4096 /mnt/ram/origin /mnt/ram/writer; }
ok "... and a write reaches the file" reaches_the_file

# ---- the flag is looked at when somebody opens or mounts ----

mkfs.ext4 -q $writer
mount $writer /mnt/fs
ok "--setro under a mounted file system" blockdev --setro $writer
goes_on() {
	local before
	before=$(written writer)
	dd if=/dev/urandom of=/mnt/fs/file bs=64k count=4 oflag=direct status=none &&
		[ "$(written writer)" -gt "$before" ]
}
ok "... which goes on to write" goes_on
umount /mnt/fs
ok "... and is not mounted for writing again" no_mount $writer
ok "... only for reading" mounts_read_only $writer

ok "the read-only file is what it was" cmp /mnt/ram/origin /mnt/ram/reader
finish
