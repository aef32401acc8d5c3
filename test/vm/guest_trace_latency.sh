#!/bin/bash
# In the guest: `ublktrace latency` on loads with known numbers, waits and failures must report
# exactly these. Needs vm.sh -s or -i, like every test that patches the kernel's code.
# By turns: 7.2 -s -n
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

cat >"$work/latency.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: slow, queues: 1, backend: {type: delay, read: 40ms, backend: {type: mem, size: 64MiB}}}
  - {name: quick, queues: 1, backend: {type: mem, size: 64MiB}}
  - {name: bad, queues: 1, backend: {type: error, op: read, from_sector: 80, to_sector: 88, backend: {type: mem, size: 64MiB}}}
EOF
if driver_has BATCH_IO; then
	cat >>"$work/latency.yaml" <<'EOF'
  - {name: batch, queues: 1, data_path: copy, batch: on, backend: {type: delay, read: 40ms, backend: {type: mem, size: 64MiB}}}
EOF
fi
ok "the daemon serves" start_daemon "$work/latency.yaml"

# A tracer sleeps once it has attached all.
sleeps() { in_call "$trace_pid" 35 230; } # (clock_)nanosleep

# trace [OPTION...]: of the daemon, or of what the options name; its JSON goes to $work/trace
trace() {
	ublktrace latency --json "$@" >"$work/trace" 2>"$work/trace.err" &
	trace_pid=$!
	wait_for 60 sleeps && kill -0 $trace_pid && return
	cat "$work/trace.err"
	return 1
}

trace_end() {
	kill -INT $trace_pid && wait $trace_pid && return
	cat "$work/trace.err" "$work/trace"
	return 1
}

# load NAME COUNT [fio options]: that many I/Os
load() {
	fio --name=load --filename="$(node "$1")" --ioengine=io_uring --direct=1 --bs=4k --size=64M \
		--number_ios="$2" --minimal "${@:3}" >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}

dev() { basename "$(node "$1")"; }

# says JQ: true of the last report
says() { tail -n 1 "$work/trace" | jq -e "$1" >/dev/null || { echo "not so: $1"; tail -n 1 "$work/trace"; return 1; }; }

# row NAME OP JQ: true of that row of ublk devices
row() { says ".ublk[] | select(.name == \"$(dev "$1") $2\") | $3"; }

# tells JQ: as says, where near(N) is: N, but for what is among the losses: a program that was skipped (recursion) or
# had no room leaves out a request, or one stage of it.
tells() { says "(.lost.recursion + .lost.map_full) as \$lost | def near(\$n): . <= \$n and . >= \$n - \$lost; $1"; }

# counts NAME OP COUNT STAGE: all of them
counts() {
	tells ".ublk[] | select(.name == \"$(dev "$1") $2\") |
		(.total.count | near($3)) and (.total.count as \$n | .$4.count | near(\$n))"
}

# ---- ublk: where the time is

known_load() {
	load slow 60 --rw=randread --iodepth=4 && load quick 3000 --rw=randwrite --iodepth=16 &&
		load bad 20 --rw=read --iodepth=1 --continue_on_error=all
}

ok "it starts" trace -p "$daemon_pid"
ok "reads of 40 ms, quick writes, a read that fails" known_load
ok "it ends" trace_end
for stage in queued daemon commit; do
	ok "every slow read is counted: $stage" counts slow read 60 $stage
	ok "every quick write is counted: $stage" counts quick write 3000 $stage
done
ok "the delay is the daemon's" row slow read ".daemon.mean_ns >= 40000000 and .daemon.p50_ns < 60000000"
ok "... and in the total" row slow read ".total.mean_ns >= 40000000"
ok "... not the kernel's" row slow read ".queued.p50_ns < 20000000 and .commit.p50_ns < 10000000"
ok "the parts add up" row slow read \
	"(.queued.mean_ns + .daemon.mean_ns + .commit.mean_ns - .total.mean_ns | fabs) * 100 < .total.mean_ns or .not_split.count > 0"
