#!/bin/bash
# In the guest: storage loses acknowledged writes, and whoever asks it next is not the user: a commit of an image, the reset of
# a zone, the cleaner of a cache, an upgrade. The user's next FLUSH fails all the same; what he writes again and flushes with
# success is there after an orderly end, and what was flushed before always is. The server is forgetful_server.py.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

ram_disk 700 || exit 1
server_pid=
# serve SIZE: a new server over a new file; its folder is $ctl, its file $served.
serve() {
	local dir
	[ -z "$server_pid" ] || kill "$server_pid"
	dir=$(mktemp -d /mnt/ram/serverXXXX)
	ctl=$dir/ctl served=$dir/disk
	mkdir "$ctl"
	truncate -s "$1" "$served"
	uri="nbd+unix:///?socket=$dir/socket"
	again
}
again() { # the server is started again over the same file
	rm -f "${ctl%/ctl}/socket"
	python3 "$here/forgetful_server.py" "${ctl%/ctl}/socket" "$served" "$ctl" &
	server_pid=$!
	wait_for 10 test -S "${ctl%/ctl}/socket"
}
nbd() { echo "{type: nbd, uri: \"$uri\", on_disconnect: {queue: 60s}}"; }
# device BACKEND: a daemon with it, as vm.
device() {
	printf 'daemon: {reactors: %s}\ndevices:\n  - {name: vm, backend: %s}\n' "$reactors" "$1" >"$work/vm.yaml"
	start_again
}
start_again() { start_daemon "$work/vm.yaml" && wait_for 30 are_live vm; }
fill() { # LETTER AT MIB [FLAG], of MiB
	head -c $(($3 << 20)) < <(yes "$1" | tr -d '\n') | dd of="$(blk vm)" bs=1M seek="$2" iflag=fullblock oflag=direct "${@:4}" conv=notrunc status=none
}
has() { head -c $(($3 << 20)) < <(yes "$1" | tr -d '\n') | cmp - <(dd if="$(blk vm)" bs=1M skip="$2" count="$3" iflag=direct status=none); }
flush() { python3 -c "import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))" "$(blk vm)" 2>&1; }
fails() { ! "$@"; }
lost() { grep -q '^lost [1-9]' "$ctl/log"; }
command() { touch "$ctl/$1"; }

# ---- an image: the FLUSH of the user meets the loss ----

image() { echo "{type: qcow2, create: true, size: 64MiB, data: $1}"; }
serve 128M
ok "image: it starts" device "$(image "$(nbd)")"
ok "image: A, flushed" fill A 0 4 conv=fsync
command die-at-flush
ok "image: B, whose FLUSH fails" fails fill B 16 4 conv=fsync
ok "image: ... as the server has lost it" lost
ok "image: B again, flushed" fill B 16 4 conv=fsync
ok "image: an orderly end" stop_daemon
kill $server_pid
ok "image: it is well" qemu-img check -q -f qcow2 "$served"
again
ok "image: it starts again" start_again
ok "image: C, flushed" fill C 32 4 conv=fsync
ok "image: A is there" has A 0 4
ok "image: B is there" has B 16 4
ok "image: C is there" has C 32 4
stop_daemon

# ---- the same on a disk of this machine that fails for a while, by way of its page cache ----

truncate -s 128M /mnt/ram/below
if modprobe -q loop && modprobe -q dm_mod && below=$(losetup -f --show /mnt/ram/below) && dmsetup create flaky --table "0 262144 linear $below 0"; then
	[ -e /dev/mapper/flaky ] || dmsetup mknodes
	flaky() { dmsetup suspend --nolockfs flaky && dmsetup load flaky --table "0 262144 $1" && dmsetup resume flaky; }
	ok "page cache: it starts" device "$(image '{type: file, path: /dev/mapper/flaky, direct: off}')"
	ok "page cache: A, flushed" fill A 0 4 conv=fsync
	flaky error
	ok "page cache: B, whose FLUSH fails" fails fill B 16 4 conv=fsync
	flaky "linear $below 0"
	ok "page cache: B again, flushed" fill B 16 4 conv=fsync
	ok "page cache: an orderly end" stop_daemon
	echo 3 >/proc/sys/vm/drop_caches
	ok "page cache: it is well" qemu-img check -q -f qcow2 /dev/mapper/flaky
	ok "page cache: it starts again" start_again
	ok "page cache: C, flushed" fill C 32 4 conv=fsync
	ok "page cache: A is there" has A 0 4
	ok "page cache: B is there" has B 16 4
	stop_daemon
	dmsetup remove flaky && losetup -d "$below"
else
	skip "page cache" "this kernel has no loop devices or no device mapper"
fi

# ---- an image: a commit that no FLUSH has asked for ----

serve 12M
ok "commit: it starts" device "$(image "$(nbd)")"
fill_up() { for i in $(seq 0 11); do fill "$i" "$i" 1 2>/dev/null; done; flush; }
ok "commit: the image is filled" fill_up
ok "commit: A in place, acknowledged" fill A 0 1
ok "commit: a discard" blkdiscard -f -o $((4 << 20)) -l $((1 << 20)) "$(blk vm)"
command die
fill C 20 1 2>/dev/null # it needs the space of the discard
ok "commit: the server has lost A" lost
ok "commit: the user's FLUSH fails, whatever met the loss" fails flush
ok "commit: A again, flushed" fill A 0 1 conv=fsync
ok "commit: A is there" has A 0 1
stop_daemon

# ---- zones: a reset of another zone ----

