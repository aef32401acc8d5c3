# shellcheck shell=bash
# Shared by the guest suites: TAP, a daemon to test, a RAM disk for files, and the final checks of
# every suite (nothing left behind, clean kernel log). Sourced; runs as root in the guest.

set -u
work=/tmp/suite
mkdir -p "$work"
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
: "$here"
n=0 bad=0 daemon_pid=
# fio and jq that start in a part of the time (lean_programs.sh).
lean=$(dirname "$(dirname "$here")")/build/vm/lean
if [ -z "${full_fio:-}" ] && [ -x "$lean/fio" ]; then PATH=$lean:$PATH; fi
# Two reactors, or one where the guest has one CPU (on the instruction clock).
if [ "$(nproc)" -ge 2 ]; then reactors='[0, 1]'; else reactors='[0]'; fi
: "$reactors"

# ok NAME COMMAND...: one TAP line; what the command printed follows a failure as comments.
# A check that took long says so: which ones are worth their time is seen in each run.
ok() {
	local name=$1 code=0 begin
	shift
	n=$((n + 1))
	real_time
	begin=$real_seconds
	"$@" >"$work/out" 2>&1 || code=$?
	if [ $code -eq 0 ]; then
		echo "ok $n - $name"
	else
		bad=$((bad + 1))
		echo "not ok $n - $name"
		echo "# exit code $code of: $*"
		tail -n 30 "$work/out" | sed 's/^/# /'
		[ ! -s "$work/ublkd.log" ] || tail -n 15 "$work/ublkd.log" | cut -c1-300 | sed 's/^/# ublkd: /'
	fi
	real_time
	[ $((real_seconds - begin)) -lt 5 ] || echo "# $((real_seconds - begin)) s"
}

skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# Call at the end: the final checks of every suite, and the plan.
finish() {
	ok "no device is left" no_device_left
	ok "kernel log is clean" dmesg_clean
	echo "1..$n"
	exit $((bad > 0))
}

no_device_left() {
	stop_daemon
	! find /dev -name 'ublk[bc]*' | grep .
}

# Warnings of the kernels themselves, known and harmless, with their whole splat:
# - io_buffer_register_bvec on Debian's 7.2.13;
# - ublk_ch_uring_cmd on 6.12 when a server dies with a queue whose tags are not all armed: its
#   ubq_daemon is still NULL, and ublk_uring_cmd_cancel_fn compares it with the dying task;
# - nvmet_subsys_free on 6.12: each command for a namespace that is switched off takes a reference to it for
#   good (nvmet_subsys_nsid_exists), so it is still there when its subsystem is removed. The kernel's initiator
#   provokes it, too.
known_splats='WARNING: .*(io_buffer_register_bvec|ublk_ch_uring_cmd\+|nvmet_subsys_free\+)'

dmesg_clean() {
	! dmesg | awk -v known="$known_splats" '
		/ommand line: / { next } # has words of what it switches off
		/cut here/ { inside = 1; splat = "" }
		!inside { print }
		inside { splat = splat $0 "\n" }
		/end trace/ { if (splat !~ known) printf "%s", splat; inside = 0 }
		END { if (inside) printf "%s", splat }' |
		grep -E 'BUG|WARNING|Oops|Call Trace|UBSAN|hung|blocked for more|I/O error.*ram'
}

# start_daemon FILE: starts ublkd on a configuration and waits until it has settled.
start_daemon() {
	rm -f "$work/ready"
	ublkd --config "$1" 2>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 30 settled
}

settled() {
	ublkctl list >/dev/null 2>&1 || ! kill -0 "$daemon_pid" 2>/dev/null
}

# Stops the daemon with SIGTERM; fails when it does not exit with 0.
stop_daemon() {
	local pid=$daemon_pid
	[ -n "$pid" ] || return 0
	daemon_pid=
	kill -TERM "$pid" 2>/dev/null
	wait "$pid"
}

# driver_has FEATURE: as ublkctl doctor names it.
driver_features=
driver_has() {
	if [ -z "$driver_features" ]; then
		driver_features=$(ublkctl --json doctor |
			jq -r '.[] | select(.what == "ublk features" and .verdict == "OK").found')
	fi
	[[ " $driver_features " == *" $1 "* ]]
}

# pids NAME: of the processes of that name. What pgrep -x prints, without the second it takes to start.
pids() {
	local dir name found=()
	for dir in /proc/[0-9]*; do
		{ read -r name <"$dir/comm"; } 2>/dev/null && [ "$name" = "$1" ] && found+=("${dir#/proc/}")
	done
	echo "${found[*]}"
}

