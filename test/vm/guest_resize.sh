#!/bin/bash
# In the guest: grows and shrinks devices in use. On a kernel without UPDATE_SIZE (before 6.16) resize
# is refused with the reason, and a reload restarts the device.
# Runs on: uml, 6.12
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 1100 || exit 1
modprobe loop
truncate -s 64M /mnt/ram/loop && loop=$(losetup --find --show --direct-io=off /mnt/ram/loop) || exit 1

# yaml SIZE_OF_FILE
yaml() {
	cat >"$work/resize.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: mem, queues: 2, backend: {type: mem, size: 64MiB}}
  - {name: file, queues: 2, backend: {type: throttle, total_iops_sec: 1000000,
     backend: {type: file, path: /mnt/ram/f, size: $1, create: true}}}
  - {name: own, backend: {type: file, path: /mnt/ram/own}}
  - {name: block, backend: {type: file, path: $loop}}
  - {name: odd, block_size: 4096, backend: {type: mem, size: 1MiB}}
  - {name: reader, read_only: true, backend: {type: mem, size: 1MiB}}
  - {name: pattern, backend: {type: pattern, size: 1MiB}}
YAML
}
truncate -s 16M /mnt/ram/own
yaml 64MiB
start_daemon "$work/resize.yaml"
tree=$(dirname "$(dirname "$here")")

size_is() { [ "$(blockdev --getsize64 "$(node "$1")")" = $(($2)) ] || { blockdev --getsize64 "$(node "$1")"; return 1; }; }

# refused WORDS ARGUMENTS...: ublkctl resize fails with these words (an extended regular expression).
refused() {
	local words=$1
	shift
	if ublkctl resize "$@" >"$work/said" 2>&1; then
		cat "$work/said"
		return 1
	fi
	cat "$work/said"
	grep -qE "$words" "$work/said"
}

reload() { # and wait for what it says in the log
	kill -HUP "$daemon_pid" && wait_for 10 grep -q "$1" "$work/ublkd.log"
}

if ! ublkctl --json show mem | grep -q '"UPDATE_SIZE"'; then
	ok "resize is refused, with the cure" \
		refused 'UPDATE_SIZE, Linux 6.16\): stop the device and start it with the new size' mem 128MiB
	ok "the device has its old size" size_is mem 64*1024*1024
	yaml 96MiB
	ok "a reload starts it anew instead" reload 'device has changed and is started anew.*device=file'
	ok "and it is as large as configured" wait_for 10 size_is file 96*1024*1024
	finish
fi

# ---- growing under load ----

# load DEVICE: verified I/O on the old range until "$work/enough" is there.
load() {
	rm -f "$work/enough"
	until [ -e "$work/enough" ]; do
		verify "$1" --size=64M --iodepth=16 --runtime=5 --rate_iops=300 --bs=4k || return
	done
}

# grows NAME: three times, under load all the time.
grows() {
	local device job
	device=$(node "$1")
	load "$device" &
	job=$!
	sleep 2
	answers '64MiB -> 100MiB' ublkctl resize "$1" 100MiB || return
	size_is "$1" 100*1024*1024 || return
	answers '100MiB -> 128MiB' ublkctl resize "$1" +28MiB || return
	size_is "$1" 128*1024*1024 || return
	answers '128MiB, unchanged' ublkctl resize "$1" 128MiB || return
	touch "$work/enough"
	wait $job
}
for name in mem file; do
	ok "$name: grows under load" grows $name
	ok "$name: what is new can be written and read" verify "$(node $name)" --offset=64M --size=64M \
		--iodepth=16 --bs=4k-128k
done
ok "the file has grown" test "$(stat -c %s /mnt/ram/f)" = $((128 * 1024 * 1024))

# ---- the backend's own growth ----

