#!/bin/bash
# In the guest: devices on images in QEMU's format qcow2. Content under fio verify by two queues on two reactors, a
# file system, fstrim, the death and the upgrade of the daemon under loads that flush and discard, and what
# QEMU says of the images afterwards: no error, no leak, the same content. The same with an overlay.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=50 upgrades=5
ram_disk 900 || exit 1
base=/mnt/ram/base.qcow2
# 24 MiB of bytes, then zeroes.
dd if=/dev/urandom of=/mnt/ram/base.raw bs=1M count=24 status=none
truncate -s 64M /mnt/ram/base.raw
qemu-img convert -f raw -O qcow2 /mnt/ram/base.raw $base || exit 1

# new NAME OPTIONS BACKING: an image that is made, in a file that grows.
new() { echo "{type: qcow2, create: true$2, data: {type: file, path: /mnt/ram/$1.qcow2, create: true}$3}"; }
cat >"$work/qcow2.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: one, queues: 2, depth: 64, backend: $(new one ', size: 256MiB' '')}
  - {name: parts, queues: 2, depth: 64, backend: $(new parts ', size: 64MiB, cluster_size: 128KiB, extended_l2: true' '')}
  - {name: over, queues: 2, depth: 64,
     backend: $(new over '' ", backing: {type: qcow2, data: {type: file, path: $base}}")}
  - {name: tiny, queues: 2, backend: $(new tiny ', cluster_size: 4KiB' ', backing: {type: file, path: /mnt/ram/base.raw}')}
YAML
all='one parts over'

# ---- content ----

ok "four devices start" start_daemon "$work/qcow2.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
ok "the disk has its size" bytes_are one $((256 << 20))
ok "an overlay is as large as its base" bytes_are over $((64 << 20))
ok "... and reads as it" cmp /mnt/ram/base.raw "$(blk over)"
for name in $all; do
	ok "$name: two jobs under verify" verify_two $name
	ok "$name: requests of all sizes" verify "$(blk $name)" --bsrange=512-640k --blockalign=512 --bs_unaligned=0 \
		--iodepth=16 --size=32M --io_size=16M
	ok "$name: zeroes where a range was discarded" zeroed $name $((100 << 10)) $((9 << 20)) blkdiscard -f -z
done
# What lies below must not show.
ok "over: a discard of all reads as zeroes" eval 'blkdiscard -f -z "$(blk over)" && cmp -n $((64 << 20)) /dev/zero "$(blk over)"'

# As fsx(8): every kind of access, buffered and direct, each byte compared.
exerciser=$(dirname "$(readlink -f "$(command -v ublktrace)")")/../test/exerciser
exercise() { "$exerciser" --seed $RANDOM --ops 800 --keep "$@"; }
# before the loads, whose content it would take away
for name in parts over tiny; do
	ok "$name: any access, through the page cache" exercise --size $((32 << 20)) "$(blk $name)"
done
ok "tiny: any access, direct" exercise --size $((64 << 20)) --direct --dump "$work/tiny.model" "$(blk tiny)"
exercise_file() {
	mkfs.ext4 -Fq "$(blk one)" && mkdir -p /mnt/fs && mount "$(blk one)" /mnt/fs && touch /mnt/fs/x /mnt/fs/y || return
	"$exerciser" --seed $RANDOM /mnt/fs/x && "$exerciser" --seed $RANDOM --direct /mnt/fs/y
	local code=$?
	umount /mnt/fs
	return $code
}
ok "files of a file system: any access" exercise_file

# ---- space ----

kib() { stat -c %b "/mnt/ram/$1.qcow2" | awk '{ print int($1 / 2) }'; }
trimmed() {
	local device full
	device=$(blk one)
	mkfs.ext4 -Fq "$device" && mkdir -p /mnt/fs && mount "$device" /mnt/fs || return
	dd if=/dev/urandom of=/mnt/fs/file bs=1M count=64 status=none && sync && full=$(kib one)
	rm /mnt/fs/file && sync && fstrim /mnt/fs && sync
	umount /mnt/fs && fsck.ext4 -fn "$device" || return
	sync "$device" # what was freed before a flush is given back by it
	echo "$full KiB with a file of 64 MiB, $(kib one) KiB when it was trimmed"
	wait_for 10 eval "[ \$(kib one) -lt $((full - 60 * 1024)) ]"
}
ok "fstrim gives the file's blocks back" trimmed
sed -n 's/^[0-9]* KiB/# &/p' "$work/out"
ok "a file system" file_system one

# ---- the daemon dies, or is upgraded, under loads ----

# Writes, discards and flushes beyond what the loads use, so that tables change, reach the disk and give clusters
# back at the moments of the kills, too. Requests that the daemon leaves behind are issued again.
churn() { # NAME
	local device
	device=$(blk "$1")
	while [ ! -e "$work/churn.enough" ]; do
		dd if=/dev/urandom of="$device" bs=64k seek=800 count=32 oflag=direct conv=notrunc status=none &&
			sync "$device" && blkdiscard -f -o $((50 << 20)) -l $((2 << 20)) "$device" 2>/dev/null && sync "$device" ||
			touch "$work/churn.failed"
	done
}
# load_ends takes its own sign away again, perhaps before a round of this has ended.
churned() { touch "$work/churn.enough" && wait "${churners[@]}" && [ ! -e "$work/churn.failed" ]; }
churners=()
for name in $all; do
	load $name
	churn $name &
	churners+=($!)
done
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/qcow2.yaml" $all
if driver_has QUIESCE; then
	ok "upgraded under load" upgrade $upgrades
else
	skip "upgraded twice under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
ok "no flush and no discard failed" churned
ok "no error has reached the block layer" no_io_error
sums() { for name in $all; do md5sum <"$(blk "$name")"; done; }
before=$(sums)
# shellcheck disable=SC2086 # words
ok "killed without a load, it serves again" eval "kill_daemon && start_again '$work/qcow2.yaml' $all"
ok "all content is there" test "$(sums)" = "$before"

# ---- what QEMU says ----

for name in $all; do dd if="$(blk $name)" of="/mnt/ram/$name.raw" bs=1M iflag=direct conv=sparse status=none; done
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
for name in $all; do
	ok "$name: qemu-img check finds nothing" qemu-img check "/mnt/ram/$name.qcow2"
	ok "$name: qemu-img reads what the device read" qemu-img compare -f raw -F qcow2 "/mnt/ram/$name.raw" \
		"/mnt/ram/$name.qcow2"
done
ok "tiny: qemu-img check finds nothing" qemu-img check /mnt/ram/tiny.qcow2
# Its header names no backing file: the configuration did.
file_json() { echo "{\"driver\": \"file\", \"filename\": \"$1\"}"; }
ok "tiny: qemu-img reads what was written at last" qemu-img compare -f raw "$work/tiny.model" \
	"json:{\"driver\": \"qcow2\", \"file\": $(file_json /mnt/ram/tiny.qcow2),
	\"backing\": {\"driver\": \"raw\", \"file\": $(file_json /mnt/ram/base.raw)}}"
ok "the base is as it was" qemu-img compare -f raw -F qcow2 /mnt/ram/base.raw $base
ok "... and so is its file" test "$(md5sum <$base)" = "$(qemu-img convert -f raw -O qcow2 /mnt/ram/base.raw /mnt/ram/again && md5sum </mnt/ram/again)"

# ---- again from the disk ----

ok "the images are opened again" start_daemon "$work/qcow2.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
for name in $all; do ok "$name: the same content" cmp "/mnt/ram/$name.raw" "$(blk $name)"; done
finish
