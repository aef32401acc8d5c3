#!/bin/bash
# In the guest: a reactor that does not turn (a fault of ublkd-faults, ublk/queue/faults.h:
# a request that blocks it) is reported with its current activity, and the service
# manager gets no watchdog message until it turns again.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

faults=$here/../../build/release/faults/ublkd
if [ ! -x "$faults" ]; then
	skip "a reactor that does not turn" "no build/release/faults: cmake --build build/release --target ublkd-faults"
	finish
fi
if ! command -v python3 >/dev/null; then
	skip "a reactor that does not turn" "no python3 to be the service manager"
	finish
fi

# Messages of a notify socket, a line each.
python3 -u -c '
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("/run/notify")
while True: print(s.recv(4096).decode().replace("\n", " "))' >"$work/heard" &
manager=$!
wait_for 20 test -S /run/notify

cat >"$work/watchdog.yaml" <<'EOF'
daemon: {reactors: [0], watchdog: 1s}
devices:
  - {name: good, id: 1, backend: {type: mem, size: 16MiB}}
  - {name: blocks, id: 2, backend: {type: mem, size: 16MiB}}
EOF
UBLKD_FAULT_BLOCK=800:15 NOTIFY_SOCKET=/run/notify WATCHDOG_USEC=400000 \
	"$faults" --config "$work/watchdog.yaml" 2>"$work/ublkd.log" &
daemon_pid=$!
wait_for 30 settled

signs() { grep -c WATCHDOG=1 "$work/heard"; }
more_signs() { [ "$(signs)" -gt "$1" ]; }
told() { grep "$1" "$work/ublkd.log"; }
told_once() { [ "$(told "$1" | wc -l)" = 1 ]; }
not_told() { ! told "$1"; }
counted() { ublkctl --json reactors | jq -e '.[0].stuck_ns > 1000000000 and .[0].stuck_nr == 1'; }

ok "the service manager is told READY=1" wait_for 20 grep -q READY=1 "$work/heard"
ok "... and WATCHDOG=1" wait_for 20 more_signs 0
ok "... again and again" wait_for 20 more_signs "$(signs)"
ok "nothing is stuck" not_told 'reactor is stuck'

dd if=/dev/ublkb2 of=/dev/null bs=4k count=1 skip=100 iflag=direct status=none 2>/dev/null &
reader=$!
ok "a request that blocks its reactor is told, with device and function" \
	wait_for 20 told 'msg="reactor is stuck" reactor=0 cpu=0 .* where=code what=tag whom="blocks queue 0 tag [0-9]*" thread=S function="hrtimer_nanosleep"'
stuck_signs=$(signs)
ok "why-stuck says so, also of the other device" \
	said 'reactor 0 has not turned for .*: it runs a callback \(tag\) of blocks queue 0 tag [0-9]+, in the kernel function hrtimer_nanosleep' \
	ublkctl why-stuck good
ok "ublkctl --json reactors counts it" counted
ok "... it is still stuck" not_told 'reactor turns again'
ok "... and the service manager has heard nothing since" test "$(signs)" = "$stuck_signs"
wait "$reader"
ok "it turns again, and that is told" wait_for 20 told 'msg="reactor turns again" reactor=0 after_ms=1[0-9]*'
ok "each is told once: stuck" told_once 'reactor is stuck'
ok "each is told once: turns again" told_once 'reactor turns again'
ok "the service manager hears of us again" wait_for 20 more_signs "$stuck_signs"
ok "nothing is stuck any more" said 'nothing is stuck' ublkctl why-stuck good
stop_daemon
kill $manager
finish
