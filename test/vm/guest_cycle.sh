#!/bin/bash
# In the guest: adds and removes devices, idle and under I/O. Checks the error messages, and that no
# file descriptors, memory or devices leak. $CYCLES: number of cycles (20; 200 with UBLKD_SOAK=1).
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

cycles=${CYCLES:-20}
[ -z "${UBLKD_SOAK:-}" ] || cycles=200
cat >"$work/empty.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices: []
EOF
cat >"$work/one.yaml" <<'EOF'
devices:
  - {name: x, id: 7, queues: 2, depth: 32, backend: {type: mem, size: 8MiB}}
EOF
start_daemon "$work/empty.yaml"

fds() { ls "/proc/$daemon_pid/fd" | wc -l; }
rss_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$daemon_pid/status"; }

cycle() { ublkctl add -f "$work/one.yaml" >/dev/null && ublkctl del x >/dev/null; }

busy_cycle() {
	local fio_pid
	ublkctl add -f "$work/one.yaml" >/dev/null || return
	fio --name=b --filename=/dev/ublkb7 --rw=randrw --ioengine=io_uring --direct=1 --bs=4k \
		--iodepth=16 --time_based --runtime=20 --size=8M --allow_file_create=0 >/dev/null 2>&1 &
	fio_pid=$!
	wait_for 20 io_runs && ublkctl del x --force >/dev/null || return
	wait $fio_pid
	wait_for 5 node_gone
}
# Completed reads and writes of the device: fio takes its time to start.
io_runs() { [ "$(awk '{ print $1 * $5 }' /sys/block/ublkb7/stat)" -gt 400 ]; }
node_gone() { [ ! -e /dev/ublkb7 ]; }

many() {
	local i
	for i in $(seq "$2"); do "$1" || { echo "at $i"; return 1; }; done
}

cycle
fds_before=$(fds)
ok "add and del $((cycles - cycles / 10)) times, idle" many cycle $((cycles - cycles / 10))
rss_before=$(rss_kib)
ok "add and del --force $((cycles / 10)) times under I/O" many busy_cycle $((cycles / 10))
ok "no file descriptor leaked" test "$(fds)" -le "$fds_before"
# one device's worth of slack: 8 MiB disk and its buffers
ok "no memory leaked" test "$(rss_kib)" -le $((rss_before + 9000))

refused_by_name() {
	ublkctl add -f "$work/one.yaml" || return
	tail -f /dev/null --pid=$$ 3</dev/ublkb7 &
	local opener=$! code=0
	sleep 0.2
	ublkctl del x >"$work/refusal" 2>&1 || code=$?
	kill $opener
	wait $opener 2>/dev/null
	cat "$work/refusal"
	[ $code = 1 ] && grep -q "tail\[$opener\]" "$work/refusal" && ublkctl del x
}
mounted_is_named() {
	ublkctl add -f "$work/one.yaml" && mkfs.ext4 -q -F /dev/ublkb7 || return
	mkdir -p /mnt/x && mount /dev/ublkb7 /mnt/x || return
	local code=0
	ublkctl del x >"$work/refusal" 2>&1 || code=$?
	cat "$work/refusal"
	umount /mnt/x
	[ $code = 1 ] && grep -q "mounted on /mnt/x" "$work/refusal" && ublkctl del x
}
ok "del of an open device is refused and names the opener" refused_by_name
ok "del of a mounted device is refused and names the mount" mounted_is_named
finish
