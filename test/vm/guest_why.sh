#!/bin/bash
# In the guest: failed I/Os in the log; why-stuck with the kernel's view: the ring's fdinfo, the
# device's state in the driver, debugfs. A reactor that blocks and a request that the daemon forgets
# are deliberate bugs of ublkd-faults (ublk/queue/faults.h).
# Runs on: uml
# By turns: 7.2 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

id=1
cat >"$work/good.yaml" <<'EOC'
daemon: {reactors: [0]}
devices:
  - {name: good, id: 1, queues: 1, recovery: none, backend: {type: mem, size: 16MiB}}
EOC

# reads SECTOR...: one read per sector, in the background.
reads() {
	local sector
	for sector in "$@"; do
		dd if=/dev/ublkb$id of=/dev/null bs=512 count=1 skip="$sector" iflag=direct status=none \
			2>/dev/null &
	done
}

kill_daemon() {
	kill -9 "$daemon_pid"
	wait 2>/dev/null
	daemon_pid=
}

umount /sys/kernel/debug 2>/dev/null
start_daemon "$work/good.yaml"
ok "without debugfs: said so" said 'debugfs cannot be read' ublkctl why-stuck good
ok "the driver's state and our pid" \
	said "driver +LIVE, its server is pid $daemon_pid \\(this ublkd\\)" ublkctl why-stuck good
ok "the ring's fdinfo" \
	said 'ring +reactor 0: 0 submissions not consumed, [0-9]+ completions not reaped, 0 overflowed' \
	ublkctl why-stuck good
mount -t debugfs none /sys/kernel/debug 2>/dev/null
ok "with debugfs: busy tags and hctx state" said 'in flight, [0-9]+ tags busy, hctx0 state (none|[A-Z])' \
	ublkctl why-stuck good
ok "--json: driver" said '"state": "LIVE"' ublkctl --json why-stuck good
ok "--json: rings" said '"cq_unseen": [0-9]+' ublkctl --json why-stuck good
chmod 666 /run/ublkd/control.sock
chmod 755 /run/ublkd
ok "without root: said so" \
	said 'cannot be read: EACCES \(needs root\)' setpriv --reuid 65534 --clear-groups \
	"$(command -v ublkctl)" why-stuck good
stop_daemon

# ---- failed I/Os in the log ----

cat >"$work/bad.yaml" <<'EOC'
daemon: {reactors: [0]}
devices:
  - name: bad
    id: 2
    queues: 1
    backend: {type: throttle, backend: {type: error, errno: ENOSPC, op: [write], from_sector: 800,
      backend: {type: mem, size: 16MiB}}}
EOC
start_daemon "$work/bad.yaml"

# Block numbers; in one program: between two of them the instruction clock may run ahead for minutes.
fail_writes() {
	python3 - "$@" <<'EOF'
import errno, mmap, os, sys
fd = os.open("/dev/ublkb2", os.O_WRONLY | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
for number in sys.argv[1:]:
    try:
        os.pwrite(fd, block, int(number) * 4096)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    else:
        sys.exit(f"block {number} was written")
EOF
}
told() { grep 'msg="I/O failed"' "$work/ublkd.log"; }

ok "six failed writes" fail_writes 100 101 101 101 101 101
ok "... the first is told: who, what, where, by whom" grep -qE \
	'level=warn msg="I/O failed" device=bad id=2 queue=0 tag=[0-9]+ op=write sector=800 bytes=4096 error=ENOSPC by=error means="no space' \
	"$work/ublkd.log"
ok "... the others are not" test "$(told | wc -l)" = 1
ok "stats counts them by name" said 'ENOSPC +6|"ENOSPC": 6' ublkctl --json stats bad
sleep 11
ok "one after the window" fail_writes 102
ok "... is told, with the number of those before" said 'sector=816 .*dropped=5$' told
stop_daemon

# ---- bugs on purpose ----

faults=$here/../../build/release/faults/ublkd
if [ ! -x "$faults" ]; then
	skip "why-stuck: a reactor that blocks" "no build/release/faults: cmake --build build/release --target ublkd-faults"
	finish
fi

# start_faulty VARIABLE=VALUE: each time with another id, because the id of a killed daemon is free only
# when the kernel has released everything.
start_faulty() {
	id=$((id + 1))
	sed -i "s/id: [0-9]*/id: $id/" "$work/good.yaml"
	env "$1" "$faults" --config "$work/good.yaml" 2>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 30 settled
	udevadm settle 2>/dev/null
	sleep 0.5
}

start_faulty UBLKD_FAULT_BLOCK=808:3600
reads 808
sleep 1
reads 816 824 832
sleep 0.5
ok "a reactor that blocks: not turning" said 'reactor 0 has not turned for [0-9.]+m?s.*, and holds' \
	ublkctl why-stuck good
ok "... with completions that nobody has seen" said '[1-9][0-9]* completions in its ring are not reaped' \
	ublkctl why-stuck good
ok "... and requests that wait in the kernel" said 'the daemon has not received 3 requests of the kernel' \
	ublkctl why-stuck good
ok "... the ring's line" said 'ring +reactor 0: 0 submissions not consumed, [1-9][0-9]* completions not reaped' \
	ublkctl why-stuck good
ok "... the driver answers all the same" said 'driver +LIVE' ublkctl why-stuck good
ok "... --json" said '"verdict": "reactor-not-turning"' ublkctl --json why-stuck good
kill_daemon

start_faulty UBLKD_FAULT_LOSE=808
reads 808
sleep 1
ok "a request that the daemon forgot: unseen" \
	said 'the kernel has 1 requests in flight, of which the daemon has seen 0' ublkctl why-stuck good
ok "... --json" said '"verdict": "not-seen-by-daemon"' ublkctl --json why-stuck good
ok "... debugfs has its tag" said '1 tags busy' ublkctl why-stuck good
kill_daemon
# Deletes the devices that the killed daemons left.
id=$((id + 1))
sed -i "s/id: [0-9]*/id: $id/" "$work/good.yaml"
start_daemon "$work/good.yaml"
finish
