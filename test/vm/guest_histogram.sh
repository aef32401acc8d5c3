#!/bin/bash
# In the guest: histograms with boundaries like QEMU's, stats --layers, errors by name.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

cat >"$work/histogram.yaml" <<'EOC'
daemon: {reactors: [0]}
devices:
  - {name: slow, id: 1, queues: 1, backend: {type: delay, all: 8ms, backend: {type: mem, size: 16MiB}}}
  - name: bad
    id: 2
    queues: 1
    backend: {type: error, errno: EIO, op: [write], from_sector: 80, to_sector: 88,
      backend: {type: error, errno: ENOSPC, op: [write], from_sector: 160, to_sector: 168,
        backend: {type: error, errno: ENODATA, op: [read], from_sector: 240, to_sector: 248,
          backend: {type: mem, size: 16MiB}}}}
EOC
start_daemon "$work/histogram.yaml"
udevadm settle 2>/dev/null
sleep 0.5

# refused WORDS COMMAND...: it fails and says so.
refused() {
	local words=$1
	shift
	if "$@" >"$work/said" 2>&1; then return 1; fi
	cat "$work/said"
	grep -qF "$words" "$work/said"
}

reads() {
	local i
	for ((i = 0; i < $1; i++)); do
		dd if=/dev/ublkb1 of=/dev/null bs=4k count=1 skip=$((i + 8)) iflag=direct status=none || return
	done
}

# of NAME JQ: of the reads' histogram.
of() { ublkctl --json histogram get "$1" --op read | jq -c ".histograms[0] | $2"; }
is() { echo "$1, wanted $2"; [ "$1" = "$2" ]; }

ok "no boundaries at first" is "$(of slow .boundaries)" null
ok "set" ublkctl histogram set slow --boundaries 1us,1ms,1s
ok "boundaries in ns" is "$(of slow .boundaries)" '[1000,1000000,1000000000]'
ok "one bin more, all empty" is "$(of slow .bins)" '[0,0,0,0]'
ok "ten reads of 8 ms" reads 10
ok "... are in the bin from 1 ms to 1 s" is "$(of slow .bins)" '[0,0,10,0]'
ok "... and in the picture" said '^ *\[1ms, 1s\) +10 ' ublkctl histogram get slow --op read
for list in 2us,1us 1us,1us 0,1us; do
	ok "not ascending: $list" refused 'boundaries must ascend, each above the one before and above 0' \
		ublkctl histogram set slow --boundaries $list
done
ok "257 of them" refused 'more than 256 boundaries' \
	ublkctl histogram set slow --boundaries "$(seq -s, 1 257)"
ok "no such device" refused 'there is no device "none"' ublkctl histogram set none --boundaries 1us
ok "what was refused has changed nothing" is "$(of slow .bins)" '[0,0,10,0]'
ok "set again" ublkctl histogram set slow --boundaries-read 1us,1ms,1s --boundaries 5ms
ok "... resets" is "$(of slow .bins)" '[0,0,0,0]'
ok "three reads" reads 3

# The line of those who asked for it, as they wrote it for QEMU.
jq_line() {
	ublkctl histogram get slow --qmp-json | jq -c '.return[] | { qdev: .qdev, rd: .stats.rd_latency_histogram, wr: .stats.wr_latency_histogram, flush: .stats.flush_latency_histogram } | { flush: ([.flush.boundaries, .flush.bins] | transpose), qdev, rd: ([.rd.boundaries, .rd.bins] | transpose), wr: ([.wr.boundaries, .wr.bins] | transpose) }'
}
ok "--qmp-json through jq" is "$(jq_line)" \
	'{"flush":[[5000000,0],[null,0]],"qdev":"slow","rd":[[1000,0],[1000000,0],[1000000000,3],[null,0]],"wr":[[5000000,0],[null,0]]}'
ok "set none" ublkctl histogram set slow
ok "... removes them" is "$(of slow .boundaries)" null
ok "... and QEMU's histograms with them" is \
	"$(ublkctl histogram get slow --qmp-json | jq -c '.return[0].stats.rd_latency_histogram')" null

# Of at least 8 ms; how much more is the machine's.
ok "stats --layers: the delay is the backend's" said \
	'^slow +read +[0-9.k]+ +[0-9.]+ms +[0-9.]+ms +0ns +0ns +[0-9.]+[mun]s +[0-9.]+[mun]s +([89]|[1-9][0-9]+)(\.[0-9])?ms +[0-9.]+ms$' \
	ublkctl stats slow --layers

fails() { ! dd "$@" bs=4k count=1 status=none 2>/dev/null; }
ok "a write that ends with EIO" fails if=/dev/zero of=/dev/ublkb2 seek=10 oflag=direct
ok "two that end with ENOSPC" eval 'fails if=/dev/zero of=/dev/ublkb2 seek=20 oflag=direct &&
	fails if=/dev/zero of=/dev/ublkb2 seek=20 oflag=direct'
ok "a read that ends with ENODATA" fails if=/dev/ublkb2 of=/dev/null skip=30 iflag=direct
ok "stats by name" said '^bad: errors since the start: EIO 1, ENOSPC 2, ENODATA 1$' ublkctl stats bad
ok "each told with the one that failed it" test \
	"$(grep -cE 'error=(EIO|ENOSPC|ENODATA) by=error ' "$work/ublkd.log")" = 3
finish
