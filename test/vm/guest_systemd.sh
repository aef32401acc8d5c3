#!/bin/bash
# In the guest: the service as installed by `cmake --install`, run by a real systemd that is PID 1 of
# its own namespaces: start, hardening, reload, kill -9 under I/O, upgrade, watchdog, stop. Besides
# the service this systemd has four empty targets, and no journal.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

build=$(dirname "$(dirname "$(command -v ublkd)")")
faults=$here/../../build/release/faults/ublkd
systemd=/lib/systemd/systemd
# where this build belongs: /usr when a package is made of it
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$build/CMakeCache.txt")
etc=$prefix/etc
if [ "$prefix" = /usr ]; then etc=/etc; fi
config=$etc/ublkd/ublkd.yaml
unit=$prefix/lib/systemd/system/ublkd.service
run_units=/run/systemd/system
export SYSTEMD_UNIT_PATH=$run_units # only: in /usr are those of the whole system

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
install_it() {
	over "$prefix" && over "$build" && { [ "$etc" != /etc ] || over /etc; } &&
		cmake --install "$build" && mkdir -p $run_units && ln -s "$unit" $run_units
}
verified() {
	systemd-analyze verify --man=no "$unit" >"$work/verified" 2>&1 && ! grep . "$work/verified"
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

# It answers only to whom it sees.
systemctl() { nsenter -t "$inner_pid" -m -p -- systemctl "$@"; }
# Its /run is the guest's: ublkctl works here and there.
start_systemd() {
	echo on >/proc/sys/kernel/printk_devkmsg # all of its messages
	mkdir /sys/fs/cgroup/machine
	(
		echo 0 >/sys/fs/cgroup/machine/cgroup.procs
		# shellcheck disable=SC2016 # expanded inside
		exec unshare --pid --fork --kill-child --mount --uts --cgroup --mount-proc sh -c '
			umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
			exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=guest \
				SYSTEMD_UNIT_PATH="$1" SYSTEMD_GENERATOR_PATH=/nowhere \
				"$2" --system --log-target=kmsg --show-status=no' \
			sh "$SYSTEMD_UNIT_PATH" $systemd >"$work/systemd.out" 2>&1
	) &
	systemd_pid=$!
	wait_for 60 is_up
}
is_up() { inner_pid=$(pgrep -P $systemd_pid) && systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; }
end_systemd() { kill -KILL $systemd_pid && { wait $systemd_pid || [ $? = 137 ]; }; }

# shows PROPERTY=VALUE...: of the service, now. Each look costs a second on a busy machine.
shows() {
	local want properties=("${@%%=*}")
	systemctl show ublkd.service "${properties[@]/#/--property=}" >"$work/shown" && cat "$work/shown"
	for want; do grep -qxF -- "$want" "$work/shown" || return; done
}
restarts() { systemctl show -P NRestarts ublkd.service; }
# serves_again PID RESTARTS: that process has gone, and systemd has started another one, once more than so often.
serves_again() {
	wait_for 60 eval "[ -n \"\$(server)\" ] && [ \"\$(server)\" != $1 ]" && wait_for 40 ublkctl list &&
		wait_for 10 shows SubState=running "NRestarts=$(($2 + 1))"
}
its_log() { dmesg | sed -n 's/^\[[^]]*\] systemd\[1\]: //p'; }
its_log_has() { its_log | tail -n 30 && its_log | grep -E "$1"; }

# --- the service --------------------------------------------------------------------------------

configure() { # DEVICE...: besides two
	{
		two_devices | sed 's/^daemon: {/&watchdog: 1s, /'
		for name; do echo "  - {name: $name, id: 9, backend: {type: mem, size: 16M}}"; done
	} >"$config"
}
# What the load leaves alone.
mark() { dd if=/dev/urandom of="$work/mark" bs=1M count=4 status=none && dd if="$work/mark" of="$1" oflag=direct bs=1M status=none; }
marked() { dd if="$1" iflag=direct bs=1M count=4 status=none | cmp - "$work/mark"; }

status_has() { # FIELD VALUE
	grep "^$1:" "/proc/$pid/status"
	grep -qP "^$1:\s+$2\$" "/proc/$pid/status"
}
caps() { local mask=0 cap; for cap; do mask=$((mask | 1 << cap)); done; printf '%016x' $mask; }
# SYS_ADMIN IPC_LOCK SYS_RESOURCE DAC_OVERRIDE DAC_READ_SEARCH SYS_PTRACE
six_caps() { status_has CapBnd "$(caps 21 14 24 1 2 19)" && status_has CapEff "$(caps 21 14 24 1 2 19)"; }
limits() {
	grep -E 'Max (locked|open)' "/proc/$pid/limits"
	grep -qE 'Max locked memory +unlimited +unlimited' "/proc/$pid/limits" &&
		grep -qE 'Max open files +1048576 +1048576' "/proc/$pid/limits" &&
		[ "$(cat "/proc/$pid/oom_score_adj")" = -900 ]
}
# may_not PATH..., may_write PATH...: there where the service runs. Root asks: what is mounted how decides.
inside() { nsenter -t "$pid" -m -- sh -c "$@"; }
# shellcheck disable=SC2016 # expanded inside
may_not() { inside 'for path; do [ -e "$path" ] && ! [ -w "$path" ] || { echo "$path"; exit 1; }; done' sh "$@"; }
# shellcheck disable=SC2016
may_write() { inside 'for path; do [ -w "$path" ] || { echo "$path"; exit 1; }; done' sh "$@"; }
forbidden() { # OPTION...: all that the unit says of filters was understood
	local option
	for option; do [ -n "$(systemctl show -P "$option" ublkd.service)" ] || return 1; done
	! its_log | grep -iE 'ublkd.*(ignor|unknown|failed to parse|not supported)'
}
# Before Linux 6.16: see io_timeout.h.
timeout_short() { [ "$(cat "/sys/block/$memory/queue/io_timeout")" = 1000 ]; }

make_units
mkdir /mnt/ram # files in memory, but on no disk: see below
ok "cmake --install" install_it
ok "systemd finds nothing wrong with the unit" verified
configure
ok "systemd is there" start_systemd
if ! is_up; then
	{ cat "$work/systemd.out" && its_log; } | sed 's/^/# systemd: /'
	systemctl is-system-running
	systemctl list-jobs
	systemctl list-units
	finish
fi

# As on a machine of which ublkd's disks are the first that have no hardware.
ok "there are no virtual disks, and no /run/ublkd" eval '[ ! -e /run/ublkd ] && [ ! -e /sys/devices/virtual/block ]'
ok "systemctl start returns ..." systemctl start ublkd
ok "... when devices are there" test -b /dev/ublkb0 -a -b /dev/ublkb1
ok "... runs, and has parked the memory with systemd" shows SubState=running NFileDescriptorStore=1
memory=$(basename "$(node memory)") pid=$(server)
ok "its main process is the installed program" test "/proc/$pid/exe" -ef "$prefix/sbin/ublkd"
ok "NoNewPrivileges" status_has NoNewPrivs 1
ok "system calls are filtered" status_has Seccomp 2
ok "six capabilities, and no others" six_caps
ok "limits and OOMScoreAdjust" limits
ok "kernel, programs, configuration and control groups are read-only" \
	may_not /sys/module/ublk_drv/parameters/ublks_max /proc/sys/vm/swappiness "$prefix" "$config" /boot /sys/fs/cgroup/cgroup.procs
ok "files of devices, state and the disks' settings are not" \
	may_write /mnt/ram /run/ublkd "/sys/block/$memory/queue/io_timeout"
ok "all filters are understood" forbidden SystemCallFilter RestrictAddressFamilies RestrictNamespaces
if driver_has QUIESCE; then
	skip "the disks' timeout is short" "this driver notices the end of a daemon (Linux 6.16)"
else
	ok "the disks' timeout is short" timeout_short
fi

# Each kind of socket that an NBD server can have; who is silent waits for something that is not refused.
# --force: systemd has a pid namespace of its own here, from which 6.12 cannot tell who uses a device.
connects() { # URI
	printf 'name: far\nqueues: 1\nbackend: {type: nbd, uri: "%s"}\n' "$1" | ublkctl add -f - &&
		dd if="$(node far)" of=/dev/null bs=64k count=1 iflag=direct status=none && ublkctl del far --force
}
if command -v nbdkit >/dev/null; then
	ip link set lo up
	nbdkit -U "$work/far" memory 1M && nbdkit -i 127.0.0.1 -p 10900 memory 1M && nbdkit -i ::1 -p 10901 memory 1M
	ok "NBD over a Unix socket" wait_for 20 connects "nbd+unix:///?socket=$work/far"
	ok "NBD over IPv4" wait_for 20 connects nbd://127.0.0.1:10900
	ok "NBD over IPv6" wait_for 20 connects 'nbd://[::1]:10901'
	if modprobe vsock_loopback && nbdkit --vsock -p 10902 memory 1M; then
		ok "NBD over vsock" wait_for 20 connects nbd+vsock://1:10902
	else
		skip "NBD over vsock" "no vsock_loopback in this kernel"
	fi
else
	skip "NBD over each kind of socket" "no nbdkit: ./dev check installs it"
fi

configure more
if [ "$(systemctl show -P Type ublkd.service)" = notify-reload ]; then
	ok "systemctl reload" systemctl reload ublkd
	ok "... returns when the new device is there" test -b /dev/ublkb9
else
	ok "systemctl reload" systemctl reload ublkd
	ok "... and the new device comes (notify-reload came with systemd 253)" wait_for 20 test -b /dev/ublkb9
fi
ok "it is parked, too" wait_for 10 shows NFileDescriptorStore=2 SubState=running
more=/dev/ublkb9
ok "it is written to" mark $more
echo 'devices: 7' >"$config"
systemctl reload ublkd
ok "a configuration with errors changes nothing" wait_for 10 eval 'grep "nothing was changed" "$work/ublkd.log" && shows SubState=running && marked $more'
configure more

# An image of QEMU's: systemd has its tables, and a descriptor with its lock.
if command -v qemu-io >/dev/null; then
	image=/mnt/ram/image.qcow2
	qemu-img create -q -f qcow2 $image 8M
	write_image() { qemu-io -c 'write 0 4k' $image >/dev/null 2>&1; }
	knock() { while [ ! -e "$work/knocked" ]; do if write_image; then touch "$work/got_in"; fi; done; }
	ok "an image is attached" ublkctl attach $image
	ok "... its tables and its lock are parked, too" wait_for 10 shows NFileDescriptorStore=4 SubState=running
	knock &
	knocking=$!
	had=$(restarts) before=$(server)
	kill -KILL "$before"
	ok "kill -9: systemd starts it again" serves_again "$before" "$had"
	touch "$work/knocked"
	wait $knocking
	ok "... QEMU could not open the image at any time" test ! -e "$work/got_in"
	ok "it is removed, and QEMU may write to it at once" eval 'ublkctl del image.qcow2 --force && write_image'
	ok "... nothing of it is parked" wait_for 10 shows NFileDescriptorStore=2
else
	skip "an image is locked while systemd starts it again" "no qemu-io"
fi

# With pauses: systemd and the checks want some time, too.
for name in memory file; do load $name --numjobs=1 --thinktime=100ms --thinktime_blocks=32; done
sleep 2
had=$(restarts) before=$(server)
kill -KILL "$before"
ok "kill -9 under I/O: systemd starts it again" serves_again "$before" "$had"
ok "... with the memory that it held" eval 'marked $more && no_keeper && shows NFileDescriptorStore=2'
if driver_has QUIESCE; then
	had=$(restarts) before=$(server)
	ok "ublkctl upgrade under I/O" ublkctl upgrade
	ok "... one that goes on alone" wait_for 20 eval '[ "$(server)" != "$before" ] && [ "$(server | wc -w)" = 1 ] && ublkctl list'
	main_pid=$(awk '/^NSpid/ { print $3 }' "/proc/$(server)/status")
	ok "... is the main one for systemd, that has not started it" wait_for 10 shows SubState=running "MainPID=$main_pid" "NRestarts=$had"
else
	skip "ublkctl upgrade under I/O" "needs a ublk driver of Linux 6.16"
fi
ok "both were busy" were_busy
ok "no write was lost, no request failed" loads_well
ok "the memory is the same" marked $more

# Who is stuck: the program with the fault is what the unit starts at first, its successor is not.
had=$(restarts) before=$(server)
drop_in watchdog WatchdogSec=6
if [ -x "$faults" ]; then drop_in faults ExecStart= "ExecStart=$faults --config $config" Environment=UBLKD_FAULT_BLOCK=16000:600; fi
systemctl daemon-reload
kill -KILL "$before"
ok "it is started with another watchdog" serves_again "$before" "$had"
had=$((had + 1)) before=$(server)
if [ -x "$faults" ]; then
	drop_in faults
	systemctl daemon-reload
	dd if=$more of="$work/read" bs=4k count=1 skip=2000 iflag=direct status=none 2>"$work/read.err" &
	reader=$!
	ok "a reactor is stuck: systemd ends the daemon and starts it again" serves_again "$before" "$had"
	ok "... for want of WATCHDOG=1" its_log_has 'Watchdog timeout.*limit 6s'
	ok "... the request that was stuck is answered" wait $reader
	had=$((had + 1)) before=$(server)
else
	skip "a reactor is stuck: systemd ends the daemon and starts it again" "no build/release/faults: cmake --build build/release --target ublkd-faults"
fi
kill -STOP "$before"
ok "all of the daemon stands still: it is started again" serves_again "$before" "$had"
ok "... the memory is the same" marked $more

ok "systemctl stop" systemctl stop ublkd
ok "... ends well, and leaves no memory" shows Result=success ActiveState=inactive NFileDescriptorStore=0
ok "... no process" no_server
ok "... no device" eval '! find /dev -name "ublk[bc]*" | grep .'
ok "... no note" no_note
ok "... but its folder, where the state is" test -d /run/ublkd

echo 'devices: 7' >"$config"
ok "with errors in the configuration it does not start" eval '! systemctl start ublkd'
configure
ok "... until there are none: it was tried again" wait_for 40 ublkctl list
ok "it stops" eval 'wait_for 10 shows SubState=running && systemctl stop ublkd && no_server'
ok "systemd has nothing to tell of it but ends and starts" eval '! its_log | grep -iE "ublkd.*(ignoring|denied|permi)"'
ok "systemd ends" end_systemd
finish
