#!/bin/bash
# In the guest: the daemon with missing resources: a full /run, CPUs that go offline, memory disks
# larger than the memory or than the control group's limit, few descriptors, no locked memory, swap on
# a device. Needs little memory (vm.sh -m 800M) and two CPUs.
# Runs on: uml -m 800M
# By turns: 7.2 -m 800M
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 1
cat >"$work/two.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: a, id: 0, queues: 2, backend: {type: mem, size: 64MiB}}
EOF
lives() { [ -n "$(server)" ] && wait_for 20 live_devices 1; }
live_devices() { [ "$(ublkctl list 2>/dev/null | grep -c ' live ')" = "$1" ]; }
logged() { grep -E "$1" "$work/ublkd.log"; }
# What systemd does for a unit. The log stays one file.
restart() { ublkd --config "$1" 2>>"$work/ublkd.log" & daemon_pid=$!; }
upgrades() { # where the driver can
	driver_has QUIESCE || return 0
	ublkctl upgrade && wait_for 10 settled && daemon_pid=$(server)
}
kill_it() {
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	return 0
}

# --- a full /run -------------------------------------------------------------------------------------------------

# Room for a note, not for a recorder.
mkdir -p /run/ublkd && mount -t tmpfs -o size=64k tmpfs /run/ublkd || exit 1
ok "full /run: the daemon starts" eval 'start_daemon "$work/two.yaml" && lives'
ok "and says that its recorder is in memory" logged 'flight recorder has no file.*reactor=1.*ENOSPC'
recorded() { ublkctl flight | grep -E ' a .*commit'; }
ok "ublkctl flight reads it" eval 'dd if=/dev/ublkb0 of=/dev/null bs=4k count=6000 iflag=direct status=none && lives && recorded'
ok "an upgrade works" eval 'upgrades && lives'
ok "ublkctl flight reads the new program" eval 'dd if=/dev/ublkb0 of=/dev/null bs=64k count=9 iflag=direct status=none && recorded'
kill_it
ok "ublkctl flight says why there is nothing of a dead daemon" said 'memory of a daemon that has exited' ublkctl flight
ok "a start after a crash" eval 'restart "$work/two.yaml" && wait_for 20 settled && lives'
stop_daemon
ok "no link is left behind as evidence" test ! -e /run/ublkd/flight-0.old
umount /run/ublkd
ok "with room the recorder is a file" eval 'start_daemon "$work/two.yaml" && test -f /run/ublkd/flight-0 -a ! -L /run/ublkd/flight-0'

# --- CPUs that go and come back ------------------------------------------------------------------------------------

