#!/bin/bash
# In the guest: flushes and FUA writes reach the file. ftrace counts every fsync of the daemon in the
# kernel, and the test compares the count with the clients' requests.
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 200 || exit 1
cat >"$work/flush.yaml" <<'EOF'
daemon: {reactors: [0]}
devices:
  - {name: file, backend: {type: file, path: /mnt/ram/f, size: 64MiB, create: true}}
EOF
start_daemon "$work/flush.yaml"
device=$(node file)
tracing=/sys/kernel/tracing
[ -d $tracing/events ] || tracing=/sys/kernel/debug/tracing

# fsyncs COMMAND...: how often vfs_fsync_range ran for threads of the daemon meanwhile.
fsyncs() {
	echo 0 >$tracing/tracing_on
	echo vfs_fsync_range >$tracing/set_ftrace_filter || return
	echo function >$tracing/current_tracer
	echo >$tracing/trace
	echo 1 >$tracing/tracing_on
	"$@" >/dev/null 2>&1
	echo 0 >$tracing/tracing_on
	# reactors and their io-wq workers: iou-wrk-N, N the reactor's thread
	grep -cE '^ *(iou-wrk|ublkd|reactor)' $tracing/trace
}

plain_writes() { dd if=/dev/zero of="$device" bs=4k count=20 oflag=direct status=none; }
flushed_writes() {
	fio --name=f --filename="$device" --rw=write --bs=4k --size=80k --direct=1 --fsync=1 --end_fsync=1 \
		--ioengine=psync
}
fua_writes() {
	fio --name=f --filename="$device" --rw=write --bs=4k --size=80k --direct=1 --sync=dsync \
		--ioengine=psync
}

plain_has_none() { [ "$(fsyncs plain_writes)" -le 1 ]; }
flush_reaches() {
	local count
	count=$(fsyncs flushed_writes)
	echo "fsyncs=$count"
	[ "$count" -ge 20 ]
}
fua_reaches() {
	local count
	count=$(fsyncs fua_writes)
	echo "fsyncs=$count"
	[ "$count" -ge 20 ]
}
attributes() {
	local queue=/sys/block/${device#/dev/}/queue
	grep -q 'write back' "$queue/write_cache" && [ "$(cat "$queue/fua")" = 1 ]
}

ok "the device has a write-back cache and FUA" attributes
ok "plain writes are not synced" plain_has_none
ok "20 flushes: at least 20 fsyncs of the file" flush_reaches
ok "20 FUA writes: at least 20 syncs of the file" fua_reaches
finish
