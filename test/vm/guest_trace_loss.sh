#!/bin/bash
# In the guest: ublktrace record while six threads and a ublkd share one CPU. Where the kernel lets
# threads preempt each other inside BPF programs, it skips these programs for the other threads. Every
# SUBMIT and COMPLETE must be recorded. Other missing records, and all missing records of a user who
# cannot use perf, must be counted as skipped runs of exactly that kind. Needs vm.sh -s or -i.
# With --soak: 7.2 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

if ! command -v ublktrace >/dev/null; then
	skip "ublktrace record" "ublktrace was not built"
	finish
fi

cat >"$work/loss.yaml" <<'YAML'
daemon: {reactors: [0]}
devices:
  - {name: ram, queues: 1, depth: 64, backend: {type: mem, size: 64MiB}}
YAML
threads=6
ios=2048 # of each

load() {
	taskset -c 0 fio --name=load --filename="$(node ram)" --ioengine=io_uring --direct=1 --bs=4k --size=64M \
		--rw=randread --norandommap --number_ios=$ios --iodepth=8 --thread --numjobs=$threads --group_reporting \
		--minimal >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}

# Of all rings of the daemon, as the kernel counts them: how many entries they were ever given.
ring_totals() {
	local fd
	for fd in "/proc/$daemon_pid/fd/"*; do
		[ "$(readlink "$fd")" != 'anon_inode:[io_uring]' ] || cat "/proc/$daemon_pid/fdinfo/${fd##*/}"
	done | awk '/^SqTail/ { sq += $2 } /^CqTail/ { cq += $2 } END { print sq + 0, cq + 0 }'
}
quiet() {
	local before
	before=$(ring_totals)
	sleep 3
	[ "$before" = "$(ring_totals)" ]
}
waits() { in_call "$trace_pid" 232 281; } # epoll_wait, epoll_pwait

# measure COMMAND...: that records
measure() {
	wait_for 60 quiet || { echo "the rings are never quiet"; return 1; }
	read -r sq cq < <(ring_totals)
	"$@" 2>"$work/trace.err" &
	trace_pid=$!
	wait_for 60 waits && load && wait_for 60 quiet || return
	read -r sq_end cq_end < <(ring_totals)
	kill -INT "$trace_pid" && wait "$trace_pid"
}

# number WORD LINE: "12 WORD" of the line that begins so
number() { sed -nE "/$2/s/.*[:,] ([0-9]+) $1([,;].*)?\$/\1/p" "$work/trace.err" | grep . || echo 0; }
told() { number "$1" '^[0-9]+ records: '; }
skipped() { number "$1" '^missed by recursion: '; }
exactly() {
	echo "$1: wanted $2, told $(told "$1"), skipped $(skipped "$1")"
	[ "$2" = $(($(told "$1") + $(skipped "$1"))) ] || { cat "$work/trace.err"; return 1; }
}
room() { grep '^lost: 0 ring buffer full, 0 map full' "$work/trace.err" || { cat "$work/trace.err"; return 1; }; }
is() { echo "wanted $1, got $2"; [ "$1" = "$2" ]; }

# of what the rings count, and the block layer
balance() {
	grep -E '^([0-9]+ records|lost|missed)' "$work/trace.err" | sed 's/^/# /'
	ok "... they did all of their reads" is $((threads * ios)) "$(awk -F';' '{ print $6 / 4 }' "$work/fio.log")"
	ok "... all had room" room
	ok "SUBMIT: as many as the rings took, less those skipped" exactly SUBMIT $((sq_end - sq + threads * ios))
	ok "COMPLETE: as many as the rings gave, less those skipped" exactly COMPLETE $((cq_end - cq + threads * ios))
	ok "BLOCK_QUEUE: each read" exactly BLOCK_QUEUE $((threads * ios))
	ok "BLOCK_COMPLETE: each read" exactly BLOCK_COMPLETE $((threads * ios))
}

ok "the daemon serves" start_daemon "$work/loss.yaml"
taskset -a -p -c 0 "$daemon_pid" >/dev/null
ok "$threads threads on the CPU of the daemon are recorded" measure \
	ublktrace record --all --buffer 256M -o "$work/trace.csv"
balance
ok "no SUBMIT and no COMPLETE was skipped" is "0 0" "$(skipped SUBMIT) $(skipped COMPLETE)"
ok "of the daemon alone" measure ublktrace record -p "$daemon_pid" --buffer 256M -o "$work/trace.csv"
ok "... SUBMIT: as many as its rings took" is $((sq_end - sq)) "$(told SUBMIT)"
ok "... COMPLETE: as many as its rings gave" is $((cq_end - cq)) "$(told COMPLETE)"

# ---- by BTF, for one who may not read tracefs: there programs are skipped since 7.0

# in the shell of a job
limited() {
	exec setpriv --reuid 65534 --clear-groups --inh-caps -all,+bpf,+perfmon --ambient-caps -all,+bpf,+perfmon "$@"
}
ok "all is recorded, with no other rights" measure limited ublktrace record --all --buffer 256M
balance
if ! grep -q '^CONFIG_PREEMPTION=y' "/usr/lib/modules/$(uname -r)/config" 2>/dev/null; then
	skip "runs were skipped" "this kernel is not known to preempt BPF programs"
else
	ok "runs were skipped" test "$(skipped SUBMIT)" -gt 0
fi
finish
