#!/bin/bash
# In the guest: latency by layer. A delay of known length shows in the backend's layer only, a
# throttle in its own layer; histograms count the same I/Os as fio; fio's mean is our total.
# By turns: 6.12 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

cat >"$work/layers.yaml" <<EOF
daemon: {reactors: $reactors, metrics: "127.0.0.1:9740"}
devices:
  - {name: slow, queues: 1, backend: {type: delay, all: 8ms, backend: {type: mem, size: 64MiB}}}
  - {name: quick, queues: 1, backend: {type: mem, size: 64MiB}}
  - name: varied
    queues: 1
    backend: {type: delay, all: 8ms, distribution: uniform, spread: 4ms, backend: {type: mem, size: 64MiB}}
  - {name: held, queues: 1, backend: {type: throttle, total_iops_sec: 100, backend: {type: mem, size: 64MiB}}}
EOF
start_daemon "$work/layers.yaml"

# value NAME LAYER FIELD: of reads, in ns or a number.
value() {
	ublkctl --json histogram get "$1" --layer "$2" --op read |
		sed -nE "s/.*\"$3\": ?([0-9]+).*/\1/p" | head -1
}

# between LOW VALUE HIGH
between() {
	echo "$2 must be from $1 to $3"
	[ -n "$2" ] && [ "$2" -ge "$1" ] && [ "$2" -le "$3" ]
}

# reads NAME DEPTH COUNT: leaves fio's mean completion latency, in ns, in $work/clat.
reads() {
	ublkctl histogram reset "$1" --op read || return 1
	fio --name=layers --filename="$(node "$1")" --ioengine=io_uring --direct=1 --rw=randread \
		--bs=4k --iodepth="$2" --number_ios="$3" --size=64M --output-format=json \
		>"$work/fio.json" || { cat "$work/fio.json"; return 1; }
	grep -A4 '"clat_ns"' "$work/fio.json" | sed -nE 's/.*"mean" : ([0-9]+).*/\1/p' |
		head -1 >"$work/clat"
}

# within_tenth FIO OURS
within_tenth() { between $(($1 * 9 / 10)) "$2" $(($1 * 11 / 10)); }

# agrees NAME: fio's completion latency and our total layer, mean and percentiles.
agrees() {
	local percentile fio
	within_tenth "$(cat "$work/clat")" "$(value "$1" total mean_ns)" || return
	for percentile in 50 99; do
		fio=$(jq ".jobs[0].read.clat_ns.percentile[\"$percentile.000000\"]" "$work/fio.json")
		within_tenth "$fio" "$(value "$1" total p${percentile}_ns)" || return
	done
}

for depth in 1 32; do
	ok "delay: $depth at a time" reads slow $depth $((count = depth * 180 + 240))
	ok "QD$depth: every read is counted" between $count "$(value slow total count)" $count
	ok "QD$depth: in each layer" between $count "$(value slow backend count)" $count
	# one bucket is 1/16 of its value
	ok "QD$depth: the delay is the backend's" between 7500000 "$(value slow backend p50_ns)" 8912896
	ok "QD$depth: nothing is throttled" between 0 "$(value slow throttle max_ns)" 0
	ok "QD$depth: the daemon's own part is small" between 0 "$(value slow daemon mean_ns)" 800000
	ok "QD$depth: fio's mean, median and p99 are ours within a tenth" agrees slow
done

# A known distribution: from 4 ms to 12 ms, each as likely; a bucket is 1/16 of its value, and the
# median of 600 draws is off by 2% now and then.
ok "a uniform delay: 8 at a time" reads varied 8 600
ok "uniform: half below the mean" between 7300000 "$(value varied backend p50_ns)" 8800000
ok "uniform: one in a hundred in the last percent" between 11100000 "$(value varied backend p99_ns)" 12800000
ok "uniform: none longer" between 11500000 "$(value varied backend max_ns)" 12500000
ok "uniform: nothing is throttled" between 0 "$(value varied throttle max_ns)" 0
ok "uniform: the daemon's own part is small" between 0 "$(value varied daemon p99_ns)" 1000000
ok "uniform: fio's mean, median and p99 are ours within a tenth" agrees varied

ok "throttle: 100 a second, 8 at a time" reads held 8 150
ok "the wait is the throttle's" between 20000000 "$(value held throttle p50_ns)" 120000000
ok "and not the backend's" between 0 "$(value held backend p99_ns)" 1000000
ok "every held read is counted" between 150 "$(value held throttle count)" 150

# What fio did is counted, to the last read, though histograms were reset all the time; and each layer
# counts what came after the last reset.
reads_done() { ublkctl --json stats quick | jq '.devices[0].ops.read.done'; }
resets_under_load() {
	local before pid
	before=$(reads_done)
	while ublkctl histogram reset quick; do sleep 0.01; done >/dev/null 2>&1 &
	pid=$!
	fio --name=load --filename="$(node quick)" --ioengine=io_uring --direct=1 --rw=randread --bs=4k \
		--iodepth=16 --size=64M --loops=2 --minimal >"$work/fio" || return
	kill $pid
	wait $pid
	between 32768 $(($(reads_done) - before)) 32768 && reads quick 16 500 &&
		between 500 "$(value quick total count)" 500 && between 500 "$(value quick daemon count)" 500 &&
		between 500 "$(value quick backend count)" 500
}
ok "resets under load lose nothing" resets_under_load

metrics() {
	exec 3<>/dev/tcp/127.0.0.1/9740
	printf 'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3
	cat <&3 >"$work/metrics"
	exec 3>&-
	grep -q '^ublkd_latency_seconds_count{device="held",op="read",layer="throttle"}' "$work/metrics" &&
		grep -q '^# EOF' "$work/metrics"
}
ip link set lo up 2>/dev/null
if ip addr show lo 2>/dev/null | grep -q 127.0.0.1; then
	ok "the metrics show it" metrics
else
	skip "the metrics show it" "no loopback network in this guest"
fi
finish
