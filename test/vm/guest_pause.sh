#!/bin/bash
# In the guest, on the instruction clock: how long clients of 16 devices wait during an upgrade, with
# 32 requests in flight on each device.
# By turns: 7.2 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

upgrades=4
goal_ms=100

ram_disk 300 || exit 1
{
	echo "daemon: {reactors: $reactors}"
	echo "devices:"
	for i in 1 2 3 4 5 6 7 8; do
		echo "  - {name: memory$i, depth: 64, backend: {type: mem, size: 32M}}"
		echo "  - {name: file$i, depth: 64, backend: {type: file, path: /mnt/ram/f$i, size: 32M, create: true}}"
	done
} >"$work/many.yaml"

# Devices in use, not empty ones.
fill_all() {
	local device
	for device in /dev/ublkb*; do
		dd if=/dev/zero of="$device" bs=1M oflag=direct status=none count=32 || return
	done
}

load_all() {
	fio --name=load --filename="$(find /dev -name 'ublkb*' | sort | paste -sd:)" --ioengine=io_uring --direct=1 \
		--rw=randrw --bs=4k --iodepth=512 --file_service_type=roundrobin:1 --time_based --runtime=10m \
		--minimal >"$work/fio" 2>&1 &
	load_pid=$!
	wait_for 30 eval '[ "$(cut -f2 -d" " /sys/block/ublkb15/stat | wc -l)" = 1 ] && kill -0 $load_pid'
	sleep 1
}

# In milliseconds, of each upgrade.
measure() {
	local i
	for ((i = 0; i < upgrades; i++)); do
		ublkctl --json upgrade | jq .pause_ms >>"$work/pauses" || return 1
		wait_for 20 settled || return 1
		sleep 1
	done
}

best() { sort -n "$work/pauses" | head -1; }
still_loaded() { kill -0 "$load_pid"; }

ok "sixteen devices start" start_daemon "$work/many.yaml"
if ! driver_has QUIESCE; then
	skip "how long clients wait" "the driver is older than Linux 6.16: ublkctl upgrade refuses"
	ok "it ends" end_server
	finish
fi
ok "all are full" fill_all
ok "all are loaded" load_all
ok "upgraded $upgrades times" measure
echo "# pauses of 16 devices: $(xargs <"$work/pauses") ms"
ok "no request failed" still_loaded
ok "the pause can be under $goal_ms ms" awk "BEGIN { exit !($(best) < $goal_ms) }"
kill -INT "$load_pid"
wait "$load_pid"
ok "it ends" end_server
finish
