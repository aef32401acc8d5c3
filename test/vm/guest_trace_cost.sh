#!/bin/bash
# In the guest, on the instruction clock (vm.sh -i): the cost of tracing, in instructions per I/O of
# everything that runs, including ublktrace: 4k random reads at queue depth 32 from a null device.
# Writes its table to /out/trace-cost-KERNEL.
# With --soak: 7.2 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

table=/out/trace-cost-$(uname -r | cut -d. -f1-2)
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

# cheap PERCENT NAME COMMAND...: as measure; at most so much more than untraced
cheap() {
	local allowed=$1
	shift
	measure "$@" && [ $((per_io * 100)) -lt $((base * (100 + allowed))) ]
}

printf '| Linux %s | instructions per I/O | more | |\n|---|---|---|---|\n' "$(uname -r)" >"$table"
sample=(--sample 1/100 -o "$work/cost.csv")
ok "warm" reads 100
ok "untraced" measure untraced
# What a server is traced with, and (the records with UBLKD_SOAK=1) with all, which has the rings of fio as well.
ok "latency of the daemon: below 10%" cheap 10 "latency -p DAEMON" latency -p "$daemon_pid"
ok "latency of all: below 13%" cheap 13 "latency --all" latency --all
ok "a sample of the daemon: below 70%" cheap 70 "record -p DAEMON --sample 1/100" record -p "$daemon_pid" "${sample[@]}"
[ -z "${UBLKD_SOAK:-}" ] ||
	ok "a sample of all: below 70%" cheap 70 "record --all --sample 1/100" record --all "${sample[@]}"
ok "a record of the daemon: below 220%" cheap 220 "record -p DAEMON" record -p "$daemon_pid" -o "$work/cost.csv"
[ -z "${UBLKD_SOAK:-}" ] ||
	ok "a record of all: below 300%" cheap 300 "record --all" record --all -o "$work/cost.csv"
cat "$table"
finish
