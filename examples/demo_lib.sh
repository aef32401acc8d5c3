# shellcheck shell=bash
# What the demos share: ublkd in a folder of the demo's own, devices by name, a file system and a load.
# Sourced by them, after set -euo pipefail; whatever was started ends with the demo. A demo that has more
# to end defines undo.

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
PATH=${UBLKD_BIN_DIR:-$here/../build/release/bin}:$PATH
work=$(mktemp -d /tmp/ublkd-demo.XXXXXX)
socket=$work/control.sock
daemon='' load=''
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
ctl() { ublkctl --socket "$socket" "$@"; }
undo() { :; }

cleanup() {
	[ -z "$load" ] || kill "$load" 2>/dev/null || true
	undo first
	if mountpoint -q "$work/mnt"; then umount "$work/mnt"; fi
	if [ -n "$daemon" ]; then
		kill -TERM "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	undo last
	rm -rf "$work"
}
trap cleanup EXIT

wait_live() {
	local i
	for i in $(seq 300); do
		kill -0 "$daemon" 2>/dev/null || break
		if ctl list >/dev/null 2>&1; then return 0; fi
		sleep 0.1
	done
	cat "$work/log" >&2
	echo "demo: ublkd did not start (after $((i / 10)) s)" >&2
	return 1
}

# serve FILE WITH...: the example with its paths changed to the demo's own folder, by expressions of sed;
# checked, and served.
serve() {
	local expression script=(-e "s|/run/ublkd/control.sock|$socket|")
	for expression in "${@:2}"; do script+=(-e "$expression"); done
	sed "${script[@]}" "$here/$1" >"$work/$1"
	ublkd --check-config --config "$work/$1"
	modprobe -q ublk_drv 2>/dev/null || true
	ublkd --config "$work/$1" 2>"$work/log" &
	daemon=$!
	wait_live
	ctl list
}

node() { ctl --json show "$1" | grep -oE '/dev/ublkb[0-9]+' | head -1; }

use_filesystem() {
	mkfs.ext4 -q -F "$1"
	mkdir -p "$work/mnt"
	mount "$1" "$work/mnt"
	cp -r "$here" "$work/mnt/" && sync
	df -h "$work/mnt" | sed 's/^/   /'
}

# run_load FILE [SIZE]
run_load() {
	fio --name=demo --filename="$1" --ioengine=io_uring --direct=1 --rw=randrw --bs=4k \
		--iodepth=32 --size="${2:-64M}" --time_based --runtime=6 --verify=crc32c --verify_fatal=1 \
		--verify_state_save=0 --output="$work/fio.txt" &
	load=$!
	ctl stats --watch 1 --count 6
	wait "$load" || { cat "$work/fio.txt" >&2; return 1; }
	load=''
	grep -E '^ +(read|write):' "$work/fio.txt"
}

# remove DEVICE...: the daemon ends, and with it the devices.
remove() {
	local device code=0
	kill -TERM "$daemon"
	wait "$daemon" || code=$?
	daemon=''
	for device; do
		if [ -e "$device" ]; then echo "demo: $device is still there" >&2 && exit 1; fi
	done
	[ $code = 0 ] || { cat "$work/log" >&2; echo "demo: ublkd ended with $code" >&2; exit 1; }
}

finished() { printf '\n%sdone:%s %s\n' "$bold" "$plain" "$*"; }
