#!/bin/bash
# In the guest: nvme-tcp on the kernel's own NVMe/TCP target: limits, data under fio with and without digests, a file
# system, several paths, a target that is removed, silent, grown or switched off under load, the death and the upgrade
# of the daemon. guest_nvme_target.sh tests what this stands on.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_nvme_lib.sh"
. "$here/guest_devices.sh"

nqn=nqn.2026-01.org.example
kills=1
[ -z "${UBLKD_SOAK:-}" ] || kills=2
ram_disk 700 || exit 1
if ! nvmet_up; then
	skip "nvme-tcp" "$(cat "$work/modprobe")"
	finish
fi

# ---- the target ----

# on_file NAME, on_loop NAME NSID: a subsystem of that name on a file of the RAM disk, with blocks of 4 KiB or 512
# bytes
on_file() { truncate -s 24M "$disks/$1" && nvmet_subsystem "$nqn:$1" "$disks/$1"; }
loops=()
on_loop() {
	local it
	it=$(loop_disk "$disks/$1" 24M) && loops+=("$it") && nvmet_subsystem "$nqn:$1" "$it" "$2"
}
make_target() {
	on_loop plain 1 && on_loop word 3 && on_file digest && on_file shared && on_file away && on_file paths &&
		on_file dead || return
	modprobe null_blk nr_devices=1 gb=1 hw_queue_depth=128 && nvmet_subsystem $nqn:null /dev/nullb0 7 || return
	# 4420: most of them; 4421: no write travels in its command; the others are of one subsystem each
	nvmet_port 1 127.0.0.1 4420 && nvmet_port 2 127.0.0.1 4421 1024 && nvmet_port 3 127.0.0.1 4423 &&
		nvmet_port 4 127.0.0.1 4424 && nvmet_port 5 127.0.0.1 4425 && nvmet_port 6 127.0.0.1 4426 || return
	nvmet_link 1 $nqn:plain && nvmet_link 1 $nqn:word && nvmet_link 1 $nqn:null && nvmet_link 1 $nqn:shared &&
		nvmet_link 2 $nqn:digest && nvmet_link 3 $nqn:away && nvmet_link 4 $nqn:paths && nvmet_link 5 $nqn:paths &&
		nvmet_link 6 $nqn:dead
}
ok "the kernel's target, eight subsystems on six ports" make_target

# device NAME PORT BLOCK_SIZE [MORE BACKEND OPTIONS]
device() {
	echo "  - {name: $1, queues: 2, block_size: $3, backend: {type: nvme-tcp, host: 127.0.0.1, port: $2,"
	echo "     subsystem: \"$nqn:$1\", namespace: $([ "$1" = null ] && echo 7 || echo 1), ${4:-on_disconnect: {queue: 2m\}}}}"
}
digests="header_digest: true, data_digest: true, keep_alive: 5s, on_disconnect: {queue: 2m}"
{
	printf 'daemon: {reactors: %s, stop_timeout: 3s}\ndevices:\n' "$reactors"
	device plain 4420 512
	device digest 4421 4096 "$digests"
	device null 4420 512
	device shared 4420 4096
	device away 4423 4096
	device paths 4424 4096 "paths: \"127.0.0.1:4425\", $digests"
	device dead 4426 4096 "on_disconnect: forever"
} >"$work/nvme.yaml"
all="plain digest null shared away paths dead"
# shellcheck disable=SC2086 # words
start_nvme() { start_daemon "$work/nvme.yaml" && wait_for 60 are_live $all; }
ok "the devices are live" start_nvme

# ---- limits ----

limit_above() { # NAME FILE VALUE
	local value=
	read -r value <"$(limit "$1" "$2")"
	[ "$value" -gt "$3" ] || { echo "$2 is $value" && return 1; }
}
ok "size of a namespace on a loop device" bytes_are plain $((24 << 20))
ok "... its blocks are of 512 bytes" limit_is plain logical_block_size 512
ok "... on a file: of 4 KiB" limit_is digest logical_block_size 4096
ok "... by the number 7, its size" bytes_are null $((1 << 30))
ok "the target has a volatile cache, and the device" limit_is plain write_cache 'write back'
ok "FUA" limit_is plain fua 1
ok "the device discards" limit_above plain discard_max_bytes 1000000
ok "the device writes zeroes" limit_above plain write_zeroes_max_bytes 1000000

