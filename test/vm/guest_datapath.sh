#!/bin/bash
# In the guest: every data path, with and without batches, on each backend that supports it: content
# under fio verify, the fallback from zero copy, files that shrink, reads that must not expose stale
# kernel pages, and impossible configurations. Modes that this kernel lacks are skipped by name.
# Runs on: uml, 7.2, 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 500 || exit 1

# lacks MODE BATCH: true and sets $why when this kernel does not have it.
lacks() {
	why=
	if [ "$1" = zero_copy ] && ! driver_has AUTO_BUF_REG; then why="the driver has no AUTO_BUF_REG"; fi
	if [ "$2" = on ] && ! driver_has BATCH_IO; then why="the driver has no BATCH_IO"; fi
	[ -n "$why" ]
}

# use MODE BATCH BACKEND [KEYS]: a daemon with one device of that kind, $device.
use() {
	cat >"$work/one.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: one, queues: ${queues:-1}, data_path: $1, batch: $2, ${4:-} backend: $3}
EOF
	start_daemon "$work/one.yaml"
	device=$(node one)
}

shows() { [ "$(ublkctl --json show one | jq -r ".data_path, .batch" | xargs)" = "$1 $2" ]; }

# all_zero DEVICE MIB: unwritten blocks read as zeroes, into a buffer with other content: bytes that the
# server does not fill keep it. (The page cache would not show the defect on kernels that zero pages
# when they allocate them.)
all_zero() {
	python3 - "$1" "$2" <<'EOF'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
chunk = mmap.mmap(-1, 1 << 18)
zeroes = bytes(len(chunk))
for at in range(0, int(sys.argv[2]) << 20, len(chunk)):
    chunk[:] = b"S" * len(chunk)
    assert os.preadv(fd, [chunk], at) == len(chunk)
    assert chunk[:] == zeroes, f"byte {at} and on: not zeroes"
EOF
}

# A read beyond the end of a file that shrank: EIO, and no data.
shrunk() {
	truncate -s 1M /mnt/ram/shrinks
	! dd if="$device" bs=64k count=1 skip=64 iflag=direct status=none of="$work/beyond" 2>/dev/null &&
		[ ! -s "$work/beyond" ] &&
		! dd if="$device" bs=64k count=1 skip=1000 iflag=direct,skip_bytes status=none \
			of="$work/odd" 2>/dev/null
	# the end of the file in the middle of the request
	truncate -s $(((1 << 20) + 32768)) /mnt/ram/shrinks
	! dd if="$device" bs=64k count=1 skip=16 iflag=direct status=none of="$work/half" 2>/dev/null &&
		[ ! -s "$work/half" ] &&
		dd if="$device" bs=64k count=1 skip=15 iflag=direct status=none of=/dev/null
}

for mode in copy user_copy zero_copy; do
	for batch in off on; do
		label="$mode, batch $batch"
		if lacks $mode $batch; then
			skip "$label" "$why"
			continue
		fi
		backends="mem file"
		if [ $mode = zero_copy ]; then backends='file'; fi
		if [ $mode = copy ]; then backends+=' buffered'; fi
		for backend in $backends; do
			rm -f /mnt/ram/one
			spec='{type: mem, size: 64MiB}'
			case $backend in
			file) spec='{type: file, path: /mnt/ram/one, size: 64MiB, create: true}' ;;
			buffered) spec='{type: file, path: /mnt/ram/one, size: 64MiB, create: true, direct: off}' ;;
			esac
			queues=2 use $mode $batch "$spec"
			ok "$backend, $label: is in use" shows $mode "$([ $batch = on ] && echo true || echo false)"
			ok "$backend, $label: QD1" verify "$device" --bs=4k --iodepth=1 --size=2M
			ok "$backend, $label: QD32, mixed blocks, two jobs" verify "$device" --iodepth=32 \
				--numjobs=2 --size=24M --io_size=6M --offset_increment=32M \
				--bsrange=512-512k --blockalign=512 --bs_unaligned=0
			stop_daemon
		done
		use $mode $batch '{type: file, path: /mnt/ram/shrinks, size: 16MiB, create: true}'
		ok "file, $label: a file that shrank gives errors, not bytes" shrunk
		stop_daemon
		rm -f /mnt/ram/shrinks
		[ $mode != zero_copy ] || continue
		for spec in '{type: mem, size: 64MiB}' '{type: null, size: 64MiB}'; do
			use $mode $batch "$spec"
			ok "$spec, $label: nothing of the kernel's memory shows" all_zero "$device" 16
			stop_daemon
		done
	done