# The pid of the daemon, whoever started it; an upgrade makes another one. Not what it has just forked.
server() {
	local pid parent all found=()
	all=" $(pids ublkd) "
	for pid in $all; do
		{ read -r _ _ _ parent _ <"/proc/$pid/stat"; } 2>/dev/null || continue
		[[ $all == *" $parent "* ]] || found+=("$pid")
	done
	echo "${found[*]}"
}
no_server() { [ -z "$(server)" ]; }
no_keeper() { [ -z "$(pids ublkd-keeper)" ]; }
no_note() { ! find /run/ublkd -name '*.json*' | grep .; }
# cleared ID...: gc has removed them, now or the time before, if it was slow.
cleared() {
	local id
	ublkctl gc "$@" --remove && return
	for id; do [ ! -e "/dev/ublkc$id" ] || return; done
}
end_server() {
	daemon_pid=
	kill "$(server)" && wait_for 20 no_server
}

# Sets $real_seconds: the time outside. On the instruction clock the guest's own clock runs ahead
# whenever all of it waits for the host (a program that is loaded from there): a time limit by that
# clock can pass in no time. The hardware clock follows the host's.
real_time() {
	read -r real_seconds </sys/class/rtc/rtc0/since_epoch || real_seconds=$SECONDS
}

# rest SECONDS: sleeps without starting a process, which takes longer than most pauses in the guest.
exec {nothing}<> <(:)
rest() {
	read -rt "$1" -u "$nothing"
	return 0
}

# wait_for SECONDS COMMAND...: polls until it succeeds.
wait_for() {
	local begin
	real_time
	begin=$real_seconds
	until "${@:2}"; do
		real_time
		if [ $((real_seconds - begin)) -gt "$1" ]; then
			echo "# waited $((real_seconds - begin)) s in vain: ${*:2}"
			return 1
		fi
		rest 0.1
	done
}

# in_call PID NUMBER...: it is in one of these syscalls, as a tracer that has attached all and waits; or it
# has ended, which its caller has to look at.
in_call() {
	local call
	kill -0 "$1" 2>/dev/null || return 0
	read -r call _ 2>/dev/null <"/proc/$1/syscall" || return 1
	[[ " ${*:2} " == *" $call "* ]]
}

# lines_have FILE WORDS: prints the file; true when one of its lines has WORDS (an extended regular expression). By the
# shell alone: hundreds of checks look at what a command said, and each process costs them 20 to 60 ms.
lines_have() {
	local lines line words=$2 missing=1
	# a brace that begins no interval is itself, as grep -E has it
	if [[ $words =~ (^|[^\\])\{[^0-9] ]]; then words=${words//\{/\\{}; fi
	mapfile -t lines <"$1"
	for line in "${lines[@]}"; do
		printf '%s\n' "$line"
		if [[ $line =~ $words ]]; then missing=0; fi
	done
	return $missing
}

# said WORDS COMMAND...: the command prints WORDS (an extended regular expression), with any exit code.
said() {
	"${@:2}" >"$work/said" 2>&1
	lines_have "$work/said" "$1"
}

# answers WORDS COMMAND...: the exit code of the command, or failure when it does not print WORDS.
answers() {
	local code=0
	"${@:2}" >"$work/said" 2>&1 || code=$?
	lines_have "$work/said" "$1" || return 99
	return $code
}

# grow_ext4 MOUNTPOINT: to the size of its device, by the kernel's own call. Not resize2fs: before e2fsprogs 1.47.1
# it reads the superblock of a file system in use through the page cache, and now and then sees half a change
# ("Superblock checksum does not match"), on any block device.
grow_ext4() { /lib/systemd/systemd-growfs "$1"; }

# node NAME: the block device of a configured device.
node() {
	local text
	text=$(ublkctl --json show "$1")
	[[ $text =~ \"id\":\ ?([0-9]+) ]] && echo "/dev/ublkb${BASH_REMATCH[1]}"
}

# ram_disk [MIB [DISKS]]: a file system without journal on a RAM disk, where file backends keep their files.
ram_disk() {
	mkdir -p /mnt/ram
	modprobe brd rd_nr="${2:-1}" rd_size=$((${1:-600} * 1024)) max_part=0 &&
		mkfs.ext4 -q -O ^has_journal /dev/ram0 && mount /dev/ram0 /mnt/ram
}

# verify DEVICE [fio options]: random reads and writes whose content is checked, also while it goes on.
# Without verify_backlog fio 3.33 compares seeds as well, loses count of them when it mixes reads with
# writes of several sizes, and takes good data for bad (up to a fifth of such runs on a plain file).
verify() {
	local device=$1
	shift
	fio --name=verify --filename="$device" --ioengine=io_uring --direct=1 --rw=randrw \
		--verify=crc32c --verify_fatal=1 --do_verify=1 --verify_backlog=256 --randrepeat=0 \
		--norandommap=0 --verify_state_save=0 --minimal "$@" >"$work/fio.log" 2>&1 ||
		{ cat "$work/fio.log"; return 1; }
}
