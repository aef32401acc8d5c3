# shellcheck shell=bash
# Shared by the guest suites about devices on servers: the devices of one daemon by name, and loads with verified
# content that run while a test does something to a server. Sourced after guest_lib.sh. Loops that poll fork little:
# a process costs 50 ms or more in the guest.

disks=/mnt/ram

# ---- devices ----

declare -A node_of

# Fills node_of with the devices that are live.
ask_daemon() {
	local name id state
	node_of=()
	ublkctl --json list | jq -r '.. | objects | select(has("name") and has("id")) | "\(.name) \(.id) \(.state)"' \
		>"$work/list" || return
	while read -r name id state; do
		[ "$state" = live ] && node_of[$name]=/dev/ublkb$id
	done <"$work/list"
	cat "$work/list"
}
are_live() { # NAME...
	local name
	ask_daemon || return
	for name; do [ -b "${node_of[$name]:-}" ] || { echo "$name is not live"; return 1; }; done
}
# blk NAME: its block device, or a path that cannot be written.
blk() { echo "${node_of[$1]:-/proc/no-device-$1}"; }

gone() { ! ublkctl show "$1" >/dev/null; }
# delete NAME LIMIT [OPTION...]: within so many seconds.
delete() {
	local start
	real_time
	start=$real_seconds
	# It says when that takes longer than it should.
	ublkctl del "$1" "${@:3}"
	wait_for "$2" gone "$1" || return
	real_time
	echo "took $((real_seconds - start)) s"
	[ $((real_seconds - start)) -le "$2" ]
}

# ---- data ----

# Two jobs at QD32, each on a half of a disk of 24 MiB; those of one queue: one job.
two_jobs="--iodepth=32 --numjobs=2 --size=8M --io_size=2M --offset_increment=12M --blockalign=4k"
one_job="--iodepth=32 --size=16M --io_size=2M --blockalign=4k"
# shellcheck disable=SC2086
verify_two() { verify "$(blk "$1")" $two_jobs --bsrange=4k-256k "${@:2}"; }
# shellcheck disable=SC2086
verify_one() { verify "$(blk "$1")" $one_job --bsrange=4k-64k "${@:2}"; }
# same_bytes NAME [DEVICE]: the file on the RAM disk holds what the device shows.
same_bytes() { cmp "$disks/$1" "$(blk "${2:-$1}")"; }

daemon_lives() { kill -0 "$daemon_pid"; }

# ---- loads ----

# load NAME: verifies until load_ends, beside others. Sets $load_pid. Not by --loops: with them fio misses its own
# headers, on any file.
declare -A loads
load() {
	mkdir -p "$work/load/$1"
	(
		work=$work/load/$1 # of its own, for what fio says
		while [ ! -e "$work/../enough" ]; do
			verify_two "$1" --size=20M --io_size=20M --offset_increment=24M --bsrange=4k-64k >/dev/null || exit 1
		done
	) &
	load_pid=$!
	loads[$1]=$load_pid
}
# Of all: no request failed, and what was read is what was written.
load_ends() {
	local name code=0
	touch "$work/load/enough"
	for name in "${!loads[@]}"; do
		wait "${loads[$name]}" || { echo "$name:" && cat "$work/load/$name/fio.log"; code=1; }
	done
	loads=()
	rm -r "$work/load"
	return $code
}
# Sets $completed: requests that a device has completed.
completed() {
	local fields
	read -ra fields <"/sys/block/${node_of[$1]#/dev/}/stat"
	completed=$((fields[0] + fields[4]))
}
more_completed() { completed "$1" && [ "$completed" -gt $(($2 + 100)) ]; }
works() { # NAME
	completed "$1"
	wait_for 300 more_completed "$1" "$completed"
}
no_io_error() { ! dmesg | grep -E 'I/O error, dev ublkb'; }
