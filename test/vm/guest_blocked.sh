#!/bin/bash
# In the guest: file systems that do not answer. A FUSE file whose server is stopped stands for a dead
# network file system: every call on it blocks. A frozen ext4 blocks calls that change a file's
# length. The daemon and the other devices must not wait for them.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

fuse_pid=
modprobe -q fuse # built into the stock kernels

# A file of 64 MiB at /mnt/ram/far, served by a process that can be stopped.
start_fuse() {
	[ -e /mnt/ram/below ] || truncate -s 64M /mnt/ram/below
	touch /mnt/ram/far
	qemu-storage-daemon --blockdev driver=file,node-name=below,filename=/mnt/ram/below \
		--export type=fuse,id=far,node-name=below,mountpoint=/mnt/ram/far,writable=on >"$work/fuse.log" 2>&1 &
	fuse_pid=$!
	wait_for 20 is_fuse
}
is_fuse() { [ "$(stat -f -c %T /mnt/ram/far)" = fuseblk ] || grep -q ' /mnt/ram/far fuse' /proc/mounts; }
stop_fuse() { kill -STOP $fuse_pid; }
wake_fuse() { kill -CONT $fuse_pid; }

state_of() { ublkctl --json list | jq -r ".[] | select(.name == \"$1\").state"; }
is() { [ "$(state_of "$1")" = "$2" ]; }
# quickly COMMAND...: it takes less than two seconds by the host's clock.
quickly() {
	local begin
	real_time
	begin=$real_seconds
	"$@" || return
	real_time
	[ $((real_seconds - begin)) -le 2 ]
}
start_again() {
	ublkd --config "$work/blocked.yaml" 2>>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 60 settled
}
crash() {
	kill -KILL "$(server)"
	wait_for 60 no_server
}

# Before the daemon starts: a mount namespace of its own sees no later mounts where propagation is private.
ram_disk 300 && modprobe loop && mkdir -p /mnt/frozen && truncate -s 100M /mnt/ram/disk &&
	mkfs.ext4 -q -F /mnt/ram/disk && mount -o loop /mnt/ram/disk /mnt/frozen || exit 1
cat >"$work/blocked.yaml" <<EOF2
daemon: {reactors: $reactors}
devices:
  - {name: far, id: 7, backend: {type: file, path: /mnt/ram/far, direct: "off"}}
  - {name: near, id: 8, backend: {type: mem, size: 64MiB}}
EOF2
cat >"$work/near.yaml" <<EOF2
{name: near2, id: 9, backend: {type: mem, size: 16MiB}}
EOF2
cat >"$work/far2.yaml" <<EOF2
{name: far2, id: 10, backend: {type: file, path: /mnt/ram/far, direct: "off"}}
EOF2

ok "a file whose server can be stopped" start_fuse

# ---- at a start ----
stop_fuse
ok "start: the daemon answers though one file does not" start_daemon "$work/blocked.yaml"
ok "start: the other device serves" verify /dev/ublkb8 --bs=4k --size=4M
ok "start: it is listed as waiting" is far waiting
ok "start: list says for what" said '^far: opening its backend takes longer than 10 s' ublkctl list
ok "start: why-stuck names the kernel's function" said 'opening its backend.*(fuse|request_wait)' ublkctl why-stuck far
ok "start: list is quick" quickly ublkctl list
ok "start: another device is added meanwhile" quickly ublkctl add --file "$work/near.yaml"
ok "start: it can be deleted" quickly ublkctl del far
ok "start: and is gone" said '^near ' ublkctl list
ok "start: a reload takes nothing from the others" kill -HUP "$daemon_pid"
ok "start: and lists it again" wait_for 20 said '^far ' ublkctl list
wake_fuse
ok "start: it is live when its file answers" wait_for 30 is far live
ok "start: it serves" verify /dev/ublkb7 --bs=4k --size=4M --direct=1

# ---- after a crash ----
ok "crash: killed" crash
stop_fuse
ok "crash: the next daemon answers" start_again
ok "crash: the other device is adopted" verify /dev/ublkb8 --bs=4k --size=4M
ok "crash: the blocked one is listed with the reason" said '^far: opening its backend' ublkctl list
ok "crash: list is quick" quickly ublkctl list
wake_fuse
ok "crash: adopted when its file answers" wait_for 30 is far live
ok "crash: it serves" verify /dev/ublkb7 --bs=4k --size=4M

ok "crash: killed again" crash
stop_fuse
ok "crash: started again" start_again
ok "crash: the blocked one can be deleted" quickly ublkctl del far
ok "crash: it is gone" said '^near ' ublkctl list
ok "crash: no node is left" test ! -e /dev/ublkb7
wake_fuse

# ---- closing ----
ok "close: added again" wait_for 20 ublkctl add --file "$work/far2.yaml"
stop_fuse
ublkctl del far2 >"$work/del" 2>&1 &
ok "close: the daemon answers while the file is being closed" quickly ublkctl list
wake_fuse
ok "close: it is gone in the end" wait_for 30 eval '! ublkctl list | grep -q far2'

# ---- resizing, on a frozen file system ----
if driver_has UPDATE_SIZE; then
	cat >"$work/cold.yaml" <<EOF2
{name: cold, id: 11, backend: {type: file, path: /mnt/frozen/f, size: 16MiB, create: true}}
EOF2
	ok "resize: a device on a file system that can be frozen" ublkctl add --file "$work/cold.yaml"
	ok "resize: frozen" fsfreeze -f /mnt/frozen
	ublkctl resize cold 32MiB >"$work/resized" 2>&1 &
	resizing=$!
	rest 0.5
	ok "resize: the daemon answers meanwhile" quickly ublkctl list
	ok "resize: another device is resized meanwhile" quickly ublkctl resize near 80MiB
	ok "resize: the resize goes on" kill -0 $resizing
	fsfreeze -u /mnt/frozen
	ok "resize: done when the file system is" wait $resizing
	ok "resize: the device has the size" said '^cold .* 32MiB' ublkctl list
	ok "resize: deleted" ublkctl del cold
	umount /mnt/frozen
else
	skip "resize: the daemon answers meanwhile" "the driver has no UPDATE_SIZE"
fi

# ---- the end ----
stop_fuse
sed -i 's/near/near3/; s/id: 8/id: 12/' "$work/blocked.yaml"
kill -HUP "$daemon_pid"
ok "end: a reload with a file that does not answer" wait_for 20 is near3 live
ok "end: the daemon ends all the same" stop_daemon
wake_fuse
rest 0.3
kill $fuse_pid
wait_for 20 eval '! kill -0 $fuse_pid 2>/dev/null'
finish
