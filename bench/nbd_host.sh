#!/bin/bash
# Compares the CPU time of the NBD backend with that of libnbd, without a block device and therefore
# without a guest. On this machine, each client in turn sends the same load of 4 KiB I/Os to nbdkit's
# memory plugin over a unix socket. The third client, floor, is the lower bound: it sends all requests
# of a depth in one call, receives their replies in another, and does not look at them.
#
#   ./dev bench --host [OPTION...]
#
#   --seconds N   length of a measurement (1)
#   --rounds N    measurements of each client (5): the lowest CPU time counts, because other work on
#                 the machine only adds to it
#   --json        the result as JSON on stdout instead of the table
#
# Only the ratio is meaningful: the times depend on this machine and on its other work.
# Exit: 0; 1 when a READ or WRITE at depth 32 takes more CPU than libnbd; 2 when it failed.
set -euo pipefail

top=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
seconds=1 rounds=5 json=''
limit=1

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$top/bench/nbd_host.sh"; }

while [ $# -gt 0 ]; do
	case $1 in
	--seconds | --rounds)
		[[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$1 needs a number"
		printf -v "${1#--}" '%s' "$2"
		shift
		;;
	--json) json=1 ;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && die "unknown option: $1" ;;
	esac
	shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "--rounds needs a whole number above 0"

bin=$top/build/release/bench
work=$(mktemp -d "${TMPDIR:-/tmp}/ublkd-bench.XXXXXX")
socket=$work/nbd.sock
finish() {
	if [ -s "$work/pid" ]; then kill "$(cat "$work/pid")" || true; fi
	rm -rf "$work"
}
trap finish EXIT

cmake --build "$top/build/release" --target ublkd_client libnbd_client floor_client >"$work/build" 2>&1 ||
	{ cat "$work/build" >&2; die "the clients cannot be built: is libnbd-dev installed?"; }
nbdkit -U "$socket" -P "$work/pid" memory 256M

# A line each: client rw depth ios cpu_ns ns
for ((round = 1; round <= rounds; round++)); do
	say "round $round of $rounds"
	for rw in read write; do
		for depth in 1 32; do
			for client in ublkd libnbd floor; do
				uri="nbd+unix:///?socket=$socket"
				if [ $client = floor ]; then uri=$socket; fi
				printf '%s %s %s ' $client $rw $depth
				timeout -k 5 60 "$bin/${client}_client" "$uri" "$seconds" $depth $rw 2>"$work/err" ||
					{ cat "$work/err" >&2; die "$client failed at $rw, depth $depth"; }
			done
		done
	done
done >"$work/rows"

python3 - "$work/rows" "$limit" "$json" <<'EOF'
import json, sys

best = {}
for line in open(sys.argv[1]):
    client, rw, depth, ios, cpu_ns, ns = line.split()
    key, us = (rw, int(depth), client), int(cpu_ns) / int(ios) / 1000
    if key not in best or us < best[key][0]:
        best[key] = us, int(ios) * 1e9 / int(ns)
cells = [
    {"rw": rw, "depth": depth, **{f"{client}_{what}": best[rw, depth, client][i]
     for client in ("ublkd", "libnbd", "floor") for i, what in enumerate(("cpu_us", "iops"))}}
    for rw in ("read", "write") for depth in (1, 32)
]  # fmt: skip
for cell in cells:
    cell["ratio"] = cell["ublkd_cpu_us"] / cell["libnbd_cpu_us"]
    cell["floor_ratio"] = cell["floor_cpu_us"] / cell["libnbd_cpu_us"]
if sys.argv[3]:
    print(json.dumps(cells, indent=2))
else:
    print("CPU of the client per 4 KiB I/O; nbdkit memory over a unix socket\n")
    print("| | ublkd | libnbd | ratio | floor | its ratio | IOPS of all |\n|---|---|---|---|---|---|---|")
    for c in cells:
        print(f"| {c['rw']} QD{c['depth']} | {c['ublkd_cpu_us']:.2f} us | {c['libnbd_cpu_us']:.2f} us "
              f"| {c['ratio']:.2f} | {c['floor_cpu_us']:.2f} us | {c['floor_ratio']:.2f} "
              f"| {c['ublkd_iops']:,.0f}, {c['libnbd_iops']:,.0f}, {c['floor_iops']:,.0f} |")  # fmt: skip
sys.exit(any(c["depth"] == 32 and c["ratio"] > float(sys.argv[2]) for c in cells))
EOF