own_growth() {
	truncate -s $((24 * 1024 * 1024 + 100)) /mnt/ram/own
	answers '16MiB -> 24MiB' ublkctl resize own && size_is own 24*1024*1024
}
block_grows() {
	refused 'a block device grows below' block 96MiB || return
	truncate -s 80M /mnt/ram/loop && losetup -c "$loop" || return
	answers '64MiB -> 80MiB' ublkctl resize block && size_is block 80*1024*1024
}
own_shrank() {
	truncate -s 8M /mnt/ram/own
	refused 'what is below has only 8MiB' own || return
	size_is own 24*1024*1024
}
ok "a file that has grown by itself" own_growth
ok "a file that has become shorter is no growth" own_shrank
ok "a block device that has grown below" block_grows
ok "mem has no size of its own" refused 'the backend mem does not grow by itself: give a size' mem

# ---- refusals ----

ok "no multiple of block_size" refused '1048577 bytes are not a multiple of block_size: 4096' odd 1048577
ok "a read-only device" refused 'a read-only device keeps its size' reader 2MiB
ok "a backend that cannot" refused 'cannot change its size|read-only' pattern 2MiB
ok "more than memory has address space for" refused 'without being moved' mem 1PiB
ok "no such device" refused 'there is no device' nobody 2MiB
no_room() {
	refused 'cannot grow /mnt/ram/f from 128MiB' file 8EiB
	refused 'cannot grow /mnt/ram/f from 128MiB' file 4EiB && size_is file 128*1024*1024
}
ok "a file that cannot be so long" no_room

# ---- shrinking ----

wipe() { blkdiscard -f "$(node "$1")"; }
shrink_data() {
	wipe "$1" && sleep 1 || return # udev
	dd if=/dev/urandom of="$(node "$1")" bs=1M seek=90 count=1 oflag=direct status=none || return
	refused 'there is data beyond 80MiB' "$1" 80MiB && size_is "$1" 128*1024*1024 || return
	answers '128MiB -> 96MiB' ublkctl resize "$1" 96MiB && size_is "$1" 96*1024*1024 || return
	answers '96MiB -> 80MiB' ublkctl resize "$1" 80MiB --force && size_is "$1" 80*1024*1024
}
shrunk_is_zero() {
	answers '80MiB -> 128MiB' ublkctl resize "$1" 128MiB || return
	cmp -n $((48 * 1024 * 1024)) <(dd if="$(node "$1")" bs=1M skip=80 iflag=direct status=none) /dev/zero
}
in_use() {
	local code device
	wipe "$1" && sleep 1 || return
	device=$(node "$1")
	# shellcheck disable=SC2217 # it holds the device open
	sleep 60 <"$device" &
	sleep 0.5
	refused "in use: open by sleep\[$!\]" "$1" 100MiB
	code=$?
	[ $code = 0 ] && { answers '128MiB -> 100MiB' ublkctl resize "$1" 100MiB --force && size_is "$1" 100*1024*1024; code=$?; }
	kill $!
	return $code
}
for name in mem file; do
	ok "$name: shrinks where there is no data, or by force" shrink_data $name
	ok "$name: what was thrown away is zeroes" shrunk_is_zero $name
	ok "$name: not while somebody has it open, or by force" in_use $name
done
ok "the file has become shorter" test "$(stat -c %s /mnt/ram/f)" = $((100 * 1024 * 1024))
ok "a block device: nobody knows what is used" refused 'cannot be told' block 40MiB
ok "a block device: by force" ublkctl resize block 40MiB --force

# Requests in flight beyond the new end fail, other requests do not, and none hangs. The load beyond the end has no end of its
# own in sight, so that the resize comes before it on a slow machine, too.
shrinks_under_load() {
	local device low high
	device=$(node "$1")
	ublkctl resize "$1" 128MiB >/dev/null || return
	verify "$device" --size=64M --iodepth=16 --runtime=15 --rate_iops=300 --bs=4k &
	low=$!
	fio --name=high --filename="$device" --ioengine=io_uring --direct=1 --rw=randrw --offset=64M \
		--size=64M --iodepth=32 --runtime=300 --time_based --minimal >"$work/high.log" 2>&1 &
	high=$!
	sleep 2
	answers '128MiB -> 64MiB' ublkctl resize "$1" 64MiB --force || return
	wait $low || return
	if wait $high; then echo "I/O beyond the end went well"; return 1; fi
	size_is "$1" 64*1024*1024
}
for name in mem file; do
	ok "$name: shrinks by force under load" shrinks_under_load $name
