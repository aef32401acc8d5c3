#!/bin/bash
# In the guest, two CPUs: one queue of kublk, served by one thread on the CPU of the client ("same"), by one on the other
# CPU ("other"), and by two threads, one on each (PER_IO_DAEMON, "both"). One fio job, pinned to CPU 0. Prints "TYPE SIZE
# DEPTH SERVERS IOPS" for each round of each cell.
#   guest_per_io.sh KUBLK ROUNDS MILLISECONDS
. "$(dirname "$(readlink -f "$0")")/../../test/vm/guest_lib.sh"

kublk=$1 rounds=$2 ms=$3
file=/mnt/ram/file
ram_disk 80 || exit 1
dd if=/dev/zero of=$file bs=1M count=64 status=none

# kublk's first thread controls the device, those behind it serve: each on the next CPU.
place() { # THREADS FIRST_CPU
	local cpu=$2 tasks task
	tasks=$(find "/proc/$(pidof -s kublk)/task" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n | sed -n "2,$(($1 + 1))p")
	[ "$(wc -w <<<"$tasks")" = "$1" ] || { echo "kublk does not have $1 threads that serve" >&2; exit 1; }
	for task in $tasks; do
		taskset -p -c $cpu "$task" >/dev/null || exit 1
		cpu=$((1 - cpu))
	done
}

add() { # TYPE SERVERS
	local flags=() arguments=()
	if [ "$2" = both ]; then flags=(--nthreads 2 --per_io_tasks); fi
	if [ "$1" = loop ]; then arguments=("$file"); fi
	timeout -k 1 20 "$kublk" add -t "$1" -n 0 -q 1 -d 128 "${flags[@]}" "${arguments[@]}" >"$work/kublk" 2>&1
	[ -b /dev/ublkb0 ] || { cat "$work/kublk" >&2; exit 1; }
	case $2 in
	same) place 1 0 ;;
	other) place 1 1 ;;
	both) place 2 0 ;;
	esac
}

measure() { # BYTES DEPTH
	fio --name=one --filename=/dev/ublkb0 --ioengine=io_uring --direct=1 --rw=randread --bs="$1" --iodepth="$2" --size=64M \
		--cpus_allowed=0 --time_based --ramp_time=200ms --runtime="${ms}ms" --norandommap --output-format=json |
		jq '.jobs[0].read.iops'
}

# The servers take turns, so that what else the machine does meets all of them.
for ((round = 0; round < rounds; round++)); do
	for type in null loop; do
		for servers in same other both; do
			add $type $servers
			for cell in '4k 1' '4k 32' '128k 1' '128k 32'; do
				read -r bytes depth <<<"$cell"
				echo "$type $bytes $depth $servers $(measure "$bytes" "$depth")"
			done
			timeout -k 1 20 "$kublk" del -n 0 >/dev/null 2>&1
		done
	done
done
