#!/bin/bash
# Power cuts: QEMU is killed with -9 at a random moment while a device in a file on the guest's ext4
# is written to. All data that was flushed, or written with FUA, before the cut must be in the file
# afterwards; every other sector has its old or its new content. Prints TAP.
#
#   powercut.sh SERIES [CUTS [SEED]]    4 cuts; 12 with UBLKD_SOAK=1
#
# Two kinds of disks: a raw file that QEMU writes past the page cache (cache=none), and one with a
# write cache that is lost with the power (volatile_disk.py). Two kinds of backends: direct, whose
# file is sparse, so that the journal must record the allocation; and buffered. The seed determines
# the written data and, within the precision of the clock, the moment of the cut.
#
# The last tests check the test itself: it must detect a daemon that forgets flushes or FUA.
set -uo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(dirname "$(dirname "$here")")
series=${1:?usage: powercut.sh SERIES [CUTS [SEED]]}
cuts=${2:-4}
if [ $# -lt 2 ] && [ -n "${UBLKD_SOAK:-}" ]; then cuts=12; fi
seed=${3:-$((SRANDOM % 1000000))}
program=$top/build/release/test/powercut
tmp=$(mktemp -d)
notes=$top/build/out/powercut.$$
disk_server=
export UBLKD_VM_DMESG=$tmp/dmesg
. "$top/test/tap.sh"

clean_up() {
	if [ -n "$disk_server" ]; then kill -KILL "$disk_server" 2>/dev/null; fi
	rm -rf "$tmp" "$notes"
}
trap clean_up EXIT

# The seed of a cut determines all of these; set_cut SEED sets them.
set_cut() {
	cut=$1
	if ((cut % 2)); then disk=volatile; else disk=plain; fi
	if ((cut / 2 % 2)); then direct=off; else direct=on; fi
	sync=$(printf 'both\nfua\nflush\n' | sed -n "$((cut % 3 + 1))p")
	RANDOM=$cut
	delay_ms=$((100 + RANDOM % 2000))
}

make_disk() {
	rm -rf "$tmp/image" "$tmp/disk" "$notes"
	mkdir -p "$notes"
	truncate -s 64M "$tmp/image" && mkfs.ext4 -q "$tmp/image" || return
	ln -sf "$tmp/image" "$tmp/disk"
	[ $disk = volatile ] || return 0
	rm -f "$tmp/disk"
	"$here/volatile_disk.py" "$tmp/disk" "$tmp/image" "$cut" &
	disk_server=$!
	until [ -S "$tmp/disk" ]; do
		kill -0 $disk_server || return
		sleep 0.05
	done
}

# Boots, waits for the first promise and then delay_ms, and kills QEMU. All processes in the guest's
# namespace have the fifo open, so its end means that QEMU has exited. Uses -s, because so many boots
# would otherwise hit QEMU's races.
run_until_cut() {
	local guest tries
	rm -f "$tmp/alive" && mkfifo "$tmp/alive"
	cat "$tmp/alive" &
	local reader=$!
	"$here/vm.sh" -s -k "$series" -m 1G -t 300 -d "$tmp/disk" -- "$here/guest_powercut.sh" \
		"$program" "/out/${notes##*/}" "$cut" "$sync" "$direct" 7>"$tmp/alive" &
	guest=$!
	for ((tries = 0; tries < 4000; tries++)); do
		if [ -s "$notes/0" ] || ! kill -0 $guest 2>/dev/null; then break; fi
		sleep 0.05
	done
	sleep "$((delay_ms / 1000)).$(printf %03d $((delay_ms % 1000)))"
	kill -0 $guest || { echo "the guest has ended by itself"; return 1; }
	kill -TERM $guest # vm.sh then kills all of the guest with -9
	wait $guest $reader
	if [ $disk = volatile ]; then
		kill -KILL $disk_server
		wait $disk_server
		disk_server=
	fi
	return 0
}

# A missing file counts as empty.
take_out() { # IMAGE
	: >"$tmp/file"
	debugfs -R "dump /file $tmp/file" "$1"
}

# Replays the journal, as after a power cut; then the file system must be consistent.
check_image() {
	e2fsck -p "$tmp/image" || [ $? = 1 ] || return
	e2fsck -fn "$tmp/image" || return
	take_out "$tmp/image" || return
	if [ $sync = fua ]; then # the file system on the device has no journal to replay
		mv "$tmp/file" "$tmp/inner" && e2fsck -fy "$tmp/inner" || [ $? = 1 ] || return
		take_out "$tmp/inner" || return
	fi
	"$program" check "$tmp/file" "$notes" "$cut" "$sync"
}

power_cut() {
	set_cut "$1"
	make_disk && run_until_cut && check_image
}

# The check itself must report the defect, and nothing else may fail.
is_caught() { # ENVIRONMENT SEED
	local code=0
	(
		export "${1?}" UBLKD_VM_ENV=${1%%=*} UBLKD_BIN_DIR=$top/build/release/faults
		power_cut "$2"
	) >"$tmp/caught" 2>&1 || code=$?
	cat "$tmp/caught"
	[ $code = 1 ] && grep -qE ' [1-9][0-9]* wrong$' "$tmp/caught"
}

for tool in mkfs.ext4 e2fsck debugfs python3; do
	if ! command -v $tool >/dev/null; then
		skip "power cuts" "no $tool"
		echo "1..$n"
		exit
	fi
done
echo "# seed $seed"
for ((i = 0; i < cuts; i++)); do
	set_cut $((seed + i))
	ok "cut $cut: $disk disk, direct $direct, $sync, $delay_ms ms; again: $0 $series 1 $cut" power_cut "$cut"
	tail -n 1 "$tmp/log" | sed 's/^/# /'
done
if [ ! -x "$top/build/release/faults/ublkd" ]; then
	skip "forgotten flushes are caught" "no build/release/faults: cmake --build build/release --target ublkd-faults"
	skip "forgotten FUA is caught" "no build/release/faults: cmake --build build/release --target ublkd-faults"
else
	# seeds of the kinds that are meant: flush or fua, volatile disk, buffered
	ok "forgotten flushes are caught" is_caught UBLKD_FAULT_NO_FLUSH=1 11
	ok "forgotten FUA is caught" is_caught UBLKD_FAULT_NO_FUA=1 7
fi
echo "1..$n"
exit $bad