done

# ---- reloads ----

same_node() { [ "$(node file)" = "$before" ]; }
reload_grows() {
	before=$(node file)
	# shellcheck disable=SC2217 # it holds the device open
	sleep 60 <"$before" & # it must not be started anew
	yaml 420MiB
	reload 'device is resized.*device=file.*to_bytes=440401920'
	local code=$?
	kill $!
	[ $code = 0 ] && size_is file 420*1024*1024 && same_node
}
reload_refused() {
	yaml 64MiB
	reload 'a reload does not make a device smaller.*device=file' && size_is file 420*1024*1024 && same_node
}
reload_nothing() {
	ublkctl resize mem 400MiB >/dev/null && yaml 420MiB && kill -HUP "$daemon_pid" && sleep 1 &&
		size_is mem 400*1024*1024
}
ok "a reload with a larger size resizes" reload_grows
ok "a reload with a smaller size is refused" reload_refused
ok "a reload leaves what was resized" reload_nothing

# ---- file systems ----

copy_to() {
	for d in base reactor ublk backends config daemon; do cp -r "$tree/$d" "$1/" || return; done
	cp /usr/bin/fio "$1/"
}
same_as() {
	for d in base reactor ublk backends config daemon; do diff -r "$tree/$d" "$1/$d" || return; done
	cmp /usr/bin/fio "$1/fio"
}
# Copies, one after the other, until $work/enough exists.
copy_often() {
	local i=0
	while [ ! -e "$work/enough" ]; do
		i=$((i + 1))
		mkdir -p "/mnt/fs/$i" && copy_to "/mnt/fs/$i" || return
		[ $i -lt 8 ] || { echo "no more room wanted" >"$work/enough"; }
	done
}
# grow_fs NAME TYPE SIZE
grow_fs() {
	local device copy dir
	device=$(node "$1")
	mkdir -p /mnt/fs
	rm -f "$work/enough"
	if [ "$2" = ext4 ]; then mkfs.ext4 -Fq "$device"; else mkfs.xfs -fq "$device"; fi || return
	mount "$device" /mnt/fs || return
	copy_often &
	copy=$!
	sleep 1
	ublkctl resize "$1" "$3" || return
	if [ "$2" = ext4 ]; then grow_ext4 /mnt/fs; else xfs_growfs /mnt/fs; fi || return
	touch "$work/enough"
	wait $copy || return
	[ "$(df -k --output=size /mnt/fs | tail -1)" -gt $(($4 * 1024)) ] || { df /mnt/fs; return 1; }
	for dir in /mnt/fs/[0-9]*; do same_as "$dir" || return; done
	refused 'in use: .*mounted on /mnt/fs' "$1" 64MiB || return
	umount /mnt/fs || return
	if [ "$2" = ext4 ]; then fsck.ext4 -fn "$device"; else xfs_repair -n "$device"; fi
}
ok "ext4 grows while files are copied" grow_fs file ext4 600MiB 500
ok "xfs grows while files are copied" grow_fs mem xfs 600MiB 500

# ---- the size outlives the daemon ----

sums() {
	local name
	for name in mem file; do
		dd if="$(node $name)" bs=1M count=1 skip=590 iflag=direct status=none | md5sum
	done
}
both_live() { ublkctl list | grep -qE '^mem +live' && ublkctl list | grep -qE '^file +live'; }
kill_and_adopt() {
	local before name
	for name in mem file; do
		dd if=/dev/urandom of="$(node $name)" bs=1M count=1 seek=590 oflag=direct status=none || return
	done
	before=$(sums)
	# A device that has become smaller would be refused, and stay.
	truncate -s 24M /mnt/ram/own
	kill -9 "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	start_daemon "$work/resize.yaml" && wait_for 30 both_live || return
	[ "$(sums)" = "$before" ] && size_is mem 600*1024*1024 && size_is file 600*1024*1024
}
ok "kill -9: the next daemon adopts them as large as they were" kill_and_adopt
ok "and they grow on" ublkctl resize mem 640MiB
losetup -d "$loop"
finish
