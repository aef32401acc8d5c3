#!/bin/bash
# In the guest, on the instruction clock (vm.sh -i): what tracing costs, in instructions per I/O of all that runs:
# 4k random reads at queue depth 32 from a null device. Leaves its table in /out/trace-cost-KERNEL.
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

table=/out/trace-cost-$(uname -r | cut -d. -f1-2)
allowed=10 # percent, of latency mode
cat >"$work/cost.yaml" <<'YAML'
daemon: {reactors: [0]}
devices:
  - {name: quick, queues: 1, depth: 128, backend: {type: "null", size: 256MiB}}
YAML
ok "the daemon serves" start_daemon "$work/cost.yaml"

# reads MILLISECONDS: leaves fio's number of I/Os and milliseconds in $ios, $ms. What starts does not count.
reads() {
	fio --name=cost --filename="$(node quick)" --ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=32 \
		--size=256M --norandommap=1 --randrepeat=1 --time_based=1 --runtime="$1ms" --ramp_time=100ms \
		--output-format=json >"$work/fio.json" || { cat "$work/fio.json"; return 1; }
	read -r ios ms < <(jq -r '.jobs[0] | "\(.read.total_ios) \(.read.runtime)"' "$work/fio.json")
}

# A tracer sleeps or polls once it has attached all.
sleeps() { in_call "$trace_pid" 35 230 232 281 7 271; } # (clock_)nanosleep, epoll_(p)wait, (p)poll

# measure NAME [COMMAND...]: instructions per I/O while ublktrace COMMAND runs, in $per_io
measure() {
	local name=$1
	shift
	trace_pid=
	if [ $# -gt 0 ]; then
		ublktrace "$@" >"$work/trace" 2>&1 &
		trace_pid=$!
		wait_for 60 sleeps && kill -0 $trace_pid || { cat "$work/trace"; return 1; }
	fi
	reads 400 || return
	if [ -n "$trace_pid" ]; then
		kill -INT $trace_pid
		wait $trace_pid || { cat "$work/trace"; return 1; }
		cat "$work/trace"
	fi
	# a millisecond is 1,000,000 instructions
	per_io=$(((ms * 1000000 + ios / 2) / ios))
	[ "$name" != untraced ] || base=$per_io
	printf '| %s | %s | %+d | %s%% |\n' "$name" $per_io $((per_io - base)) \
		"$(awk "BEGIN { printf \"%.1f\", ($per_io - $base) * 100 / $base }")" | tee -a "$table"
}

cheap() { measure "$@" && [ $((per_io * 100)) -lt $((base * (100 + allowed))) ]; }

printf '| Linux %s | instructions per I/O | more | |\n|---|---|---|---|\n' "$(uname -r)" >"$table"
ok "warm" reads 100
ok "untraced" measure untraced
ok "latency of the daemon: below $allowed%" cheap "latency -p DAEMON" latency -p "$daemon_pid"
allowed=15
ok "latency of all, fio as well: below $allowed%" cheap "latency --all" latency --all
ok "record, a sample" measure "record -p DAEMON --sample 1/64" record -p "$daemon_pid" --sample 1/64 -o "$work/cost.csv"
ok "record" measure "record -p DAEMON" record -p "$daemon_pid" --buffer 256M -o "$work/cost.csv"
cat "$table"
finish
