#!/bin/bash
# In the guest: finds an I/O that hangs by name, tag and age; reads the last events of a killed
# daemon; reports a tag that was never armed (a fault of ublkd-faults, ublk/queue/faults.h).
# Runs on: uml
# By turns: 7.2 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

# recovery: none: whoever waits for a request is let go when the daemon is killed.
# What has to last does so for minutes: on the instruction clock time runs ahead while the guest waits
# for the host to load a program.
cat >"$work/hang.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: good, id: 1, recovery: none, backend: {type: mem, size: 16MiB}}
  - {name: hangs, id: 2, recovery: none, backend: {type: error, hang: true, op: [write], backend: {type: mem, size: 16MiB}}}
  - {name: slow, id: 3, recovery: none, backend: {type: throttle, write_bytes_sec: 512, backend: {type: mem, size: 16MiB}}}
EOF
cat >"$work/good.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: good, id: 1, recovery: none, backend: {type: mem, size: 16MiB}}
EOF
start_daemon "$work/hang.yaml"
mount -t debugfs none /sys/kernel/debug 2>/dev/null || true

sleep 1 # udev's probes
ok "why-stuck: nothing is stuck" said 'nothing is stuck' ublkctl why-stuck good
dd if=/dev/zero of=/dev/ublkb2 bs=4k count=1 seek=3 oflag=direct status=none 2>/dev/null &
for i in 1 2 3 4 5 6; do
	dd if=/dev/zero of=/dev/ublkb3 bs=256k count=1 seek=$i oflag=direct status=none 2>/dev/null &
done
ok "inflight names the hanging write and its backend" \
	wait_for 5 said 'hangs +0 +[0-9]+ +write +24 +4KiB +[0-9.]+.?s +serving +error: hanging' ublkctl inflight
sleep 1.5
ok "why-stuck names backend, tag and age" \
	said 'write of 4KiB at sector 24 \(queue 0 tag [0-9]+\) is [0-9.]+s old: the backend error does not answer \(hanging\)' \
	ublkctl why-stuck hangs
ok "why-stuck shows the kernel's side" said 'kernel +1 in flight' ublkctl why-stuck hangs
ok "why-stuck: throttled" said 'a throttle delays it' ublkctl why-stuck slow
ok "why-stuck --json" said '"verdict": "backend-does-not-answer"' ublkctl --json why-stuck hangs
ok "the other device is not stuck" said 'nothing is stuck' ublkctl why-stuck good

dd if=/dev/ublkb1 of=/dev/null bs=4k count=1 skip=5 iflag=direct status=none
ok "flight of the living: fetch and commit with a latency" \
	said 'good +0 +[0-9]+ +read +commit +40 +4KiB +[0-9.]+.?s' ublkctl flight
kill -9 "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
ok "flight of the dead: the write that hung" said 'hangs +0 +[0-9]+ +write +fetch +24 +4KiB' ublkctl flight
ok "flight --perfetto" said 'events; open it' ublkctl flight --perfetto "$work/trace"
ok "the trace has the device in it" grep -qa hangs "$work/trace"

start_daemon "$work/good.yaml"
old_runs() {
	local file
	for file in /run/ublkd/flight-*.old; do ublkctl flight "$file"; done
}
ok "flight keeps the run before as .old" said 'hangs +0 +[0-9]+ +write +fetch +24' old_runs
stop_daemon

faults=$here/../../build/release/faults/ublkd
if [ -x "$faults" ]; then
	printf 'daemon: {reactors: %s}\ndevices: []\n' "$reactors" >"$work/empty.yaml"
	printf 'name: lame\nid: 4\ndepth: 8\nrecovery: none\nbackend: {type: mem, size: 1MiB}\n' >"$work/lame.yaml"
	UBLKD_FAULT_NO_FETCH=0:3 "$faults" --config "$work/empty.yaml" 2>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 30 settled
	ublkctl add -f "$work/lame.yaml" >/dev/null 2>&1 &
	ok "why-stuck: a tag that was never armed" \
		wait_for 10 said 'queue 0 has armed 7 tags of depth 8 with nothing in flight: FETCH is missing' \
		ublkctl why-stuck lame
	kill -9 "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	start_daemon "$work/good.yaml"
else
	skip "why-stuck: a tag that was never armed" "no build/release/faults: cmake --build build/release --target ublkd-faults"
fi
finish