cpu1() { echo "$1" >/sys/devices/system/cpu/cpu1/online; }
pinned() { [ "$(ublkctl --json reactors | jq -c '[.[] | select(.name == "data") | .pinned]')" = "$1" ]; }
runs_on() { # of reactor-1
	local task
	for task in /proc/"$(server)"/task/*; do
		[ "$(<"$task/comm")" = reactor-1 ] || continue
		grep -E "^Cpus_allowed_list:	$1$" "$task/status"
		return
	done
	return 1
}
if [ -w /sys/devices/system/cpu/cpu1/online ]; then
	ok "each reactor is on its CPU" eval 'pinned "[true,true]" && runs_on 1'
	verify /dev/ublkb0 --bs=4k --iodepth=8 --numjobs=2 --size=16M --offset_increment=16M --time_based --runtime=3 &
	load=$!
	ok "a CPU goes offline under load" eval 'cpu1 0 && wait_for 10 pinned "[true,false]"'
	ok "it is told" eval 'wait_for 10 logged "CPU of a reactor cannot be used.*reactor=1 cpu=1.*offline"'
	ok "requests go on" wait $load
	ok "in the table, too" said 'not 1' ublkctl reactors
	ok "--check-config warns" answers 'warning: reactors: CPU 1 is offline' ublkd --check-config --config "$work/two.yaml"
	ok "an upgrade works without the CPU" eval 'upgrades && lives && pinned "[true,false]"'
	kill_it
	ok "crash and CPU offline: the device is taken over" eval 'restart "$work/two.yaml" && wait_for 20 settled && lives'
	ok "and serves" verify /dev/ublkb0 --bs=4k --iodepth=8 --size=16M
	ok "the CPU returns: its reactor goes back" eval 'cpu1 1 && wait_for 10 pinned "[true,true]" && runs_on 1'
	ok "it is told" eval 'wait_for 10 logged "on its CPU again.*reactor=1 cpu=1"'
	cpu1 0 && cpu1 1
	ok "away and back between two looks" eval 'wait_for 10 pinned "[true,true]" && runs_on 1'
else
	skip "CPUs that go" "this kernel has no CPU hotplug"
fi
stop_daemon
no_such_cpu() {
	echo 'daemon: {reactors: [0, 77]}' >"$work/77.yaml"
	! answers 'CPU 77 is not one this machine can have' ublkd --check-config --config "$work/77.yaml"
}
ok "a CPU that cannot be is an error" eval 'no_such_cpu; grep -q "CPU 77 is not one" "$work/said"'

# in_group NAME COMMAND...: runs it there.
in_group() {
	local group=/sys/fs/cgroup/$1
	shift
	(echo $BASHPID >"$group/cgroup.procs" && exec "$@")
}
start_in_group() {
	(echo $BASHPID >"/sys/fs/cgroup/$1/cgroup.procs" && exec ublkd --config "$2" 2>>"$work/ublkd.log") &
	daemon_pid=$!
	wait_for 20 settled
}
echo '+cpuset +memory' >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/small /sys/fs/cgroup/one
echo 0 >/sys/fs/cgroup/one/cpuset.cpus
: >"$work/ublkd.log"
ok "a control group without the CPU: the daemon starts" eval 'start_in_group one "$work/two.yaml" && lives && pinned "[true,false]"'
ok "and goes there when it may" eval 'echo 0-1 >/sys/fs/cgroup/one/cpuset.cpus && wait_for 10 pinned "[true,true]" && runs_on 1'
end_server

# --- memory ----------------------------------------------------------------------------------------------------------

cat >"$work/large.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: large, id: 0, backend: {type: mem, size: 4GiB}}
EOF
fill() { # until it is full; says how many MiB it took
	! dd if=/dev/zero of=/dev/ublkb0 bs=1M oflag=direct conv=nocreat 2>"$work/dd" || return 1
	cat "$work/dd"
	grep -q 'No space left on device' "$work/dd" && filled_mib=$(sed -nE 's/^([0-9]+)\+.*out/\1/p' "$work/dd")
}
same_server() { [ "$(server)" = "$daemon_pid" ]; }
page() { dd if=/dev/zero of=/dev/ublkb0 bs=4k seek="$1" count=1 oflag=direct conv=nocreat status=none; }
: >"$work/ublkd.log"
echo 160M >/sys/fs/cgroup/small/memory.max
ok "--check-config warns of a disk larger than the memory" answers 'warning: devices: .*4096 MiB, and this machine has' ublkd --check-config --config "$work/large.yaml"
ok "and of one larger than the limit of the control group" answers 'the control group /small has 160 MiB' \
	in_group small ublkd --check-config --config "$work/large.yaml"
start_in_group small "$work/large.yaml"
ok "a disk larger than the limit is filled: ENOSPC" fill
ok "the daemon lives" eval 'same_server && lives'
echo "# $filled_mib MiB of 160 MiB"
ok "most of the memory could be used" test "${filled_mib:-0}" -gt 90
ok "nobody was killed" eval '! grep -E "^oom_kill [1-9]" /sys/fs/cgroup/small/memory.events'
ok "it is told" logged 'no memory is left for a write'
ok "what is there can be written" page 0
read_all() { dd if=/dev/ublkb0 of=/dev/null bs=1M count=2048 iflag=direct status=none; }
ok "reading costs none" eval 'read_all && same_server'
# A write that nobody has answered is given to the next daemon.
kill -STOP "$daemon_pid"
page 500000 2>"$work/page" &
writer=$!
rest 0.5
kill_it
start_in_group small "$work/large.yaml"
ok "a write that comes again is answered ENOSPC" eval '! wait $writer; lives && same_server; grep "No space" "$work/page"'
ok "zeroes need no memory" eval 'timeout 60 blkdiscard -z /dev/ublkb0 && same_server && lives'
ok "what is discarded can be written again" eval 'blkdiscard /dev/ublkb0 && dd if=/dev/zero of=/dev/ublkb0 bs=1M count=80 oflag=direct conv=nocreat status=none'
end_server
: >"$work/ublkd.log"
ok "a disk larger than the machine's memory: ENOSPC" eval 'start_daemon "$work/large.yaml" && fill && same_server && lives'
echo "# $filled_mib MiB, $(awk '/MemTotal/ { t = $2 } /MemAvailable/ { print int($2 / 1024) " MiB available of " int(t / 1024) }' /proc/meminfo)"
ok "some memory is left for the others" eval '[ "$(awk "/MemAvailable/ { print \$2 }" /proc/meminfo)" -gt 20000 ]'
ok "no process was killed" eval '! dmesg | grep -i "killed process"'
blkdiscard /dev/ublkb0
stop_daemon

# Discarded huge pages go back to the pool, where others may take them.
cat >"$work/huge.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: huge, id: 0, backend: {type: mem, size: 32MiB, huge_pages: true}}
EOF
pool() { echo "$1" >/proc/sys/vm/nr_hugepages && [ "$(</proc/sys/vm/nr_hugepages)" = "$1" ]; }
write_huge() { dd if=/dev/zero of=/dev/ublkb0 bs=1M count=32 oflag=direct conv=nocreat status=none; }
no_huge() {
	write_huge && blkdiscard /dev/ublkb0 && pool 0 || return 1
	! write_huge 2>"$work/huge" && grep 'No space left' "$work/huge" && same_server && lives
}
huge_back() {
	pool 16 || return 1
	kill -HUP "$daemon_pid"
	wait_for 20 live_devices 1 && write_huge
}
if pool 16; then
	ok "huge pages: the device starts" eval 'start_daemon "$work/huge.yaml" && lives'
	ok "a write that finds none: ENOSPC" no_huge
	kill_it
	restart "$work/huge.yaml"
	ok "none after a crash: the device waits, in words" wait_for 20 said 'raise vm.nr_hugepages' ublkctl list
	ok "it serves when there are some" huge_back
	stop_daemon
	pool 0
else
	skip "huge pages" "the kernel gives none"
fi

# --- limits of the process ---------------------------------------------------------------------------------------------

# It serves, or says what it needs; nothing is half started.
limited() { # LIMITS...
	local code=0
	: >"$work/ublkd.log"
	"$@" ublkd --config "$work/two.yaml" 2>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 20 settled
	if kill -0 "$daemon_pid" 2>/dev/null; then
		lives && dd if=/dev/zero of=/dev/ublkb0 bs=1M count=8 oflag=direct conv=nocreat status=none && stop_daemon
		return
	fi
	wait "$daemon_pid" || code=$?
	daemon_pid=
	[ $code = 1 ] && logged 'LimitNOFILE|LimitMEMLOCK' && ! find /dev -name 'ublk[bc]*' | grep .
}
for files in 12 16 20 32 64 256; do
	ok "at most $files open files" limited prlimit --nofile=$files
	sed 's/^/# /' "$work/ublkd.log" | grep -E 'error|warn' | cut -c1-200
done
ok "a soft limit of open files is raised" limited prlimit --nofile=16:4096
few=(setpriv --bounding-set '-ipc_lock,-sys_resource' prlimit --memlock=65536)
ok "little locked memory without privileges" limited "${few[@]}"
sed 's/^/# /' "$work/ublkd.log" | grep -E 'error|warn' | cut -c1-200

# --- swap on a device ---------------------------------------------------------------------------------------------------

swap_config() {
	modprobe brd rd_nr=1 rd_size=$((160 * 1024)) max_part=0 && dd if=/dev/zero of=/dev/ram0 bs=1M count=160 oflag=direct status=none
	cat >"$work/swap.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: swap, id: 0, backend: {type: file, path: /dev/ram0}}
EOF
}
# In a group of its own: what presses is the same each time, and programs stay in memory.
swap_pressure() {
	mkdir -p /sys/fs/cgroup/hog && echo 64M >/sys/fs/cgroup/hog/memory.max || return 1
	mkswap -q /dev/ublkb0 && swapon /dev/ublkb0 || return 1
	in_group hog timeout 300 python3 -c '
import sys
size = int(sys.argv[1]) * 1024 // 4096 * 4096
block = bytearray(size)
for at in range(0, size, 4096):
    block[at] = at >> 12 & 255
assert all(block[at] == at >> 12 & 255 for at in range(0, size, 4096))
' $((120 * 1024)) || return 1
	awk '$1 == "pswpout" { print; exit $2 < 5000 }' /proc/vmstat
}
ok "swap: the device starts" eval 'swap_config && start_daemon "$work/swap.yaml" && lives'
ok "memory pressure is written to it" swap_pressure
ok "the daemon lives" eval 'same_server && lives'
ok "swapoff brings it back" timeout 60 swapoff /dev/ublkb0
ok "no process was killed" eval '! dmesg | grep -i "killed process"'

finish
