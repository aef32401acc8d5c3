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

# ---- limits ----

limit() { echo "/sys/block/$(basename "$(blk "$1")")/queue/$2"; } # NAME FILE
limit_is() { # NAME FILE VALUE
	local value=
	read -r value <"$(limit "$1" "$2")"
	[ "$value" = "$3" ] || { echo "$2 is $value" && return 1; }
}
bytes_are() { [ "$(blockdev --getsize64 "$(blk "$1")")" = "$2" ] || { blockdev --getsize64 "$(blk "$1")" && return 1; }; }

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

# zeroed NAME FROM BYTES COMMAND...: of 24 MiB these become zeroes by the command, and nothing else does
zeroed() {
	local device
	device=$(blk "$1")
	dd if=/dev/urandom of="$work/all" bs=1M count=24 status=none &&
		dd if="$work/all" of="$device" bs=1M oflag=direct status=none &&
		"${@:4}" -o "$2" -l "$3" "$device" || return
	dd if=/dev/zero of="$work/all" bs=4k seek=$(($2 / 4096)) count=$(($3 / 4096)) conv=notrunc status=none
	cmp "$work/all" <(dd if="$device" bs=1M count=24 iflag=direct status=none)
}
file_system() { # NAME
	local device
	device=$(blk "$1")
	mkfs.ext4 -q "$device" && mkdir -p /mnt/fs && mount "$device" /mnt/fs || return
	cp -r "$here" /mnt/fs/copy
	sync && fstrim /mnt/fs && echo 3 >/proc/sys/vm/drop_caches
	diff -r "$here" /mnt/fs/copy && umount /mnt/fs && fsck.ext4 -fn "$device"
}

daemon_lives() { kill -0 "$daemon_pid"; }

# ---- loads ----

# load NAME: verifies until load_ends, beside others. Sets $load_pid. Not by --loops: with them fio misses its own
# headers, on any file. Its last round is waited for: rounds are short. It is niced, so that what happens beside it
# takes no longer than it must. It stays in 24 MiB.
declare -A loads
load() {
	mkdir -p "$work/load/$1"
	(
		work=$work/load/$1 # of its own, for what fio says
		renice -n 19 -p $BASHPID >/dev/null
		while [ ! -e "$work/../enough" ]; do
			verify_two "$1" --size=10M --io_size=6M --bsrange=4k-64k >/dev/null || exit 1
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
# works NAME: its load goes on. One that has failed does not: nobody waits for it.
load_failed() { [ -n "${loads[$1]:-}" ] && ! kill -0 "${loads[$1]}" 2>/dev/null && echo "the load of $1 has ended"; }
worked_or_failed() { load_failed "$1" || more_completed "$@"; }
goes_on() { wait_for 300 worked_or_failed "$1" "$2" && more_completed "$1" "$2"; } # NAME COMPLETED
works() { completed "$1" && goes_on "$1" "$completed"; }
no_io_error() { ! dmesg | grep -E 'I/O error, dev ublkb'; }

# ---- requests that wait, and what is said of it ----

held() { ublkctl --json inflight "$1" | jq -e '[.. | objects | select(has("tag"))] | length > 0' >/dev/null; }
no_more_completed() {
	local before
	completed "$1"
	before=$completed
	rest 1
	completed "$1"
	[ "$completed" = "$before" ]
}
stands_now() { no_more_completed "$1" && held "$1"; }
# stands NAME: nothing has been completed for a second, and something waits. A load that begins anew has nothing for longer.
stands() { wait_for 30 stands_now "$1"; }
log_has() { grep -E "$@" "$work/ublkd.log"; }
logs() { wait_for 30 log_has "$1" >/dev/null; } # WORDS

# ---- the daemon dies, or is upgraded, under the loads ----

# From one moment on: they go on beside each other.
all_work() {
	local name
	local -A begun=()
	for name in "${!loads[@]}"; do completed "$name" && begun[$name]=$completed; done
	for name in "${!loads[@]}"; do goes_on "$name" "${begun[$name]}" || return; done
}
kill_daemon() {
	kill -KILL "$(server)"
	wait "$daemon_pid" 2>/dev/null
	wait_for 20 no_server
}
start_again() { # CONFIGURATION NAME...
	ublkd --config "$1" 2>>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 60 settled && wait_for 60 are_live "${@:2}"
}
kill_and_start() { # TIMES CONFIGURATION NAME...
	local i
	for ((i = 0; i < $1; i++)); do
		all_work && kill_daemon && start_again "${@:2}" || return
	done
	all_work
}
# Where requests take longer than an upgrade waits for them, of an emulated cluster say, it is called off: nothing has
# changed, and it can be asked for again. Of all else the process that serves says that it has failed.
upgraded_or_failed() {
	ublkctl upgrade 2>"$work/upgrade.err" && return
	cat "$work/upgrade.err"
	! grep -q 'requests of device .* did not come to an end' "$work/upgrade.err"
}
upgrade() { # TIMES
	local before i
	for ((i = 0; i < $1; i++)); do
		before=$(server)
		wait_for 120 upgraded_or_failed && wait_for 60 settled && [ "$(server)" != "$before" ] && all_work || return
	done
	daemon_pid=$(server)
}
# ends LIMIT: within so many seconds.
ends() {
	real_time
	local start=$real_seconds
	end_server || return
	real_time
	echo "took $((real_seconds - start)) s"
	[ $((real_seconds - start)) -le "$1" ]
}
