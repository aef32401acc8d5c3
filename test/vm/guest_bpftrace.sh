#!/bin/bash
# In the guest: each script of ublktrace/bpftrace on a load with known numbers, sizes, depths and waits.
# The scripts must print exactly these. Needs vm.sh -i or -s, like every test that patches the
# kernel's code. With one CPU it assumes the instruction clock (-i). With more, a busy host can delay
# any I/O: then it checks no upper limit of a time, and adds up two queues.
# By turns: 7.2 -i
# With --all: 6.12 -s
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_rbd_lib.sh"

exact=
[ "$(nproc)" -ge 2 ] || exact=1
scripts=$here/../../ublktrace/bpftrace
missing=
command -v bpftrace >/dev/null || missing="there is no bpftrace on this machine"
grep -qa io__commit "$(command -v ublkd)" || missing="ublkd was built without sys/sdt.h"
if [ -n "$missing" ]; then
	skip "scripts for bpftrace" "$missing"
	finish
fi

# Reads take 40 ms, writes of "slow" none; "bad" fails a read after its 40 ms.
cat >"$work/bpftrace.yaml" <<'YAML'
daemon: {reactors: [0, 1]}
devices:
  - {name: slow, queues: 1, backend: {type: delay, read: 40ms, backend: {type: mem, size: 64MiB}}}
  - {name: held, queues: 1, backend: {type: throttle, total_iops_sec: 100, backend: {type: mem, size: 64MiB}}}
  - {name: wide, queues: 2, backend: {type: delay, read: 40ms, backend: {type: mem, size: 64MiB}}}
  - name: bad
    queues: 1
    backend:
      type: delay
      read: 40ms
      backend: {type: error, op: read, from_sector: 80, to_sector: 88, backend: {type: mem, size: 64MiB}}
YAML
[ -z "$exact" ] || sed -i 's/\[0, 1\]/[0]/; s/queues: 2/queues: 1/' "$work/bpftrace.yaml"
ok "the daemon serves" start_daemon "$work/bpftrace.yaml"

# id NAME: N of its /dev/ublkbN
id() { node "$1" | tr -dc 0-9; }

# trace SCRIPT [ARG...]: starts it; returns when all probes are attached, which is when it polls.
trace() {
	bpftrace -p "$daemon_pid" "$scripts/$1" "${@:2}" >"$work/trace" 2>&1 &
	trace_pid=$!
	wait_for 60 polls && kill -0 "$trace_pid" && return
	cat "$work/trace"
	return 1
}

polls() { in_call "$trace_pid" 232 281; } # epoll_wait, epoll_pwait

ended() { ! kill -0 "$trace_pid" 2>/dev/null || grep -q '^State:.Z' "/proc/$trace_pid/status"; }

# Ends it as ^C does. Whatever it warned of makes what it counted worthless. bpftrace 0.17 ends when a signal
# interrupts its epoll_wait, and forgets one that comes while it prints: after 5 s in its loop it is told again.
trace_end() {
	local i
	sleep 0.5 # it empties its buffers every tenth of a second
	for i in 1 2 3 4 5 6; do
		! polls || kill -INT "$trace_pid"
		if wait_for 5 ended; then break; fi
	done
	if ! wait_for 30 ended; then
		echo "bpftrace does not end:"
		head -n 20 "/proc/$trace_pid"/task/*/{syscall,stack} 2>&1
		kill -KILL "$trace_pid"
	fi
	wait "$trace_pid" || return
	! grep -E 'Lost|ERROR|WARN|Map full' "$work/trace"
}

# load NAME COUNT [fio options]: that many I/Os
load() {
	fio --name=load --filename="$(node "$1")" --ioengine=io_uring --direct=1 --bs=4k --size=64M \
		--number_ios="$2" --minimal "${@:3}" >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}

# hist MAP KEY: of a histogram the sum of its counts, and where the first and last bucket in use start
hist() {
	awk -v head="@$1[$2]: " '
		function bytes(text) { return text * (text ~ /K/ ? 1024 : text ~ /M/ ? 1048576 : 1) }
		$0 == head { inside = 1; next }
		!inside { next }
		!/^\[/ { exit }
		{
			start = $0; sub(/^\[/, "", start); sub(/[],].*/, "", start)
			count = $0; sub(/^\[[^])]*[])] */, "", count); count += 0
			if (count && !sum) first = bytes(start)
			if (count) last = bytes(start)
			sum += count
		}
		END { print sum + 0, first + 0, last + 0 }' "$work/trace"
}

# is WANTED GOT
is() { [ "$1" = "$2" ] || { echo "wanted: $1"; echo "got: $2"; cat "$work/trace"; return 1; }; }