ok "writes did not wait 40 ms" row quick write ".daemon.p50_ns < 40000000"
ok "the one that failed has its errno" says \
	".errors[] | select(.device == \"$(dev bad)\") | .error == \"EIO\" and .operation == \"read\" and .count == 1"
ok "... and is counted as failed" row bad read ".failed == 1"
ok "the daemon's fetches are no latency" says \
	".fetches >= 3000 and ([.io_uring[] | select(.name == \"URING_CMD\" and .max_ns > 20000000)] | length) == 0"
ok "the losses are told" says ".lost | has(\"map_full\") and has(\"recursion\") and has(\"unmatched\")"

# ---- grouping

ok "by op" trace -p "$daemon_pid" --by op
ok "reads of two devices" eval 'load slow 5 --rw=read --iodepth=1 && load quick 50 --rw=read --iodepth=1'
ok "... end" trace_end
ok "... are one row" tells '.ublk | length == 1 and .[0].name == "read" and (.[0].total.count | near(55))'
ok "by device" trace -p "$daemon_pid" --by device
ok "reads and writes of one device" eval 'load quick 30 --rw=read && load quick 40 --rw=write'
ok "... end" trace_end
ok "... are one row" tells ".ublk | length == 1 and .[0].name == \"$(dev quick)\" and (.[0].total.count | near(70))"

# ---- io_uring: of the load, not of the daemon

# reads "OPTIONS OF FIO" [OPTION...]: 1000, traced with these options. Not of a file in /tmp: reads of tmpfs always
# go to io-wq.
reads() {
	# shellcheck disable=SC2086 # several
	ublktrace latency --json "${@:2}" -c fio --name=reads --filename="$(node quick)" --direct=1 --size=4M --bs=4k --rw=randread \
		--ioengine=io_uring --number_ios=1000 --minimal --output=/dev/null $1 >"$work/trace" 2>"$work/trace.err" ||
		{ cat "$work/trace.err"; return 1; }
}
# all_reads IO_WQ: 1000, so many of them by io-wq
all_reads() { tells ".io_uring[] | select(.name == \"READ\") | (.count | near(1000)) and (.io_wq | near($1))"; }

ok "reads, inline" reads --iodepth=8
ok "all of them are counted, none by a thread of the kernel" all_reads 0
ok "... the daemon's side is not shown" says '.ublk == []'
ok "reads, every one forced to be asynchronous" reads "--iodepth=8 --force_async=1"
ok "... all by io-wq" all_reads 1000
ok "reads, every fourth forced" reads "--iodepth=8 --force_async=4"
ok "... a quarter by io-wq" all_reads 250
ok "batches of four" reads \
	"--iodepth=4 --iodepth_batch_submit=4 --iodepth_batch_complete_min=4 --iodepth_batch_complete_max=4"
ok "... are seen" says '.rings["SQEs per submission"] | .max == 4 and .p50 == 4'
ok "by ring" reads --iodepth=1 --by ring
ok "... one of fio" tells '.io_uring | length == 1 and (.[0].count | near(1000)) and (.[0].name | test("of fio"))'

# ---- dispatch in batches

batch_load() { load batch 20 --rw=read --iodepth=1 && sleep 0.5 && load batch 60 --rw=randread --iodepth=4; }

if driver_has BATCH_IO; then
	ok "a device with batches" trace -p "$daemon_pid"
	ok "... 80 reads" batch_load
	ok "... end" trace_end
	ok "... all are counted" counts batch read 80 total
	ok "... those behind the first with the delay in the daemon" row batch read \
		".daemon.count >= 60 and .daemon.mean_ns >= 40000000"
	ok "... not in the kernel" row batch read ".queued.p50_ns < 20000000"
else
	skip "a device with batches" "this driver has none"
fi
finish
