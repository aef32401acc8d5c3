#!/bin/bash
# In the guest: ublktrace record of a ublkd that does a known number of I/Os. The records must agree
# with the ring's own counters and the daemon's statistics, or the reported losses must explain the
# difference exactly. Needs vm.sh -i or -s, like every test that patches the kernel's code.
# By turns: 7.2 -s -n
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

if ! command -v ublktrace >/dev/null; then
	skip "ublktrace record" "ublktrace was not built"
	finish
fi
probes=
! grep -qa cqe__reap "$(command -v ublkd)" || probes=1

# The delay answers later than its request is handed in, as a real backend does.
cat >"$work/trace.yaml" <<'YAML'
daemon: {reactors: [0]}
devices:
  - {name: slow, queues: 1, backend: {type: delay, read: 2ms, backend: {type: mem, size: 64MiB}}}
YAML
ios=1000

# record_start [option...]: returns when it is attached: a ublktrace says so by making its file, and
# begins to wait for records.
record_start() {
	rm -f "$work"/trace.csv
	ublktrace record -o "$work/trace.csv" "$@" 2>"$work/trace.err" &
	trace_pid=$!
	wait_for 60 record_waits
}

record_waits() {
	local call
	kill -0 "$trace_pid" || return 0
	read -r call _ <"/proc/$trace_pid/syscall"
	[ "$call" = 232 ] || [ "$call" = 281 ] # epoll_wait, epoll_pwait
}

record_end() {
	local code=0
	kill -INT "$trace_pid"
	wait "$trace_pid" || code=$?
	cat "$work/trace.err"
	return $code
}

# events TYPE: how many of it, as the totals say
events() { sed -nE "s/^[0-9]+ records: (.*, )?([0-9]+) $1(,.*)?$/\2/p" "$work/trace.err" | grep . || echo 0; }
# lost WORDS: as the losses say
lost() { sed -nE "s/^lost: (.*, )?([0-9]+) $1(,.*)?$/\2/p" "$work/trace.err"; }

# rows AWK-CONDITION: how many rows of the CSV
rows() { awk -F, "NR > 1 && ($1)" "$work/trace.csv" | wc -l; }

# explained WHAT WANTED GOT: exactly, but for what the kernel says that it skipped: since 7.0 a thread
# can be preempted in a program, which then is not run for others on that CPU. The tracepoints of io_uring are
# attached so that this cannot be.
explained() {
	local missed differ=$(($2 > $3 ? $2 - $3 : $3 - $2))
	missed=$(lost 'missed by recursion')
	echo "$1: wanted $2, got $3; $missed missed"
	[ $differ -le "$missed" ] || { cat "$work/trace.err"; return 1; }
}

# few WHAT GOT: none, or as many as the kernel says that it skipped
few() { explained "$1" "$2" 0; }

# is WHAT WANTED GOT
is() {
	echo "$1: wanted $2, got $3"
	[ "$2" = "$3" ] || { cat "$work/trace.err"; return 1; }
}

load() {
	fio --name=load --filename="$(node slow)" --ioengine=io_uring --direct=1 --bs=4k --size=64M --rw=randread \
		--number_ios=$ios --iodepth=8 --minimal >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}

# Of all rings of the daemon, as the kernel counts them. sq, cq: how many entries they were ever given.
ring_totals() {
	local fd link
	for fd in "/proc/$daemon_pid/fd/"*; do
		link=$(readlink "$fd")
		[ "$link" = 'anon_inode:[io_uring]' ] && cat "/proc/$daemon_pid/fdinfo/${fd##*/}"
	done | awk '/^SqTail/ { sq += $2 } /^CqTail/ { cq += $2 } END { print sq + 0, cq + 0 }'
}
reactor_cqes() { ublkctl --json reactors | jq '[.[] | select(.name == "data") | .cqes] | add'; }

# Timers go on for a while after the last I/O; they stop when there is nothing to watch.
quiet() {
	local before
	before=$(ring_totals)
	sleep 3
	[ "$before" = "$(ring_totals)" ]
}

# ---- a ublkd that runs already

measure() {
	wait_for 60 quiet || { echo "the rings are never quiet"; return 1; }
	cqes=$(reactor_cqes)
	sleep 0.2
	read -r sq cq < <(ring_totals)
	record_start -p "$daemon_pid" && load && ublkctl list >/dev/null && wait_for 60 quiet || return
	read -r sq_end cq_end < <(ring_totals)
	record_end || return
	cqes=$(($(reactor_cqes) - cqes))
}

has_room() { echo "$(lost 'ring buffer full') $(lost 'map full')" && [ "$(lost 'ring buffer full')$(lost 'map full')" = 00 ]; }

ok "the daemon serves" start_daemon "$work/trace.yaml"
ok "$ios reads are recorded" measure
ok "all had room" has_room
ok "SUBMIT: as many as the rings took" is SUBMIT $((sq_end - sq)) "$(events SUBMIT)"
ok "COMPLETE: as many as the rings gave" is COMPLETE $((cq_end - cq)) "$(events COMPLETE)"
ok "... as many as the reactors counted" is "COMPLETE of reactors" "$cqes" \
	"$(rows '$3 == "COMPLETE" && $6 ~ /^reactor/')"
ok "the CSV has all of them" is rows "$(($(events SUBMIT) + $(events COMPLETE) + $(events OVERFLOW) + $(events ENTER) + $(events WORKER)))" \
	"$(rows 1)"