# ---- data ----

for name in plain digest paths; do
	ok "$name: fio verify, two queues at QD32" verify_two $name
	ok "$name: the file holds what the device shows" same_bytes $name
done
blocks() { stat -c %b "$disks/$1"; }
at="$((4 << 20)) $((8 << 20))"
frees() { # NAME: discarded ranges take no room in the file
	local before
	before=$(blocks "$1")
	zeroed "$1" $at blkdiscard -f && blkdiscard -f "$(blk "$1")" && echo "$before blocks, then $(blocks "$1")" &&
		[ "$(blocks "$1")" -lt 64 ]
}
trimmed=digest
[ -z "${UBLKD_SOAK:-}" ] || trimmed="plain digest"
for name in $trimmed; do
	ok "$name: zeroes are written where they should be" zeroed $name $at blkdiscard -f -z
	ok "$name: what is discarded is freed" frees $name
done
by_word() {
	node_of[word]=$(ublkctl attach --show "nvme+tcp://127.0.0.1/$nqn:word/3?hdr_digest=1") &&
		verify_two word && same_bytes word && ublkctl detach "${node_of[word]}"
}
ok "attached by one word, fio verify, detached" by_word
fua_and_flush() { dd if=/dev/urandom of="$(blk plain)" bs=64k count=8 oflag=direct,dsync conv=fsync status=none && same_bytes plain; }
ok "FUA and FLUSH" fua_and_flush

ok "mkfs, mount, copy, trim, fsck" file_system plain

# ---- paths ----

load paths
ok "two paths, under load" works paths
ok "one becomes inaccessible" eval 'nvmet_ana 4 1 inaccessible && works paths'
ok "... the log says so" logs 'a path cannot be used.*device=paths .*inaccessible'
ok "... and is good again, the other is removed" eval 'nvmet_ana 4 1 optimized && nvmet_unlink 5 $nqn:paths && works paths'
ok "... and is back, the first is removed" eval 'nvmet_link 5 $nqn:paths && works paths && nvmet_unlink 4 $nqn:paths && works paths'
ok "... and is back" eval 'nvmet_link 4 $nqn:paths && works paths'
ok "no error, no mismatch" load_ends

# ---- DH-HMAC-CHAP ----

# Both sides prove who they are, on the admin queue and on each I/O queue.
host_key=DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:
target_key=DHHC-1:01:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOeXryU:
wrong_key=DHHC-1:01:MjM0NTY3ODk6Ozw9Pj9AQUJDREVGR0hJSktMTU5PUFGALiae:
keys_for() { # NAME KEY: of a file that only root may read
	(umask 077; echo "$2" >"$work/$1.key")
}
auth_options() { # HOST_KEY [TARGET_KEY]: names of files
	echo "host_nqn: \"$nqn:host\", ${1:+dhchap_key_file: $work/$1.key, }${2:+dhchap_ctrl_key_file: $work/$2.key, }on_disconnect: {queue: 2m}"
}
add_auth() { device auth 4420 4096 "$(auth_options "$@")" | sed 's/^ *- //' | ublkctl add -f - && ask_daemon; }
auth_refused() { ! add_auth "${@:2}" >"$work/said" 2>&1 && cat "$work/said" && grep -qE "$1" "$work/said"; }
make_auth() {
	keys_for host $host_key && keys_for target $target_key && keys_for wrong $wrong_key || return
	on_file auth && put "$nvmet/subsystems/$nqn:auth/attr_allow_any_host" 0 && nvmet_link 1 $nqn:auth || return
	nvmet_host $nqn:auth $nqn:host $host_key $target_key
}
if [ -n "$(nvmet_host_try)" ]; then
	ok "a subsystem that wants to know who asks" make_auth
	ok "without a key: refused" auth_refused 'dhchap_key_file' ''
	ok "with a wrong key: refused" auth_refused 'key' wrong
	ok "a target that does not prove itself: refused" auth_refused 'key' host wrong
	ok "both prove who they are" add_auth host target
	ok "... fio verify, two queues at QD32" verify_two auth
	ok "... the file holds what the device shows" same_bytes auth
	ok "... it is removed" delete auth 8