done

# A ring has 16384 registered buffers: of five queues of 4096 tags one gets none.
if lacks zero_copy off; then
	skip "zero copy falls back when no buffer can be registered" "$why"
else
	{
		echo 'daemon: {reactors: [0]}'
		echo 'devices:'
		for i in 1 2 3 4 5; do
			echo "  - {name: z$i, depth: 4096, max_io: 64KiB, data_path: zero_copy," \
				"backend: {type: file, path: /mnt/ram/z$i, size: 16MiB, create: true}}"
		done
	} >"$work/five.yaml"
	start_daemon "$work/five.yaml"
	fallbacks() { ublkctl --json stats | jq '[.devices[].fallbacks] | add'; }
	five() {
		for i in 1 2 3 4 5; do verify "$(node z$i)" --bs=4k --iodepth=32 --size=4M || return; done
	}
	ok "five queues on one ring: content" five
	ok "one of them was told to copy" grep -q 'no registered buffers are left' "$work/ublkd.log"
	ok "its requests were copied by hand" test "$(fallbacks)" -gt 1000
	stop_daemon
fi

# Segment limits come from the driver below. A RAM disk reports the block layer's defaults, 128 segments
# of 64 KiB, and ignores them; a loop device enforces its limits.
segments() { # FILE
	use zero_copy off "{type: file, path: $1, size: 16MiB}"
	cat "/sys/block/${device##*/}/queue/max_segments"
	stop_daemon
}
if lacks zero_copy off; then
	skip "segments of the device below" "$why"
else
	truncate -s 16M /mnt/ram/segments
	modprobe loop
	loop=$(losetup --show --direct-io=on -f /mnt/ram/segments)
	ok "a file on a RAM disk: any number of segments" test "$(segments /mnt/ram/segments)" = 65535
	ok "a loop device: its segments" test "$(segments "$loop")" = \
		"$(cat "/sys/block/${loop##*/}/queue/max_segments")"
	losetup -d "$loop"
fi

# Refused with the reason, before a device was created.
refused() { # WORDS MODE BATCH BACKEND
	printf 'devices:\n  - {name: one, data_path: %s, batch: %s, backend: %s}\n' "$2" "$3" "$4" >"$work/no.yaml"
	! ublkd --check --config "$work/no.yaml" >"$work/said" 2>&1 && grep -q "$1" "$work/said"
}
ok "zero copy of memory is an error with its place" \
	refused 'no.yaml:2:.*data_path: zero_copy is impossible with the backend mem' zero_copy auto \
	'{type: mem, size: 1MiB}'
cannot() { # WORDS MODE BATCH: the device fails with these words
	use "$2" "$3" '{type: file, path: /mnt/ram/cannot, size: 1MiB, create: true}'
	ublkctl --json show one | jq -r .error | tee "$work/said"
	stop_daemon
	grep -q "$1" "$work/said"
}
if lacks zero_copy off; then
	ok "this kernel has no zero copy: said so" cannot 'AUTO_BUF_REG (Linux 6.16)' zero_copy auto
fi
if lacks copy on; then
	ok "this kernel has no batches: said so" cannot 'BATCH_IO (Linux 7.0)' copy on
fi
finish