ok "unmatched: those without the time of their SUBMIT" is unmatched "$(lost unmatched)" \
	"$(rows '$3 == "COMPLETE" && $26 == ""')"
ok "a commit for each I/O" is commits $ios "$(rows '$3 == "SUBMIT" && $15 == "UBLK_IO_COMMIT_AND_FETCH_REQ"')"
ok "BLOCK_QUEUE for each I/O" explained BLOCK_QUEUE $ios "$(events BLOCK_QUEUE)"
ok "BLOCK_COMPLETE for each I/O" explained BLOCK_COMPLETE $ios "$(events BLOCK_COMPLETE)"
ok "the rings were there before, each is told" is RING "$(find "/proc/$daemon_pid/fd" -lname '*io_uring*' | wc -l)" \
	"$(events RING)"
if [ -n "$probes" ]; then
	for type in FETCH SUBMIT DONE COMMIT; do
		ok "DAEMON_$type for each I/O" explained "DAEMON_$type" $ios "$(events DAEMON_$type)"
	done
	ok "REAP for each COMPLETE" explained REAP "$(events COMPLETE)" "$(events REAP)"
else
	skip "probes of the daemon" "ublkd was built without sys/sdt.h"
fi

# ---- one of the rings

data_ring() { # the one that has the most submissions
	local fd
	for fd in "/proc/$daemon_pid/fd/"*; do
		[ "$(readlink "$fd")" != 'anon_inode:[io_uring]' ] ||
			echo "$(awk '/^SqTail/ { print $2 }' "/proc/$daemon_pid/fdinfo/${fd##*/}") ${fd##*/}"
	done | sort -n | tail -1 | cut -d' ' -f2
}

one_ring() {
	record_start -p "$daemon_pid" --rings "$(data_ring)" && load && ublkctl list && record_end
}

ok "one ring of the daemon is recorded" one_ring
ok "--rings: only that one" is RING 1 "$(events RING)"
ok "--rings: with its $ios commits" is commits $ios "$(rows '$3 == "SUBMIT" && $15 == "UBLK_IO_COMMIT_AND_FETCH_REQ"')"
ok "--rings: in its threads" is "SUBMIT of others" 0 "$(rows '$3 == "SUBMIT" && $6 !~ /^reactor/')"
ok "the daemon ends" stop_daemon

# ---- from its start, sampled

from_start() {
	record_start --sample 1/4 -c ublkd --config "$work/trace.yaml" || return
	wait_for 60 served || return
	daemon_pid=$(server)
	load && ublkctl list >/dev/null && kill -TERM "$daemon_pid" && wait "$trace_pid"
	local code=$?
	daemon_pid=
	cat "$work/trace.err"
	return $code
}
served() { ublkctl list 2>/dev/null | grep -q slow && [ -b "$(node slow)" ]; }

reaped() {
	local cancelled
	cancelled=$(rows '$3 == "COMPLETE" && $23 == -125')
	echo "$(events COMPLETE) COMPLETE, $cancelled of them cancelled, $(events REAP) REAP"
	[ "$(events REAP)" -le "$(events COMPLETE)" ] && [ "$(events REAP)" -ge $(($(events COMPLETE) - cancelled)) ]
}
some() { echo "$1 of $ios"; [ "$1" -gt 0 ] && [ "$1" -lt $ios ]; }

ok "a ublkd is recorded from its start to its end" from_start
ok "all had room" has_room
ok "nothing is unmatched" few unmatched "$(lost unmatched)"
ok "--sample: some I/Os" some "$(events BLOCK_QUEUE)"
ok "--sample: all of each, in the block layer" explained BLOCK_COMPLETE "$(events BLOCK_QUEUE)" "$(events BLOCK_COMPLETE)"
ok "--sample: all of each, in io_uring" explained commits "$(events BLOCK_QUEUE)" \
	"$(rows '$3 == "SUBMIT" && $15 == "UBLK_IO_COMMIT_AND_FETCH_REQ"')"
# An io_uring_enter is told for what it submits or completes: not one without.
some_calls() { [ "$(events ENTER)" -gt 0 ] && [ "$(events ENTER)" -le $(($(events SUBMIT) + $(events COMPLETE))) ]; }
ok "--sample: only system calls in which a request of it passes" some_calls
if [ -n "$probes" ]; then
	ok "--sample: all of each, in the daemon" explained DAEMON_COMMIT "$(events BLOCK_QUEUE)" "$(events DAEMON_COMMIT)"
	ok "--sample: REAP for each COMPLETE, but those that a closing ring cancels" reaped
fi

# ---- threads of io-wq

control_commands() {
	record_start -c ublkd --config "$work/trace.yaml" || return
	wait_for 60 served || return
	daemon_pid=$(server)
	kill -TERM "$daemon_pid" && wait "$trace_pid"
	local code=$?
	daemon_pid=
	return $code
}

ok "control commands are recorded" control_commands
ok "nothing is unmatched" few unmatched "$(lost unmatched)"
ok "io-wq: each that was handed to it" explained WORKER "$(events ASYNC)" "$(events WORKER)"
ok "... is ended by it" explained WORKER_END "$(events WORKER)" "$(events WORKER_END)"
ok "... START_DEV is among them" explained START_DEV 1 "$(rows '$3 == "WORKER" && $15 == "UBLK_CMD_START_DEV"')"
finish
