#!/bin/bash
# In the guest: 16 devices on 2 reactors under I/O at once, then the daemon stops under load.
# Runs on: uml, uml tsan
# With --all: 6.12 tsan
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 400 || exit 1
{
	echo 'daemon: {reactors: [0, 1]}'
	echo 'devices:'
	for i in $(seq 0 15); do
		if [ $((i % 2)) = 0 ]; then
			backend='{type: mem, size: 16MiB}'
		else
			backend="{type: file, path: /mnt/ram/f$i, size: 16MiB, create: true}"
		fi
		echo "  - {name: d$i, id: $((i + 10)), queues: $((i % 4 / 2 + 1)), backend: $backend}"
	done
} >"$work/many.yaml"
start_daemon "$work/many.yaml"

all_live() { [ "$(lsblk -dno NAME | grep -c '^ublkb')" = 16 ]; }
ok "16 devices are live" all_live

all_at_once() {
	local jobs=() i
	for i in $(seq 0 15); do
		jobs+=(--name="d$i" --filename="/dev/ublkb$((i + 10))")
	done
	fio --ioengine=io_uring --direct=1 --rw=randrw --bs=4k --iodepth=16 --size=2M \
		--verify=crc32c --verify_fatal=1 --group_reporting --minimal "${jobs[@]}"
}
ok "fio verify on all of them at once" all_at_once

both_reactors_worked() {
	ublkctl --json reactors >"$work/reactors.json" || return
	cat "$work/reactors.json"
	[ "$(grep -oE '"cqes": ?[0-9]+' "$work/reactors.json" | grep -cvE ' 0$|:0$')" -ge 2 ]
}
ok "both reactors served" both_reactors_worked

stopped_under_load() {
	local fio_pid
	fio --name=load --filename=/dev/ublkb10:/dev/ublkb11:/dev/ublkb12:/dev/ublkb13 --rw=randrw \
		--ioengine=io_uring --direct=1 --bs=4k --iodepth=32 --time_based --runtime=30 --size=8M \
		>/dev/null 2>&1 &
	fio_pid=$!
	sleep 2
	kill -TERM "$1"
	wait "$fio_pid"
	wait_for 20 daemon_gone "$1" && wait_for 10 no_nodes
}
daemon_gone() { ! kill -0 "$1" 2>/dev/null; }
no_nodes() { ! ls /dev/ublkb* 2>/dev/null; }
pid=$daemon_pid
ok "SIGTERM under load leaves no device" stopped_under_load "$pid"
exit_zero() { wait "$pid"; }
wait "$pid"
code=$?
daemon_pid=
ok "and exits with 0" test $code = 0
finish
