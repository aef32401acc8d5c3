#!/bin/bash
# In the guest: the cost of idle devices. Eight idle devices cause no wakeup and no CPU time, also
# with busy polling and the watchdog. 64 devices of four deep queues need little memory until they are
# used, and the daemon reports its maximum at start. Needs four CPUs (vm.sh -c 4).
# With --soak: 7.2 -c 4, 6.12 -c 4
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

idle_seconds=5

# serve NUMBER DAEMON_OPTIONS DEVICE_OPTIONS: as many equal devices.
serve() {
	local i
	{
		echo "daemon: {$2}"
		echo 'devices:'
		for i in $(seq "$1"); do echo "  - {name: d$i, $3}"; done
	} >"$work/idle.yaml"
	start_daemon "$work/idle.yaml"
}
live() {
	ublkctl list >"$work/list" || return
	grep -v ' live ' "$work/list"
	[ "$(grep -c ' live ' "$work/list")" = "$1" ]
}
status() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$daemon_pid/status"; }

# --- wakeups --------------------------------------------------------------------------------------

# One line per thread: how often it has gone to sleep, and for how long it has run. Only the main
# thread ever does anything by itself, and only while somebody is connected or a timer is armed:
# here nobody is and none is, so that nothing needs to be allowed.
threads() {
	local task name
	for task in /proc/"$daemon_pid"/task/*; do
		name=$(cat "$task/comm" 2>/dev/null) || continue # a worker that has just gone
		echo "$name $(awk '/^voluntary/ { print $2 }' "$task/status")" \
			"$(cut -d ' ' -f 1 "$task/schedstat")"
	done
}
ours() { grep -v '^iou-wrk' "$1"; }
# The kernel's own: commands to the driver sleep, so io_uring runs them in a worker. One worker stays
# for good and looks every five seconds whether it is too many (WORKER_IDLE_TIMEOUT of io-wq.c).
workers() { awk '/^iou-wrk/ { nr += $2 } END { print nr + 0 }' "$1"; }
turns() { ublkctl --json reactors | jq -c '[.[] | select(.name == "data") | .turns]'; }

idle_for() {
	# Queues give their buffers back four seconds after the last request.
	sleep 5
	turns >"$work/turns.before" || return
	# The answer to ublkctl has gone, so have the workers that were too many, and the watchdog has seen
	# often enough (four looks in its 10 s) that nobody does anything.
	sleep 12
	wait_for 20 workers_settled
	threads >"$work/threads.before"
	sleep "$1"
	threads >"$work/threads.after"
	turns >"$work/turns.after"
}
sleeps_on() {
	cat "$work/threads.before"
	[ "$(ours "$work/threads.before" | wc -l)" = $(($(jq length "$work/turns.before") + 1)) ] &&
		diff <(ours "$work/threads.before") <(ours "$work/threads.after")
}
workers_settled() { [ "$(threads | grep -c ^iou-wrk)" -le 1 ]; }
one_worker() {
	cat "$work/threads.before" "$work/threads.after"
	[ "$(grep -c ^iou-wrk "$work/threads.after")" -le 1 ] &&
		[ $(($(workers "$work/threads.after") - $(workers "$work/threads.before"))) -le 2 ]
}
no_turns() { cat "$work/turns.before" && diff "$work/turns.before" "$work/turns.after"; }

# After some I/O: what a device is left with counts, too.
used() {
	local i
	for i in $(seq 8); do dd if="$(node "d$i")" of=/dev/null bs=4k count=64 status=none || return; done
}

for poll in 0 2000; do
	serve 8 "reactors: $reactors, busy_poll_us: $poll" "queues: $(nproc), backend: {type: mem, size: 8MiB}"
	ok "busy_poll_us $poll: 8 devices are live" live 8
	ok "... and read" used
	idle_for $idle_seconds
	ok "... $idle_seconds s idle: no thread woke, none used a CPU" sleeps_on
	ok "... the kernel's worker did what it always does" one_worker
	ok "... no reactor turned" no_turns
	polled_as_told() {
		ublkctl --json reactors | jq -c '[.[] | [.name, .poll_ns, .poll_hits]]' | tee "$work/polled"
		[ "$(ublkctl --json reactors | jq 'any(.[]; .poll_ns > 0)')" = "$1" ]
	}
	ok "... polled while it had work: $((poll > 0))" polled_as_told "$([ $poll = 0 ] && echo false || echo true)"
	# The header and every row have a line of their own, with a value in each column.
	table() { ublkctl reactors | tee /dev/stderr | awk '{ nr[NF]++ } END { exit !(NR == 2 + n && nr[14] == 1 + n) }' n="$1"; }
	ok "... reactors as text" table "$(jq length "$work/turns.after")"
	stop_daemon
done

# --- buffers that are given back ------------------------------------------------------------------

serve 1 "reactors: $reactors" 'data_path: copy, depth: 64, max_io: 1MiB, backend: {type: null, size: 1GiB}'
at_rest=$(status VmRSS)
writes() {
	fio --name=w --filename="$(node d1)" --ioengine=io_uring --direct=1 --rw=write --bs=1M --iodepth=64 \
		--size=256M --minimal
}
ok "64 writes of 1 MiB at once" writes
ok "... their buffers are resident" test "$(status VmRSS)" -gt $((at_rest + 40 * 1024))
given_back() { [ "$(status VmRSS)" -lt $((at_rest + 4 * 1024)) ]; }
ok "... and given back when the queue rests" wait_for 10 given_back
stop_daemon

# --- memory ---------------------------------------------------------------------------------------

if [ "$(nproc)" -lt 4 ]; then
	skip "64 devices of 4 queues" "needs 4 CPUs: vm.sh -c 4"
	finish
fi

data_bytes=$((64 * 4 * 128 * 1024 * 1024))
noted() { sed -nE "s/.*worst-case memory.* $1=([0-9]+).*/\1/p" "$work/ublkd.log"; }
below() {
	echo "$1: $2, limit $3"
	[ "$2" -lt "$3" ]
}
# All buffers are reserved as address space, so the kernel knows better than any list. What is left
# out of it must be small beside them.
reserved_as_said() {
	local reserved=$((($(status VmData) - empty_kib) * 1024)) said
	said=$(noted devices_bytes)
	echo "said $said, reserved $reserved, data buffers alone $data_bytes"
	[ "$said" -ge $data_bytes ] && [ $((said - data_bytes)) -lt $((data_bytes / 100)) ] &&
		[ "$reserved" -ge $data_bytes ] && [ $((reserved - said)) -lt $((data_bytes / 1000)) ]
}

for cpus in '[0]' '[0, 1]'; do
	serve 0 "reactors: $cpus" ''
	empty_kib=$(status VmData)
	reactor_bytes=$(noted reactors_bytes)
	ok "reactors $cpus, no devices: worst case is that of the reactors" test "$(noted devices_bytes)" = 0
	stop_daemon
	serve 64 "reactors: $cpus" 'queues: 4, depth: 128, max_io: 1MiB, backend: {type: null, size: 1GiB}'
	ok "reactors $cpus: 64 devices x 4 queues x depth 128 are live" live 64
	ok "... worst-case memory is said beforehand" reserved_as_said
	sed 's/^/# /' "$work/out"
	ok "... that of reactors has nothing to do with devices" test "$(noted reactors_bytes)" = "$reactor_bytes"
	ok "... resident memory below 100 MiB" below 'VmRSS in KiB' "$(status VmRSS)" $((100 * 1024))
	sed 's/^/# /' "$work/out"
	stop_daemon
done
finish
