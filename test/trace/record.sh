#!/bin/bash
# `ublktrace record` of a program that knows all of its io_uring work: every column of every row of
# the CSV; from when the times of each format count. Needs root and a kernel that takes BPF programs; else it is skipped. Prints TAP.
# Usage: record.sh [BUILD_FOLDER]
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
build=$(readlink -f "${1:-$top/build/release}")
tmp=$(mktemp -d /tmp/ublktrace-record.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"
what="ublktrace record"
. "$top/test/trace/needs.sh"

# The limit is for a guest on the instruction clock, whose clock runs ahead; who calls this has another.
record() {
	timeout 3000 "$build/bin/ublktrace" record -o "$tmp/known.csv" \
		-c "$build/test/known" --repeat "${UBLKTRACE_REPEAT:-20}" -o "$tmp/known.json" 2>"$tmp/log"
}
whole() { grep -q '^lost: 0 ring buffer full, 0 map full, 0 missed by recursion, 0 unmatched' "$tmp/log"; }

# On a kernel that preempts BPF programs, events are missed now and then; it says so itself, and only
# a trace that says it is whole can be held against the truth.
for _ in 1 2 3 4 5; do
	code=0
	record || code=$?
	if [ $code != 0 ] || whole; then break; fi
	grep '^lost' "$tmp/log" | sed 's/^/# again: /'
done
if [ $code != 0 ] && grep -q 'CAP_BPF' "$tmp/log"; then leave "$(head -n 1 "$tmp/log")"; fi
sed 's/^/# /' "$tmp/log"
if [ $code != 0 ] || ! whole || [ ! -s "$tmp/known.json" ]; then
	echo "not ok 1 - ublktrace record of all, with nothing lost"
	echo "# exit code $code"
	echo "1..1"
	exit 1
fi
posters=
if grep -q "begin of a WORKER is derived" "$tmp/log"; then posters=--posters; fi
"$top/test/trace/csv_check.py" "$tmp/known.csv" "$tmp/known.json" $posters >"$tmp/columns" || bad=1
grep -v '^1\.\.' "$tmp/columns"
n=$(grep -cE '^(not )?ok ' "$tmp/columns")

# ---- from when times count

# Nanoseconds since the boot, as CLOCK_BOOTTIME.
uptime_ns() { awk '{ printf "%.0f", $1 * 1e9 }' /proc/uptime; }
timed() {
	begin=$(uptime_ns)
	timeout 3000 "$build/bin/ublktrace" record "$@" -o "$tmp/t.csv" -o "$tmp/t.pftrace" -o "$tmp/t.fxt" \
		-c "$build/test/known" --repeat 1 -o "$tmp/t.json" || return
	end=$(($(uptime_ns) + 20000000)) # it has two digits behind the point
}
# first FORMAT: the time of the first that is told
first() {
	case $1 in
	csv) awk -F, 'NR > 1 && (!first || $2 < first) { first = $2 } END { print first }' "$tmp/t.csv" ;;
	*) "$top/test/trace/$2" "$tmp/t.$1" --json | sed -nE 's/.*"first_ns": ([0-9]+),.*/\1/p' ;;
	esac
}
from_boot() {
	local at
	at=$(first "$@")
	echo "$at of $begin to $end"
	[ "$at" -ge "$begin" ] && [ "$at" -le "$end" ]
}
from_start() {
	local at
	at=$(first "$@")
	echo "$at of 1 to $((end - begin))"
	[ "$at" -ge 1 ] && [ "$at" -le $((end - begin)) ]
}
ok "all formats with --from-boot" timed --from-boot
ok "... .pftrace counts from the boot" from_boot pftrace perfetto_read.py
ok "... .fxt too" from_boot fxt fxt_read.py
ok "... .csv too" from_boot csv
ok "all formats without" timed
ok "... .pftrace counts from the start" from_start pftrace perfetto_read.py
ok "... .fxt too" from_start fxt fxt_read.py
ok "... .csv from the boot, as ever" from_boot csv
echo "1..$n"
[ $bad = 0 ] || [ -z "${UBLKTRACE_KEEP:-}" ] || cp "$tmp"/* "$UBLKTRACE_KEEP"
exit $bad
