#!/bin/bash
# In the guest: stripe. Content under fio verify on every data path, where it lies on the backends, what
# goes to several of them at once, a backend that fails, sizes, and the death and the upgrade of the
# daemon under a load. Data paths that this kernel lacks are skipped by name.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

ram_disk 700 || exit 1
chunk=$((64 * 1024))
disks=(/mnt/ram/{0,1,2,3})

# files SIZE: the backends of a stripe of four files.
files() {
	local disk all=()
	for disk in "${disks[@]}"; do all+=("{type: file, path: $disk, size: $1, create: true}"); done
	(IFS=, && echo "[${all[*]}]")
}

# use BACKENDS [KEYS]: a daemon with one device, a stripe of them: $device and $queue, its folder in sysfs.
use() {
	cat >"$work/one.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: one, queues: 2, ${2:-} backend: {type: stripe, chunk: 64KiB, backends: $1}}
YAML
	start_daemon "$work/one.yaml"
	device=$(node one)
	queue=/sys/block/${device##*/}/queue
}
shows() { [ "$(ublkctl --json show one | jq -r "$1")" = "$2" ] || { ublkctl --json show one && return 1; }; }

# ---- content and its place ----

# RAID-0 over all files: chunk c is chunk c / N of file c % N.
lies() { # FILE FILES...: the content of the device lies so on the files
	python3 - "$chunk" "$@" <<'EOF2'
import sys
chunk, all, *disks = int(sys.argv[1]), *sys.argv[2:]
disks = [open(d, "rb") for d in disks]
with open(all, "rb") as whole:
    nr = 0
    while piece := whole.read(chunk):
        disk = disks[nr % len(disks)]
        disk.seek(nr // len(disks) * chunk)
        assert disk.read(chunk) == piece, f"chunk {nr} is not on {disk.name}"
        nr += 1
assert nr > len(disks)
EOF2
}
# Requests below a chunk, of a chunk, across chunks, and of many rows.
lies_as_raid0() {
	dd if=/dev/urandom of="$work/all" bs=1M count=9 status=none || return
	dd if="$work/all" of="$device" bs=1M oflag=direct status=none || return
	dd if="$work/all" of="$device" bs=48k count=20 skip=4 seek=4 oflag=direct status=none || return
	dd if="$device" of="$work/read" bs=1M count=9 iflag=direct status=none || return
	cmp "$work/all" "$work/read" && lies "$work/all" "${disks[@]}"
}

for mode in copy user_copy zero_copy; do
	if [ $mode = zero_copy ] && ! driver_has AUTO_BUF_REG; then
		skip "$mode" "the driver has no AUTO_BUF_REG"
		continue
	fi
	rm -f "${disks[@]}"
	use "$(files 16MiB)" "data_path: $mode, max_io: 1MiB,"
	ok "$mode: is in use" shows .data_path $mode
	for size in 4k 64k 1M; do
		ok "$mode: $size under verify" verify "$device" --bs=$size --iodepth=16 --size=32M --io_size=16M
	done
	ok "$mode: sizes that fit no chunk" verify "$device" --bsrange=512-640k --blockalign=512 --bs_unaligned=0 \
		--iodepth=16 --size=32M --io_size=16M
	ok "$mode: each chunk lies where RAID-0 has it" lies_as_raid0
	stop_daemon
done

use "$(files 16MiB)"
ok "the block layer cuts at chunks" test "$(cat "$queue/chunk_sectors")" = $((chunk / 512))
ok "the optimal size is a row" test "$(cat "$queue/optimal_io_size")" = $((4 * chunk))
ok "it is as large as all four" test "$(blockdev --getsize64 "$device")" = $((64 << 20))
file_system() {
	mkfs.ext4 -Fq "$device" && mkdir -p /mnt/fs && mount "$device" /mnt/fs && cp -r "$here" /mnt/fs/ || return
	umount /mnt/fs && fsck.ext4 -fn "$device" && mount "$device" /mnt/fs && diff -r "$here" "/mnt/fs/${here##*/}"
	local code=$?
	umount /mnt/fs
	return $code
}
ok "a file system" file_system

# ---- what touches all ----

# zeroed COMMAND...: of 9 MiB of bytes all between 100 KiB and 8 MiB - 4 KiB become zeroes, and no others.
zeroed() {
	local from=$((100 << 10)) end=$(((8 << 20) - 4096))
	dd if=/dev/urandom of="$work/all" bs=1M count=9 status=none || return
	dd if="$work/all" of="$device" bs=1M oflag=direct status=none || return
	"$@" -o $from -l $((end - from)) "$device" || return
	dd if=/dev/zero of="$work/all" bs=4k seek=$((from >> 12)) count=$(((end - from) >> 12)) conv=notrunc status=none
	cmp "$work/all" <(dd if="$device" bs=1M count=9 iflag=direct status=none) && lies "$work/all" "${disks[@]}"
}
ok "a discard across chunks" zeroed blkdiscard -f
ok "zeroes across chunks" zeroed blkdiscard -f -z
blocks() { stat -c %b "${disks[@]}" | awk '{ s += $1 } END { print s }'; }
discarded() {
	blkdiscard -f "$device" && blocks && [ "$(blocks)" -lt 64 ]
}
ok "a discard of all frees all files" discarded
stop_daemon

# ---- trees ----

mixed="[{type: mem, size: 16MiB}, {type: file, path: /mnt/ram/0, size: 16MiB, create: true},
     {type: throttle, total_iops_sec: 1000000, backend: {type: file, path: /mnt/ram/1, size: 16MiB, create: true}}]"
use "$mixed"
ok "of backends of several types" verify "$device" --bsrange=4k-512k --blockalign=4k --iodepth=16 --size=24M --io_size=12M
ok "show names the tree" shows '.. | objects | .backends? // empty |
	map(.type + (.backend.type // "")) | join(" ")' "mem file throttlefile"
ok "list names the tree" said 'stripe > ' ublkctl --json list
stop_daemon
twice() {
	printf 'devices:\n  - {name: one, backend: {type: stripe, backends: [%s, %s]}}\n' \
		"{type: file, path: /mnt/ram/0}" "{type: file, path: /mnt/ram/0}" >"$work/twice.yaml"
	! ublkd --check-config --config "$work/twice.yaml" 2>"$work/said" && cat "$work/said" &&
		grep -q 'twice.yaml:2:.*"/mnt/ram/0" is the file of two backends of this device' "$work/said"
}
ok "one file as two backends is refused" twice

# ---- backends in another order ----

labelled="verify: true, chunk: 64KiB"
rm -f "${disks[@]}"
# labelled_as DISK...: the daemon with a stripe of them, whether or not it serves.
labelled_as() {
	local all=()
	for disk; do all+=("{type: file, path: $disk, size: 16MiB, create: true}"); done
	printf 'daemon: {reactors: %s}\ndevices:\n  - {name: one, backend: {type: stripe, %s, backends: [%s]}}\n' "$reactors" "$labelled" \
		"$(IFS=, && echo "${all[*]}")" >"$work/one.yaml"
	start_daemon "$work/one.yaml"
	device=$(node one)
}
refused() { said "$1" ublkctl list; }
truncate -s 16M "${disks[@]}"
printf x | dd of="${disks[2]}" bs=1 seek=60000 conv=notrunc status=none
labelled_as "${disks[@]}"
ok "verify: one with data is no new one" refused 'backend 3 of the stripe begins with data'
stop_daemon
# btrfs leaves the first 64 KiB of the device empty: with small chunks that are many of each backend.
for kib in 4 16 32; do
	rm -f "${disks[@]}"
	labelled="chunk: ${kib}KiB" labelled_as "${disks[@]}"
	printf _BHRfS_M | dd of="$device" bs=4k seek=16 conv=sync,notrunc,fsync status=none
	stop_daemon
	labelled="verify: true, chunk: ${kib}KiB" labelled_as "${disks[@]}"
	ok "verify: with data at 64 KiB in chunks of $kib KiB, too" refused 'of the stripe begins with data'
	stop_daemon
done
rm -f "${disks[@]}"
ok "verify: a stripe is made" labelled_as "${disks[@]}"
ok "verify: it costs a chunk of each" test "$(blockdev --getsize64 "$device")" = $(((64 << 20) - 4 * chunk))
ok "verify: content" verify "$device" --bsrange=4k-256k --blockalign=4k --iodepth=16 --size=32M --io_size=16M
dd if=/dev/urandom of="$work/all" bs=1M count=9 status=none
dd if="$work/all" of="$device" bs=1M oflag=direct conv=fsync status=none
stop_daemon
labelled_as "${disks[1]}" "${disks[0]}" "${disks[2]}" "${disks[3]}"
ok "verify: in another order it is refused, and which is right is said" refused 'give them as 2, 1, 3, 4'
stop_daemon
labelled_as "${disks[0]}" "${disks[1]}" "${disks[2]}"
ok "verify: with one missing, too" refused 'was made of 4 backends, and has 3'
stop_daemon
labelled="verify: true, chunk: 128KiB" labelled_as "${disks[@]}"
ok "verify: with another chunk, too" refused 'chunk: 65536'
stop_daemon
mv "${disks[3]}" "$work/aside"
labelled_as "${disks[@]}"
ok "verify: with an empty one in the place of another, too" refused 'backend 4 of the stripe is empty'
stop_daemon
labelled_as "${disks[@]:0:3}" "$work/aside" "${disks[3]}"
ok "verify: with an empty one more it is their number that is said" refused 'was made of 4 backends, and has 5'
stop_daemon
rm "${disks[3]}"
mv "$work/aside" "${disks[3]}"
ok "verify: as it was made it starts" labelled_as "${disks[@]}"
ok "verify: ... and has its content" cmp "$work/all" <(dd if="$device" bs=1M count=9 iflag=direct status=none)
stop_daemon
labelled="chunk: 64KiB" labelled_as "${disks[@]}"
ok "without verify a stripe that has labels is refused" refused 'set verify: true'
stop_daemon
labelled="chunk: 32KiB" labelled_as "${disks[3]}" "${disks[0]}"
ok "... and some of them in another order, with another chunk" refused 'set verify: true'
stop_daemon
labelled_as "${disks[@]}"
ok "... and nothing has been written" cmp "$work/all" <(dd if="$device" bs=1M count=9 iflag=direct status=none)
stop_daemon
dd if="${disks[0]}" of=/mnt/ram/label bs=4k count=1 status=none
# What lies on a stripe is a backend of another one, which has labels: it begins with one.
rm -f "${disks[@]}"
labelled="chunk: 64KiB" labelled_as "${disks[0]}" "${disks[1]}"
dd if="$work/all" of="$device" bs=1M oflag=direct conv=fsync status=none
dd if=/mnt/ram/label of="$device" bs=4k count=1 oflag=direct conv=fsync,notrunc status=none
dd if="$device" of="$work/all" bs=1M count=9 iflag=direct status=none
stop_daemon
labelled="chunk: 64KiB" labelled_as "${disks[0]}" "${disks[1]}"
ok "one label alone: refused" refused 'one backend alone has the label'
stop_daemon
labelled="verify: ignore, chunk: 64KiB" labelled_as "${disks[0]}" "${disks[1]}"
ok "a stripe whose data begin with a label is served with verify: ignore" cmp "$work/all" <(dd if="$device" bs=1M count=9 iflag=direct status=none)
stop_daemon
rm -f /mnt/ram/label

# ---- a backend that fails ----

use "[{type: mem, size: 16MiB}, {type: error, trigger: $work/fail, backend: {type: mem, size: 16MiB}},
     {type: file, path: /mnt/ram/2, size: 16MiB, create: true}]"
# chunk_read N, chunk_write N
chunk_read() { dd if="$device" of=/dev/null bs=$chunk count=1 skip="$1" iflag=direct status=none; }
chunk_write() { dd if=/dev/zero of="$device" bs=$chunk count=1 seek="$1" oflag=direct status=none; }
fails() { ! chunk_read 1 2>/dev/null; }
others_serve() {
	local nr
	for nr in 0 2 3 5; do chunk_write $nr && chunk_read $nr || return; done
	! chunk_read 4 && ! chunk_write 1
}
ok "all serve" eval 'chunk_write 0 && chunk_write 1 && chunk_write 2 && chunk_read 1'
touch "$work/fail"
ok "the second fails" wait_for 10 fails
ok "what lies on the others is served" others_serve
ok "the log names it" grep -q 'I/O failed.*by=error .*node=one/backends/1 ' "$work/ublkd.log"
rm "$work/fail"
ok "it serves again" wait_for 10 chunk_read 1
truncate -s 1M /mnt/ram/2
ok "a file that has become short fails its reads" eval '! chunk_read 302'
ok "and no others" eval 'chunk_read 300 && chunk_read 301 && chunk_read 2'
ok "the log names the file, too" grep -q 'I/O failed.*by=file .*node=one/backends/2 ' "$work/ublkd.log"
stop_daemon

# ---- sizes ----

rm -f "${disks[@]}"
if ! driver_has UPDATE_SIZE; then
	skip "resize" "the driver has no UPDATE_SIZE"
else
	use "$(files 16MiB)"
	grows() {
		answers '64MiB -> 128MiB' ublkctl resize one 128MiB || return
		[ "$(blockdev --getsize64 "$device")" = $((128 << 20)) ] && [ "$(stat -c %s /mnt/ram/3)" = $((32 << 20)) ]
	}
	no_row() { ! answers 'stripe cannot have 134283264 bytes: .* 134479872' ublkctl resize one $(((128 << 20) + chunk)); }
	shrinks() {
		blkdiscard -f "$device" && answers '128MiB -> 64MiB' ublkctl resize one 64MiB --force &&
			[ "$(stat -c %s /mnt/ram/0)" = $((16 << 20)) ]
	}
	ok "grows, and each file with it" grows
	ok "the new part serves" verify "$device" --offset=64M --size=64M --io_size=16M --bs=4k-256k --iodepth=16
	ok "a size that is no row is refused" no_row
	ok "shrinks" shrinks
	stop_daemon
	use '[{type: pattern, size: 16MiB}, {type: mem, size: 16MiB}]'
	ok "one that cannot is enough" eval '! answers "cannot change its size|read-only" ublkctl resize one 64MiB'
	stop_daemon
fi

# ---- the daemon dies, or is upgraded ----

# Threads that answer on one connection make nbdkit 1.32 abort when it is cut (raw_send_socket: "sock >= 0").
nbdkit --threads=1 -U "$work/nbd" -P "$work/nbd.pid" memory 32M
cat >"$work/two.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: memory, queues: 2, depth: 32, backend: {type: stripe, backends: [{type: mem, size: 16MiB},
     {type: mem, size: 16MiB}, {type: mem, size: 16MiB}, {type: mem, size: 16MiB}]}}
  - {name: pair, queues: 2, depth: 32, backend: {type: stripe, chunk: 16KiB, backends: [
     {type: nbd, uri: "nbd+unix:///?socket=$work/nbd", connections: 2, on_disconnect: {queue: 60s}, cache: kept},
     {type: file, path: /mnt/ram/pair, size: 32MiB, create: true}]}}
YAML
kill_and_start() {
	for _ in 1 2 3; do
		sleep 1
		kill -KILL "$(server)"
		wait "$daemon_pid" 2>/dev/null
		wait_for 20 no_server || return
		ublkd --config "$work/two.yaml" 2>>"$work/ublkd.log" &
		daemon_pid=$!
		wait_for 60 settled || return
	done
}
upgrade_twice() {
	local before
	for _ in 1 2; do
		before=$(server)
		ublkctl upgrade && wait_for 30 settled && [ "$(server)" != "$before" ] || return
	done
}
sums() { for name in memory pair; do dd if="$(node $name)" bs=1M iflag=direct status=none | md5sum; done; }
same_sums() { [ "$(sums)" = "$before" ]; }
ok "two stripes start" start_daemon "$work/two.yaml"
load memory
load pair
ok "killed three times, it serves again" kill_and_start
if driver_has QUIESCE; then
	ok "upgraded" upgrade_twice
else
	skip "upgraded" "an older driver cannot"
fi
ok "both were busy" were_busy
ok "no write was lost, no request failed" loads_well
before=$(sums)
ok "killed without a load, it serves again" kill_and_start
ok "all content is there" same_sums
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
kill "$(cat "$work/nbd.pid")"
finish
