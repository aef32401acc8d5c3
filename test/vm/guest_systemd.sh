#!/bin/bash
# In the guest: the service as `cmake --install` installs it, run by a real systemd, which is PID 1 of
# namespaces of its own: start, hardening, reload, kill -9 under I/O, upgrade, watchdog, stop. What
# this systemd has besides the service are four empty targets, and no journal.
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

build=$(dirname "$(dirname "$(command -v ublkd)")")
faults=$here/../../build/faults/bin/ublkd
systemd=/lib/systemd/systemd
config=/usr/local/etc/ublkd/ublkd.yaml
unit=/usr/local/lib/systemd/system/ublkd.service
run_units=/run/systemd/system
export SYSTEMD_UNIT_PATH=$run_units:${unit%/*}

skip_all() {
	skip "the service under systemd" "$1"
	finish
}
if [ ! -x $systemd ] || ! command -v systemctl >/dev/null; then skip_all "no systemd: apt-get install systemd"; fi
command -v cmake >/dev/null || skip_all "no cmake to install with"
modprobe overlay || skip_all "this kernel has no overlay to install over what is read-only"

# --- an installed ublkd -------------------------------------------------------------------------

# over FOLDER: what is written there goes to memory.
overlays=0
over() {
	local layer=/mnt/over/$((overlays += 1))
	mkdir -p $layer/upper $layer/work &&
		mount -t overlay -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" over "$1"
}
# CMake writes into the folder of the build what it has installed.
install_it() { over /usr/local && over "$build" && cmake --install "$build" && ls -l $unit; }
verified() {
	SYSTEMD_UNIT_PATH=${unit%/*}:/lib/systemd/system systemd-analyze verify --man=no $unit 2>&1 | tee "$work/verified"
	! grep ublkd "$work/verified"
}

# --- its systemd --------------------------------------------------------------------------------

# drop_in NAME LINE...: of the section Service; no lines: none any more.
drop_in() {
	local file=$run_units/ublkd.service.d/$1.conf
	shift
	mkdir -p "${file%/*}"
	if [ $# = 0 ]; then rm "$file"; else printf '%s\n' '[Service]' "$@" >"$file"; fi
}

make_units() {
	local name
	mkdir -p $run_units
	for name in default sysinit basic shutdown; do
		printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $name >$run_units/$name.target
	done
	printf 'Requires=sysinit.target basic.target\n' >>$run_units/default.target
	drop_in log "StandardError=append:$work/ublkd.log"
}

# Its /run is the guest's, so systemctl and ublkctl reach it from here.
start_systemd() {
	mkdir /sys/fs/cgroup/machine
	(
		echo 0 >/sys/fs/cgroup/machine/cgroup.procs
		# shellcheck disable=SC2016 # expanded inside
		exec unshare --pid --fork --kill-child --mount --cgroup --mount-proc sh -c '
			umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
			exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=guest \
				SYSTEMD_UNIT_PATH="$1" SYSTEMD_GENERATOR_PATH=/nowhere \
				"$2" --system --log-target=console --show-status=no' \
			sh "$SYSTEMD_UNIT_PATH" $systemd >"$work/systemd.log" 2>&1
	) &
	systemd_pid=$!
	wait_for 30 is_up
}
is_up() { systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; }
end_systemd() { kill -KILL $systemd_pid && { wait $systemd_pid || [ $? = 137 ]; }; }

shows() { # PROPERTY VALUE: of the service, now
	local is
	is=$(systemctl show -P "$1" ublkd.service)
	echo "$1: $is"
	[ "$is" = "$2" ]
}
restarts() { systemctl show -P NRestarts ublkd.service; }
# serves_again RESTARTS: so many it had; it is another process, and there is nothing left to do.
serves_again() { [ "$(restarts)" = $(($1 + 1)) ] && shows SubState running && ublkctl list; }
systemd_said() { tail -n 30 "$work/systemd.log" && grep -E "$1" "$work/systemd.log"; }

# --- the service --------------------------------------------------------------------------------

configure() { # DEVICE...: besides two
	{
		two_devices | sed 's/^daemon: {/&watchdog: 1s, /'
		for name; do echo "  - {name: $name, id: 9, backend: {type: mem, size: 16M}}"; done
	} >$config
}
# What the load leaves alone.
mark() { dd if=/dev/urandom of="$work/mark" bs=1M count=4 status=none && dd if="$work/mark" of="$1" oflag=direct bs=1M status=none; }
marked() { dd if="$1" iflag=direct bs=1M count=4 status=none | cmp - "$work/mark"; }

status_has() { # FIELD VALUE
	grep "^$1:" "/proc/$(server)/status"
	grep -qP "^$1:\s+$2\$" "/proc/$(server)/status"
}
caps() { local mask=0 cap; for cap; do mask=$((mask | 1 << cap)); done; printf '%016x' $mask; }
# SYS_ADMIN IPC_LOCK SYS_RESOURCE DAC_OVERRIDE DAC_READ_SEARCH SYS_PTRACE
six_caps() { status_has CapBnd "$(caps 21 14 24 1 2 19)" && status_has CapEff "$(caps 21 14 24 1 2 19)"; }
limits() {
	grep -E 'Max (locked|open)' "/proc/$(server)/limits"
	grep -qE 'Max locked memory +unlimited +unlimited' "/proc/$(server)/limits" &&
		grep -qE 'Max open files +1048576 +1048576' "/proc/$(server)/limits" &&
		[ "$(cat "/proc/$(server)/oom_score_adj")" = -900 ]
}
# may_write PATH..., may_not PATH...: by what is mounted how where the service runs. A folder that can be
# written says no more than that it is a folder.
writes() { nsenter -t "$(server)" -m test -w "$1"; }
may_not() { for path; do ! writes "$path" || { echo "$path can be written"; return 1; }; done; }
may_write() { for path; do writes "$path" || { echo "$path cannot be written"; return 1; }; done; }
forbidden() { # OPTION...: all that the unit says of filters was understood
	local option
	for option; do [ -n "$(systemctl show -P "$option" ublkd.service)" ] || return 1; done
	! grep -iE 'ublkd.*(ignor|unknown|failed to parse|not supported)' "$work/systemd.log"
}
# Before Linux 6.16: see io_timeout.h.
timeout_short() { [ "$(cat "/sys/block/$(basename "$(node memory)")/queue/io_timeout")" = 1000 ]; }

make_units
ram_disk 200 || exit 1
ok "cmake --install" install_it
ok "systemd finds nothing wrong with the unit" verified
configure
ok "systemd is there" start_systemd
if ! is_up; then
	sed 's/^/# systemd: /' "$work/systemd.log"
	finish
fi

ok "no note of devices, no block device of any kind" eval '[ ! -e /run/ublkd ] && ! ls /sys/devices/virtual/block/ublk*'
ok "systemctl start returns ..." systemctl start ublkd
ok "... when devices are there" test "$(find /dev -name 'ublkb*' | wc -l)" = 2
ok "... and the service runs" shows SubState running
ok "its main process is the installed program" test "/proc/$(server)/exe" -ef /usr/local/sbin/ublkd
ok "NoNewPrivileges" status_has NoNewPrivs 1
ok "system calls are filtered" status_has Seccomp 2
ok "six capabilities, and no others" six_caps
ok "limits and OOMScoreAdjust" limits
ok "kernel, programs, configuration and control groups are read-only" \
	may_not /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/vm/swappiness /usr/local $config /boot /sys/fs/cgroup/cgroup.procs
ok "files of devices, state and the disks' settings are not" \
	may_write /mnt/ram /run/ublkd "/sys/block/$(basename "$(node memory)")/queue/io_timeout"
ok "all filters are understood" forbidden SystemCallFilter RestrictAddressFamilies RestrictNamespaces
if driver_has QUIESCE; then
	skip "the disks' timeout is short" "this driver notices the end of a daemon (Linux 6.16)"
else
	ok "the disks' timeout is short" timeout_short
fi
ok "content is verified: memory" verify "$(node memory)" --bs=4k --size=4M
ok "content is verified: file" verify "$(node file)" --bs=4k --size=4M
ok "the memory is parked with systemd" shows NFileDescriptorStore 1
ok "... and with no keeper" no_keeper

configure more
if [ "$(systemctl show -P Type ublkd.service)" = notify-reload ]; then
	ok "systemctl reload" systemctl reload ublkd
	ok "... returns when the new device is there" test -b /dev/ublkb9
else
	ok "systemctl reload" systemctl reload ublkd
	ok "... and the new device comes (notify-reload came with systemd 253)" wait_for 20 test -b /dev/ublkb9
fi
ok "it is parked, too" wait_for 10 shows NFileDescriptorStore 2
ok "the service runs again" wait_for 10 shows SubState running
more=/dev/ublkb9
ok "it is written to" mark $more
echo 'devices: 7' >$config
systemctl reload ublkd
ok "a configuration with errors changes nothing" wait_for 10 eval 'grep "nothing was changed" "$work/ublkd.log" && shows SubState running && marked $more'
configure more

load memory
load file
for round in 1 2; do
	had=$(restarts)
	sleep 1
	kill -KILL "$(server)"
	ok "kill -9 under I/O: systemd starts it again ($round)" wait_for 40 serves_again "$had"
	ok "... with the memory that it held ($round)" eval 'marked $more && no_keeper && shows NFileDescriptorStore 2'
done
if driver_has QUIESCE; then
	had=$(restarts) before=$(server)
	ok "ublkctl upgrade under I/O" ublkctl upgrade
	ok "... systemd knows the new process" wait_for 20 eval '[ "$(server)" != "$before" ] && [ "$(server | wc -w)" = 1 ] && shows SubState running && ublkctl list'
	ok "... as the main one, and has not started it" eval '[ "$(restarts)" = "$had" ] && [ "$(systemctl show -P MainPID ublkd)" = "$(awk "/^NSpid/ { print \$3 }" "/proc/$(server)/status")" ]'
else
	skip "ublkctl upgrade under I/O" "needs a ublk driver of Linux 6.16"
fi
ok "no write was lost, no request failed" loads_well
ok "both were busy" were_busy
ok "the memory is the same" marked $more

# Who is stuck: the program with the fault is started by the unit as it was then, its successor is not.
had=$(restarts)
if [ -x "$faults" ]; then
	drop_in watchdog WatchdogSec=6
	drop_in faults ExecStart= "ExecStart=$faults --config $config" Environment=UBLKD_FAULT_BLOCK=16000:600
	systemctl daemon-reload
	kill -KILL "$(server)"
	ok "a program that will be stuck starts" wait_for 40 serves_again "$had"
	ok "... with its watchdog" shows WatchdogUSec 6s
	drop_in faults
	systemctl daemon-reload
	dd if=$more of="$work/read" bs=4k count=1 skip=2000 iflag=direct status=none 2>"$work/read.err" &
	reader=$!
	ok "a reactor is stuck: systemd ends the daemon and starts it again" wait_for 60 serves_again $((had + 1))
	ok "... for want of WATCHDOG=1" systemd_said 'Watchdog timeout.*limit 6s'
	ok "... the request that was stuck is answered" wait $reader
	ok "... the memory is the same" marked $more
else
	skip "a reactor is stuck: systemd ends the daemon and starts it again" "no build/faults: cmake --preset faults and build"
fi
had=$(restarts)
drop_in watchdog WatchdogSec=6
systemctl daemon-reload
kill -KILL "$(server)"
ok "it is started with a short watchdog" wait_for 40 serves_again "$had"
kill -STOP "$(server)"
ok "all of the daemon stands still: it is started again" wait_for 60 serves_again $((had + 1))
ok "... the memory is the same" marked $more

ok "systemctl stop" systemctl stop ublkd
ok "... ends well" eval 'shows Result success && shows ActiveState inactive'
ok "... and leaves no process" no_server
ok "... no device" eval '! find /dev -name "ublk[bc]*" | grep .'
ok "... no note" no_note
ok "... no memory" shows NFileDescriptorStore 0
ok "... but its folder, where the state is" test -d /run/ublkd

echo 'devices: 7' >$config
had=$(restarts)
ok "with errors in the configuration it does not start" eval '! systemctl start ublkd'
ok "... and is not tried again" eval 'sleep 1.5 && shows ActiveState failed && shows ExecMainStatus 2 && [ "$(restarts)" = "$had" ]'
ok "systemd has nothing to tell of it but ends and starts" eval '! grep -iE "ublkd.*(ignoring|denied|permi)" "$work/systemd.log"'
ok "systemd ends" end_systemd
finish
