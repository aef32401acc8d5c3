#!/bin/bash
# In the guest, on the instruction clock (vm.sh -i): 200 overlays over one base, as for virtual machines of one
# image. What attaching one costs in CPU time, of ublkctl and the daemon, and what each one costs in memory when
# nobody uses it.
# With --soak: 7.2 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

overlays=200 limit_ms=20 limit_kib=1024
ram_disk 900 || exit 1
base=/mnt/ram/base.qcow2
dd if=/dev/urandom of=/mnt/ram/base.raw bs=1M count=8 status=none
qemu-img convert -f raw -O qcow2 /mnt/ram/base.raw $base &&
	qemu-img create -q -f qcow2 -b $base -F qcow2 /mnt/ram/0.qcow2 || exit 1
for ((i = 1; i < overlays; i++)); do cp /mnt/ram/0.qcow2 /mnt/ram/$i.qcow2; done
echo "daemon: {reactors: $reactors}" >"$work/many.yaml"
start_daemon "$work/many.yaml"

# The CPU time of a process and of its children that it has waited for, in ticks of 10 ms; its sum over all attaches
# is exact enough.
ticks() { awk '{ print $14 + $15 + $16 + $17 }' "/proc/$1/stat"; }
status() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$daemon_pid/status"; }
attach() { # NUMBER
	echo "- {name: o$1, backend: {type: qcow2, data: {type: file, path: /mnt/ram/$1.qcow2}," \
		"backing: {type: qcow2, data: {type: file, path: $base}}}}" >"$work/one.yaml"
	ublkctl add -f "$work/one.yaml"
}
# A shell of its own: what it has waited for is ublkctl and nothing else, but for a fork.
attach_all() (
	for ((i = 0; i < overlays; i++)); do attach $i || exit; done >"$work/attached"
	ticks $BASHPID >"$work/ctl.ticks"
)
live() { [ "$(ublkctl list | grep -c ' live ')" = $overlays ]; }

attach 0 >"$work/attached" && ublkctl del o0 || exit 1 # the first one of all pays for what all use
rest 6
rss_before=$(status VmRSS) ticks_before=$(ticks "$daemon_pid")
ok "$overlays overlays are attached" attach_all
ok "... and are live" live
ticks_after=$(ticks "$daemon_pid")
rest 6 # queues have given their buffers back
rss_after=$(status VmRSS)

cheap_in_time() {
	local daemon=$((ticks_after - ticks_before)) ctl
	read -r ctl <"$work/ctl.ticks"
	echo "each took $((daemon * 10000 / overlays)) us of the daemon and $((ctl * 10000 / overlays)) us of ublkctl"
	[ $(((daemon + ctl) * 10 / overlays)) -lt $limit_ms ]
}
cheap_in_memory() {
	local each=$(((rss_after - rss_before) / overlays))
	echo "each has $each KiB of memory: $rss_before before, $rss_after after"
	grep Rss "/proc/$daemon_pid/status"
	[ $each -lt $limit_kib ]
}
ok "each took less than $limit_ms ms of CPU time" cheap_in_time
sed 's/^/# /' "$work/out"
ok "each has less than $limit_kib KiB of memory" cheap_in_memory
sed 's/^/# /' "$work/out"
reads_base() {
	local i
	for i in 0 99 199; do
		cmp /mnt/ram/base.raw "$(node "o$i")" || return
	done
}
ok "they read what the base has" reads_base
finish
