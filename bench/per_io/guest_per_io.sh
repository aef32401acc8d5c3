#!/bin/bash
# In the guest, two CPUs: kublk serves one queue with one thread, and with as many threads as are given it (PER_IO_DAEMON).
# One fio job, pinned to CPU 0. Prints "TYPE SIZE DEPTH THREADS IOPS" for each round of each cell.
#   guest_per_io.sh KUBLK ROUNDS MILLISECONDS
. "$(dirname "$(readlink -f "$0")")/../../test/vm/guest_lib.sh"

kublk=$1 rounds=$2 ms=$3
file=/mnt/ram/file
ram_disk 80 || exit 1
dd if=/dev/zero of=$file bs=1M count=64 status=none

add() { # TYPE THREADS
	local flags=() arguments=()
	if [ "$2" -gt 1 ]; then flags=(--nthreads "$2" --per_io_tasks); fi
	if [ "$1" = loop ]; then arguments=("$file"); fi
	timeout -k 1 20 "$kublk" add -t "$1" -n 0 -q 1 -d 128 "${flags[@]}" "${arguments[@]}" >"$work/kublk" 2>&1
	[ -b /dev/ublkb0 ] || { cat "$work/kublk" >&2; exit 1; }
}

measure() { # BYTES DEPTH
	fio --name=one --filename=/dev/ublkb0 --ioengine=io_uring --direct=1 --rw=randread --bs="$1" --iodepth="$2" --size=64M \
		--cpus_allowed=0 --time_based --ramp_time=200ms --runtime="${ms}ms" --norandommap --output-format=json |
		jq '.jobs[0].read.iops'
}

# The numbers of threads take turns, so that what else the machine does meets both.
for ((round = 0; round < rounds; round++)); do
	for type in null loop; do
		for threads in 1 2; do
			add $type $threads
			for cell in '4k 1' '4k 32' '128k 1' '128k 32'; do
				read -r bytes depth <<<"$cell"
				echo "$type $bytes $depth $threads $(measure "$bytes" "$depth")"
			done
			timeout -k 1 20 "$kublk" del -n 0 >/dev/null 2>&1
		done
	done
done