# within MAP KEY COUNT FIRST LAST: so many, none in a bucket below FIRST or above LAST
within() {
	local sum first last
	read -r sum first last < <(hist "$1" "$2")
	echo "$1[$2]: $sum in buckets from $first to $last; wanted $3 from $4 to $5"
	[ "$sum" -eq "$3" ] && [ "$first" -ge "$4" ] && [ "$last" -le "$5" ] || { cat "$work/trace"; return 1; }
}

# takes MAP KEY COUNT FIRST LAST: within, for times
takes() { if [ -n "$exact" ]; then within "$@"; else within "${@:1:4}" 999999999; fi; }

# ---- latency.bt

latency_load() {
	ublkctl histogram reset slow && load slow 60 --rw=randread --iodepth=4 &&
		load slow 100 --rw=randwrite --iodepth=1 && load held 60 --rw=randread --iodepth=8
}

waits_in_throttle() {
	local at_once
	at_once=$(awk '/^@throttle_us/ { inside = $0 ~ /read\]/ && $0 ~ /\['"$(id held)"',/ }
		inside && /^\[0\]/ { print $2 }' "$work/trace")
	echo "$at_once did not wait, of a bucket of 10"
	[ "${at_once:-0}" -le $((exact ? 20 : 59)) ] && [ "$(hist throttle_us "$(id held), read" | cut -d' ' -f3)" -ge 32768 ]
}

# The mean of our own histograms, which have nanoseconds.
same_mean() {
	local ours theirs
	ours=$(ublkctl --json histogram get slow --layer "$1" --op read | sed -nE 's/.*"mean_ns": ?([0-9]+).*/\1/p' | head -1)
	theirs=$(sed -nE "s/^@average_us\[$(id slow), read, $1\]: //p" "$work/trace")
	echo "$1: ublkctl $ours ns, latency.bt $theirs us"
	[ -n "$theirs" ] && [ $((theirs - ours / 1000)) -le 1 ] && [ $((ours / 1000 - theirs)) -le 1 ]
}

ok "latency.bt starts" trace latency.bt
ok "reads and writes on a slow device, reads on a throttled one" latency_load
ok "latency.bt loses nothing" trace_end
slow=$(id slow) held=$(id held)
for layer in total throttle daemon backend; do
	ok "$layer: every read is counted" takes ${layer}_us "$slow, read" 60 0 32768
	ok "$layer: every write is counted" takes ${layer}_us "$slow, write" 100 0 8192
	ok "$layer: every throttled read is counted" takes ${layer}_us "$held, read" 60 0 131072
	ok "$layer: the mean is that of ublkctl" same_mean $layer
done
ok "a delay is the backend's" takes backend_us "$slow, read" 60 32768 32768
ok "... and in the total" takes total_us "$slow, read" 60 32768 32768
ok "... not the daemon's" takes daemon_us "$slow, read" 60 0 8192
ok "... not a throttle's" within throttle_us "$slow, read" 60 0 0
ok "a throttle's wait is its own" waits_in_throttle
ok "... not the backend's" takes backend_us "$held, read" 60 0 8192
ok "... not the daemon's" takes daemon_us "$held, read" 60 0 8192
ok "the kernel sees every slow read" takes kernel_us "ublkb$slow, read" 60 32768 32768
ok "the kernel sees every write" takes kernel_us "ublkb$slow, write" 100 0 8192
ok "the kernel sees every throttled read" takes kernel_us "ublkb$held, read" 60 0 131072

# ---- iosize.bt

iosize_load() {
	load held 20 --rw=read --bs=4k && load held 15 --rw=write --bs=64k && load held 5 --rw=trim --bs=1M &&
		load slow 7 --rw=write --bs=8k
}

all() { grep -F "@all[$1]" "$work/trace"; }

ok "iosize.bt starts" trace iosize.bt
ok "reads, writes and discards of three sizes" iosize_load
ok "iosize.bt loses nothing" trace_end
ok "20 reads of 4 KiB" within bytes "$held, read" 20 4096 4096
ok "15 writes of 64 KiB" within bytes "$held, write" 15 65536 65536
ok "5 discards of 1 MiB" within bytes "$held, discard" 5 1048576 1048576
ok "7 writes of 8 KiB on another device" within bytes "$slow, write" 7 8192 8192
ok "their number and sum" is "@all[$held, write]: count 15, average 65536, total 983040" "$(all "$held, write")"
ok "no reads there" within bytes "$slow, read" 0 0 0

# ---- queuedepth.bt

depth_load() {
	load slow 64 --rw=randread --iodepth=16 && load held 10 --rw=randread --iodepth=1 || return
	[ -n "$exact" ] ||
		load wide 160 --rw=randread --iodepth=8 --numjobs=2 --cpus_allowed=0,1 --cpus_allowed_policy=split
}

depth_max() { sed -nE "s/^@depth_max\[$1\]: //p" "$work/trace"; }
each_second() { grep -qE '^[0-9]{2}:[0-9]{2}:[0-9]{2}$' "$work/trace" && grep -q "^@depth_max_of_second\[$slow\]: " "$work/trace"; }

ok "queuedepth.bt starts" trace queuedepth.bt
ok "16 at a time, 1 at a time" depth_load
ok "queuedepth.bt loses nothing" trace_end
ok "the largest depth is fio's" is 16 "$(depth_max "$slow")"
ok "one at a time is one" is 1 "$(depth_max "$held")"
ok "every I/O is counted" within depth "$slow" 64 0 16
ok "a line each second" each_second
if [ -z "$exact" ]; then
	ok "two queues are added up" is 16 "$(depth_max "$(id wide)")"
else
	skip "two queues are added up" "this guest has one CPU"
fi

# ---- librbd.bt

rbd_device() {
	rbd create --size 16M rbd/traced &&
		echo "{name: traced, queues: 1, backend: {type: rbd, uri: \"rbd:rbd/traced\", conf: $ceph_dir/ceph.conf, keyring: $ceph_dir/keyring}}" |
		ublkctl add -f -
}
rbd_load() {
	ublkctl histogram reset traced && load traced 40 --size=16M --rw=randwrite --iodepth=4 &&
		load traced 30 --size=16M --rw=randread --iodepth=1 && load traced 3 --rw=trim --bs=4M --size=12M
}
# What librbd takes is in the layer of the backend, and nearly all of it.
librbd_fits() {
	local ours theirs
	ours=$(ublkctl --json histogram get traced --layer backend --op "$1" | sed -nE 's/.*"mean_ns": ?([0-9]+).*/\1/p' | head -1)
	theirs=$(sed -nE "s/^@average_us\[$1\]: //p" "$work/trace")
	echo "$1: ublkctl $ours ns, librbd.bt $theirs us"
	[ -n "$theirs" ] && [ $((theirs * 1000)) -le "$ours" ] && { [ -z "$exact" ] || [ $((theirs * 2000)) -ge "$ours" ]; }
}
if ceph_up memstore; then
	ok "a device of rbd" rbd_device
	ok "librbd.bt starts" trace librbd.bt
	ok "writes, reads and discards on an image" rbd_load
	ok "librbd.bt loses nothing" trace_end
	ok "every write is counted" within us write 40 1 999999999
	ok "every read is counted" within us read 30 1 999999999
	ok "every discard is counted" within us discard 3 1 999999999
	ok "librbd's writes are the backend's" librbd_fits write
	ok "librbd's reads are the backend's" librbd_fits read
	ok "the device is removed" ublkctl del traced
	cluster kill
else
	skip "librbd.bt" "$ceph_why"
fi

# ---- slow.bt

slow_load() {
	load slow 20 --rw=read --iodepth=4 && load slow 50 --rw=randwrite && load held 20 --rw=randread --iodepth=1 &&
		load bad 12 --rw=read --iodepth=1 --continue_on_error=all
}

# slow_lines NAME FIELD: of all its lines, sorted
slow_lines() { awk -v dev="$(id "$1")" -v field="$2" '/^[0-9]+:/ && $2 == dev { print $field }' "$work/trace" | sort -n; }
layers_add_up() {
	awk '/^[0-9]+:/ {
		lines++
		off = $9 - $10 - $11 - $12 # each is rounded down
		if (off < 0 || off > 2 || $12 < 40000 || $10 != 0) { print; bad = 1 }
	}
	END { exit bad || !lines }' "$work/trace"
}

ok "slow.bt starts" trace slow.bt 35000
ok "slow reads, fast writes, a read that fails" slow_load
ok "slow.bt loses nothing" trace_end
if [ -z "$exact" ]; then
	ok "every slow read is there" is 20 "$(slow_lines slow 5 | grep -c read)"
	skip "exactly the slow ones" "this guest's clock is the host's"
	finish
fi
ok "exactly the slow ones, by sector" is "$(seq 0 8 152)" "$(slow_lines slow 6)"
ok "all of them reads" is read "$(slow_lines slow 5 | sort -u)"
ok "all of 4096 bytes" is 4096 "$(slow_lines slow 7 | sort -u)"
ok "nothing that was fast" is "" "$(slow_lines held 6)"
ok "the layers add up, the delay is the backend's" layers_add_up
ok "a failed one too" is "-5 80" "$(awk -v dev="$(id bad)" '/^[0-9]+:/ && $2 == dev && $8 < 0 { print $8, $6 }' "$work/trace")"
# fio does not count the one that failed
ok "all of that device" is "$(seq 0 8 96)" "$(slow_lines bad 6)"
finish
