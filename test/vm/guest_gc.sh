#!/bin/bash
# In the guest: gc finds and removes devices of a killed daemon, and never those of a living process.
# A command to the driver that hangs is reported with the kernel function that it waits in, and blocks
# nothing else.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

cat >"$work/main.yaml" <<EOF
daemon: {reactors: $reactors, command_timeout: 2s, stop_timeout: 6s}
devices:
  - {name: mine, id: 1, backend: {type: mem, size: 16MiB}}
EOF
# Another daemon, on another socket: the first one treats its left devices as orphans.
cat >"$work/other.yaml" <<EOF
daemon: {reactors: $reactors, control: $work/other.sock}
devices:
  - {name: a, id: 5, backend: {type: mem, size: 16MiB}}
  - {name: b, id: 6, backend: {type: mem, size: 16MiB}}
  - {name: c, id: 7, backend: {type: mem, size: 16MiB}}
EOF
start_daemon "$work/main.yaml"

other_settled() { [ "$(ublkctl --socket "$work/other.sock" list 2>/dev/null | grep -cE '^[abc] +live')" = 3 ]; }
start_other() {
	ublkd --config "$work/other.yaml" 2>"$work/other.log" &
	other_pid=$!
	wait_for 30 other_settled
}
kill_other() {
	kill -9 "$other_pid"
	wait "$other_pid" 2>/dev/null
}

# refused WORDS COMMAND...: exit code 1.
refused() {
	local code=0
	answers "$@" || code=$?
	[ $code = 1 ]
}

serves() {
	local id
	for id; do dd if="/dev/ublkb$id" of=/dev/null bs=4k count=1 iflag=direct status=none || return; done
}

ok "no orphans" answers '^no orphaned devices$' ublkctl gc
ok "another daemon starts" start_other
ok "what it serves is no orphan" answers '^no orphaned devices$' ublkctl gc
ok "nor can it be removed by its id" refused "is served by the living process $other_pid" ublkctl gc --remove 5
ok "nor what this daemon serves" refused 'is served by this ublkd' ublkctl gc --remove 1
ok "what is not there cannot be removed" refused 'GET_DEV_INFO2 failed: ENODEV' ublkctl gc --remove 40
wrong_id() {
	ublkctl gc x
	[ $? = 2 ]
}
ok "a word is no id" wrong_id
ok "all of them serve" serves 1 5 6 7

# A process has a device open when its server dies.
# shellcheck disable=SC2217 # it holds the device open
sleep 300 </dev/ublkb6 &
sleeper=$!
sleep 0.3
kill_other
left() { answers "^ *$1 +(DEAD|QUIESCED|FAIL_IO|LIVE) +-?[0-9]* .*ublkd with another control socket +orphan" ublkctl gc; }
for id in 5 6 7; do ok "the killed daemon's device $id is listed" wait_for 10 left $id; done
ok "as JSON, with what it was" answers '"owner": "ublkd with another control socket"' ublkctl --json gc
there() {
	local id
	for id; do test -e "/dev/ublkc$id" || return; done
}
ok "listing has removed nothing" there 5 6 7
ok "one is removed by its id" answers '^ *7 .* removed' ublkctl gc --remove 7
gone() { [ ! -e "/dev/ublkc$1" ]; }
ok "it is gone" wait_for 5 gone 7
ok "the others are not" there 5 6
ok "all are removed, whoever has them open" answers '^ *6 .* removed' ublkctl gc --remove
kill $sleeper
wait $sleeper 2>/dev/null
all_gone() { gone 5 && gone 6; }
ok "they are gone" wait_for 10 all_gone
ok "nothing is left to remove" answers '^no orphaned devices$' ublkctl gc --remove
ok "the daemon's own device serves" serves 1
ok "their ids are free again" start_other
kill "$other_pid"
wait "$other_pid"

# ---- commands that hang ----

added_meanwhile() {
	printf 'name: next\nbackend: {type: mem, size: 1MiB}\n' >"$work/next.yaml"
	timeout 20 ublkctl add -f "$work/next.yaml" && ublkctl list | grep -qE '^next +live' && ublkctl del next
}

# A descriptor in flight on a socket keeps the device open, but belongs to no process: TRY_STOP_DEV (7.0)
# sees it, ublkd's search of /proc does not, and DEL_DEV waits for it.
hold_unseen() {
	python3 -c '
import array, os, socket, time
a, b = socket.socketpair()
fd = os.open("/dev/ublkb1", os.O_RDONLY)
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
os.close(fd)
open("/tmp/suite/sent", "w").close()
while not os.path.exists("/tmp/suite/let-go"): time.sleep(0.1)'
}

if ublkctl doctor | grep -q SAFE_STOP_DEV; then
	skip "DEL_DEV that waits for an opener nobody sees" "TRY_STOP_DEV sees it on this kernel"
elif ! command -v python3 >/dev/null; then
	skip "DEL_DEV that waits for an opener nobody sees" "needs python3"
else
	hold_unseen &
	holder=$!
	ok "a descriptor is on its way" wait_for 30 test -e "$work/sent"
	ublkctl del mine >"$work/del.log" 2>&1 &
	deleter=$!
	ok "show tells where the command waits" wait_for 20 answers 'command_waits_in +.*ublk_' ublkctl show mine
	ok "it is DEL_DEV" answers 'command +DEL_DEV' ublkctl show mine
	ok "the log tells it too" wait_for 20 \
		grep -qE 'takes long.*cmd=DEL_DEV id=1 waited_s=[0-9]+ waits_in="[a-z_, ]*ublk_' "$work/ublkd.log"
	ok "and why-stuck" answers 'DEL_DEV has not completed for .*: waits in .*ublk_' ublkctl why-stuck mine
	ok "other devices come and go meanwhile" added_meanwhile
	touch "$work/let-go"
	wait $holder
	wait $deleter
	mine_gone() { ! ublkctl show mine; }
	ok "it goes when it is let go" wait_for 10 mine_gone
fi

faults=$here/../../build/release/faults/ublkd
if [ -x "$faults" ]; then
	stop_daemon
	printf 'daemon: {reactors: %s, command_timeout: 1s, stop_timeout: 4s}\ndevices: []\n' "$reactors" >"$work/empty.yaml"
	printf 'name: lame\nid: 4\ndepth: 8\nbackend: {type: mem, size: 1MiB}\n' >"$work/lame.yaml"
	UBLKD_FAULT_NO_FETCH=0:3 "$faults" --config "$work/empty.yaml" 2>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 30 settled
	ublkctl add -f "$work/lame.yaml" >/dev/null 2>&1 &
	ok "START_DEV that waits for a tag: show names the function" \
		wait_for 20 answers 'command_waits_in +.*ublk_' ublkctl show lame
	ok "the log too" wait_for 20 \
		grep -qE 'takes long.*cmd=START_DEV id=4 waited_s=[0-9]+ waits_in="[a-z_, ]*ublk_' "$work/ublkd.log"
	ok "and why-stuck" answers 'START_DEV has not completed for .*: waits in .*ublk_' ublkctl why-stuck lame
	ok "gc waits for nobody" answers '^no orphaned devices$' timeout 10 ublkctl gc
	kill -9 "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	daemon_pid=
	start_daemon "$work/main.yaml"
else
	skip "START_DEV that waits for a tag" "no build/release/faults: cmake --build build/release --target ublkd-faults"
fi

# The next daemon on the same socket deletes the devices that the first one left.
no_lame() { ! test -e /dev/ublkc4; }
ok "what was killed is gone" wait_for 10 no_lame
finish
