#!/bin/bash
# Draws the pictures of README.md from real runs in the test guest, in about four minutes:
#   top.svg, top-device.svg   ublkctl top, as a terminal shows it (screen.py)
#   timeline.svg              requests of fio on their way, by ublktrace record (test/trace/draw.py)
#   metrics-page.png          the web page at the metrics port (metrics-page.sh, six minutes more)
# Usage: draw.sh [top|trace|page]; without: all. Needs root, a build in build/release and test/vm/vm.sh --install.
# Not on the instruction clock (vm.sh -i): there a second of this load takes more than ten.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$(dirname "$(dirname "$here")")
out=$top/build/out/pictures

guest() { timeout -k 10 320 "$top/test/vm/vm.sh" -k 7.2 -t 300 "$@"; }

# keep NAME: a picture that has what a picture must have, and is small.
keep() {
	grep -q '<text' "$out/$1" && [ "$(stat -c %s "$out/$1")" -lt 150000 ] ||
		{ echo "draw.sh: $out/$1 is empty, or above 150 KB" >&2; return 1; }
	cp "$out/$1" "$here/$1"
	echo "$here/$1"
}

draw_top() {
	guest -- "$here/guest.sh" top
	keep top.svg
	keep top-device.svg
}

draw_trace() {
	guest -s -- "$here/guest.sh" trace
	timeout 60 "$top/test/trace/draw.py" "$out/trace.pftrace" --width 700 --tracks fio,ublkb,reactor \
		--without 'off CPU,iou-wrk,reaped,waiting,io-wq' >"$out/timeline.svg"
	keep timeline.svg
}

mkdir -p "$out"
case ${1:-all} in
top) draw_top ;;
trace) draw_trace ;;
page) "$here/metrics-page.sh" ;;
all)
	draw_top
	draw_trace
	"$here/metrics-page.sh"
	;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