else
	skip "DH-HMAC-CHAP" "this kernel's target has none"
fi

# ---- targets that vanish and change under load ----

load away
ok "a device on its only path, under load" works away
ok "the target is removed: requests are held" eval 'nvmet_unlink 3 $nqn:away && ! nvmet_listens 4423 && wait_for 20 held away'
ok "... why-stuck names what they wait for" wait_for 20 said 'the backend nvme-tcp does not answer \(waiting for the server' ublkctl why-stuck away
ok "... show says why there is none" wait_for 20 said 'waiting, .* unreachable' ublkctl show away
ok "... the target is back: it goes on" eval 'nvmet_link 3 $nqn:away && works away'
ok "no error, no mismatch" load_ends
ok "the file holds what the device shows" same_bytes away

load shared
ok "a subsystem on a port of several, under load" works shared
ok "it is removed: the target answers, and has none" eval 'nvmet_unlink 1 $nqn:shared && logs "device=shared .*no subsystem"'
ok "... and is back: it goes on" eval 'nvmet_link 1 $nqn:shared && works shared'
ok "the namespace is switched off: requests are held" eval 'nvmet_namespace_off $nqn:shared && stands shared'
ok "... and on: it goes on" eval 'nvmet_namespace_on $nqn:shared && works shared'
if driver_has UPDATE_SIZE; then
	ok "the namespace grows, and the device by itself" eval 'nvmet_resize $nqn:shared 64M && wait_for 30 bytes_are shared $((64 << 20))'
else
	ok "the namespace grows, the driver cannot: the log says so" eval 'nvmet_resize $nqn:shared 64M && logs "has grown, the device has not.*device=shared .*UPDATE_SIZE"'
fi
ok "... it goes on" works shared
ok "no error, no mismatch" load_ends

if modprobe sch_netem 2>"$work/modprobe"; then
	load digest
	ok "a device with a keep-alive of 5s, under load" works digest
	ok "all packets get lost: it is noticed" eval 'wire_cut && logs "device=digest .*(no answer|keep alive|keep-alive|in time|took)"'
	ok "... they get through again: it goes on" eval 'wire_mend && works digest'
	ok "no error, no mismatch" load_ends
else
	skip "all packets get lost" "$(cat "$work/modprobe")"
fi
ok "no error has reached the block layer" no_io_error

# ---- the daemon dies, or is upgraded ----

# shellcheck disable=SC2086 # words
grows_unserved() { kill_daemon && nvmet_resize $nqn:shared 80M && start_again "$work/nvme.yaml" $all && wait_for 30 bytes_are shared $((80 << 20)); }
load digest
load paths
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/nvme.yaml" $all
if driver_has QUIESCE; then
	ok "upgraded under load" upgrade 1
else
	skip "upgraded twice under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
for name in digest paths; do ok "$name: the file holds what the device shows" same_bytes $name; done
if driver_has UPDATE_SIZE; then
	ok "a namespace that grows while nobody serves it: the device follows" grows_unserved
fi
ok "no error has reached the block layer" no_io_error

# ---- the end with a target that is gone ----

nvmet_unlink 6 $nqn:dead
dd if=/dev/zero of="$(blk dead)" bs=64k count=16 oflag=direct status=none 2>/dev/null &
writer=$!
ok "a target that is gone, a device that waits for ever: a write waits" eval 'wait_for 20 held dead && kill -0 $writer'
ok "... it stops within its deadline (3s)" delete dead 8 --force
wait $writer
nvmet_unlink 3 $nqn:away
ok "the daemon ends with another target gone" ends 10
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
ok "nothing is left of the target" nvmet_down
losetup -d "${loops[@]}"
finish
