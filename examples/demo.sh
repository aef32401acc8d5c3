#!/bin/bash
# The demo: serves two disks from examples/demo.yaml, creates a file system on one, runs a load with
# data verification on the other, shows statistics meanwhile, and removes everything at the end.
# ./dev demo runs it on this machine or in the test guest. Needs root and the ublk driver.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
PATH=${UBLKD_BIN_DIR:-$here/../build/release/bin}:$PATH
work=$(mktemp -d /tmp/ublkd-demo.XXXXXX)
socket=$work/control.sock
daemon='' load=''
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
ctl() { ublkctl --socket "$socket" "$@"; }

cleanup() {
	[ -z "$load" ] || kill "$load" 2>/dev/null || true
	if mountpoint -q "$work/mnt"; then umount "$work/mnt"; fi
	if [ -n "$daemon" ]; then
		kill -TERM "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT

# Writes the example with its paths changed to the demo's own folder, and checks it.
configure() {
	sed -e "s|/run/ublkd/control.sock|$socket|" -e "s|/var/tmp/ublkd-demo.img|$work/file.img|" \
		"$here/demo.yaml" >"$work/demo.yaml"
	ublkd --check-config --config "$work/demo.yaml"
}

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

node() { ctl --json show "$1" | grep -oE '/dev/ublkb[0-9]+' | head -1; }

use_filesystem() {
	mkfs.ext4 -q -F "$1"
	mkdir -p "$work/mnt"
	mount "$1" "$work/mnt"
	cp -r "$here" "$work/mnt/" && sync
	df -h "$work/mnt" | sed 's/^/   /'
}

run_load() {
	fio --name=demo --filename="$1" --ioengine=io_uring --direct=1 --rw=randrw --bs=4k \
		--iodepth=32 --size=64M --time_based --runtime=6 --verify=crc32c --verify_fatal=1 \
		--verify_state_save=0 --output="$work/fio.txt" &
	load=$!
	ctl stats --watch 1 --count 6
	wait "$load" || { cat "$work/fio.txt" >&2; return 1; }
	load=''
}

step "two disks from $here/demo.yaml"
configure
modprobe -q ublk_drv 2>/dev/null || true
ublkd --config "$work/demo.yaml" 2>"$work/log" &
daemon=$!
wait_live
ctl list
memory=$(node ram) file=$(node disk)

step "a file system on $file"
use_filesystem "$file"

step "random reads and writes on $memory, every block verified"
run_load "$memory"
grep -E '^ +(read|write):' "$work/fio.txt"

step "the file system is clean"
umount "$work/mnt"
fsck.ext4 -fn "$file"

step "everything is removed"
kill -TERM "$daemon"
code=0
wait "$daemon" || code=$?
daemon=''
for device in "$memory" "$file"; do
	if [ -e "$device" ]; then echo "demo: $device is still there" >&2 && exit 1; fi
done
[ $code = 0 ] || { cat "$work/log" >&2; echo "demo: ublkd ended with $code" >&2; exit 1; }

printf '\n%sdone:%s two disks served, ext4 checked, data verified, nothing left behind\n' "$bold" "$plain"