serve 129M
ok "zones: it starts" device "{type: zoned, zones: {size: 16MiB}, backend: $(nbd)}"
ok "zones: A in zone 0, flushed" fill A 0 1 conv=fsync
ok "zones: B in zone 1, acknowledged" fill B 16 1
command die
blkzone reset -o $((48 << 11)) -c 1 "$(blk vm)" 2>/dev/null
ok "zones: the server has lost B" lost
ok "zones: the user's FLUSH fails" fails flush
stop_daemon
ok "zones: started again" start_again
ok "zones: A is there" has A 0 1
stop_daemon

# ---- a cache: the cleaner ----

serve 64M
ok "cache: it starts" device "{type: cache, mode: writeback, dirty_time: 3s, block: 64KiB, backend: $(nbd), store: {type: file, path: /mnt/ram/store, size: 32MiB, create: true}}"
command slow
ok "cache: B, flushed: durable in the store" fill B 0 2 conv=fsync
ok "cache: a discard elsewhere" blkdiscard -f -o $((40 << 20)) -l $((1 << 20)) "$(blk vm)"
some_written() { [ "$(grep -c '^write' "$ctl/log")" -ge 6 ]; }
ok "cache: some of it is written back" wait_for 20 some_written
command die
ok "cache: the server has lost it" wait_for 10 lost
flush >/dev/null
rm "$ctl/slow"
is_clean() { ublkctl --json show vm | jq -e '[.. | objects | select(has("hit_ratio"))][0].dirty_bytes == 0'; }
ok "cache: all becomes clean" wait_for 40 is_clean
ok "cache: B is there" has B 0 2
ok "cache: it forgets what the origin has" ublkctl cache drop vm
ok "cache: ... which has B" has B 0 2
stop_daemon

# ---- a cache over a cache over an image: one loss is one failure ----

serve 160M
written_back() { echo "{type: cache, mode: writeback, dirty_time: 1h, block: $1, store: {type: file, path: /mnt/ram/$2, size: 32MiB, create: true}, backend: $3}"; }
ok "caches: they start" device "$(written_back 32KiB upper "$(written_back 64KiB lower "$(image "$(nbd)")")")"
ok "caches: A, flushed" fill A 0 4 conv=fsync
ok "caches: B, acknowledged" fill B 2 4
command die-at-flush
ok "caches: a snapshot meets the loss" fails ublkctl snapshot create vm one
ok "caches: ... of the server" lost
ok "caches: the user's FLUSH fails" fails flush
ok "caches: B again, flushed" fill B 2 4 conv=fsync
ok "caches: then a snapshot is created" ublkctl snapshot create vm one
ok "caches: C, flushed" fill C 2 4 conv=fsync
ok "caches: the snapshot is applied" ublkctl snapshot apply vm one
ok "caches: ... and has B" has B 2 4
ok "caches: they are stopped" ublkctl del vm
end_server
rm /mnt/ram/upper /mnt/ram/lower

# ---- an upgrade between the loss and the FLUSH ----

if driver_has QUIESCE; then
	serve 64M
	ok "upgrade: it starts" device "$(nbd)"
	ok "upgrade: A, flushed" fill A 0 1 conv=fsync
	ok "upgrade: B, acknowledged" fill B 0 1
	command die
	dd if="$(blk vm)" of=/dev/null bs=4k count=1 iflag=direct status=none
	ok "upgrade: the server has lost B" lost
	ok "upgrade: another daemon" ublkctl upgrade
	ok "upgrade: ... fails the user's FLUSH" fails flush
	ok "upgrade: B again, flushed" fill B 0 1 conv=fsync
	ok "upgrade: B is there" has B 0 1
	end_server

	# What a cache has alone changes hands though its origin takes nothing.
	serve 64M
	trigger=/mnt/ram/trigger
	failing="{type: error, errno: EIO, op: [read, write, flush], trigger: $trigger, backend: $(nbd)}"
	ok "upgrade, cache: it starts" device "{type: cache, mode: writeback, dirty_time: 600s, block: 64KiB, backend: $failing, store: {type: file, path: /mnt/ram/store2, size: 32MiB, create: true}}"
	ok "upgrade, cache: A, flushed" fill A 0 2 conv=fsync
	reads_nr=0
	reads() { reads_nr=$((reads_nr + 1)) && dd if="$(blk vm)" of=/dev/null bs=64k count=1 skip=$((100 + reads_nr)) iflag=direct status=none 2>/dev/null; }
	touch $trigger
	ok "upgrade, cache: the origin fails" wait_for 10 fails reads
	ok "upgrade, cache: another daemon" ublkctl upgrade
	ok "upgrade, cache: it is live" are_live vm
	ok "upgrade, cache: ... and has A" has A 0 2
	ok "upgrade, cache: its user hears of the FLUSH that failed" fails flush
	ok "upgrade, cache: B, flushed" fill B 2 2 conv=fsync
	ok "upgrade, cache: a kill" kill_daemon
	ublkd --config "$work/vm.yaml" 2>>"$work/ublkd.log" &
	daemon_pid=$!
	ok "upgrade, cache: another daemon" wait_for 30 are_live vm
	ok "upgrade, cache: ... has A" has A 0 2
	ok "upgrade, cache: ... and B" has B 2 2
	rm $trigger
	ok "upgrade, cache: the origin is well" wait_for 10 reads
	ok "upgrade, cache: its user hears of it" fails flush
	ok "upgrade, cache: ... once" flush
	ok "upgrade, cache: it is stopped" ublkctl del vm
	ok "upgrade, cache: the origin has A and B" cmp -n $((4 << 20)) <(head -c $((2 << 20)) < <(yes A | tr -d '\n'); yes B | tr -d '\n') "$served"
	end_server
else
	skip "upgrade" "an older driver cannot"
fi
kill $server_pid
finish
