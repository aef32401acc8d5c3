#!/bin/bash
# In the guest: rbd on a real Ceph cluster: limits, data under fio, a file system, snapshots and clones, an image that
# is resized, OSD and monitor that die or stand still, a client on the blocklist, a lock that another has, a full
# pool, the death and the upgrade of the daemon.
# By turns: uml, 7.2
# When these change: backends/rbd
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_rbd_lib.sh"
. "$here/guest_devices.sh"

paused=8 kills=1 upgrades=1
if [ -n "${UBLKD_SOAK:-}" ]; then paused=30 kills=20 upgrades=5; fi

if ! ceph_up bluestore; then
	skip "rbd" "$ceph_why"
	finish
fi

# ---- images ----

make_images() {
	local name
	for name in plain back away dead word lock; do rbd create --size 24M "rbd/$name" || return; done
	rbd create --size 48M --object-size 1M --stripe-unit 64K --stripe-count 4 rbd/fancy
}
ok "a cluster, seven images" make_images

# device NAME [MORE BACKEND OPTIONS]
device() {
	echo "  - {name: $1, queues: 2, block_size: 4096, backend: {type: rbd, uri: \"rbd:rbd/${1%-*}\", conf: $ceph_dir/ceph.conf,"
	echo "     keyring: $ceph_dir/keyring, ${2:-on_disconnect: {queue: 2m\}}}}"
}
{
	printf 'daemon: {reactors: %s, stop_timeout: 3s, open_timeout: 60s}\ndevices:\n' "$reactors"
	device plain
	device fancy
	device back "cache: writeback, on_disconnect: forever"
	device away "exclusive: hold, on_disconnect: {queue: 2m}"
	device dead "on_disconnect: {queue: 5s}"
} >"$work/rbd.yaml"
all="plain fancy back away dead"
# shellcheck disable=SC2086 # words
start_rbd() { start_daemon "$work/rbd.yaml" && wait_for 60 are_live $all; }
ok "the devices are live" start_rbd

ok "the size of the image" bytes_are plain $((24 << 20))
ok "without a cache nothing is volatile" limit_is plain write_cache 'write through'
ok "with one there is" limit_is back write_cache 'write back'
ok "discards are of whole objects" limit_is plain discard_granularity $((4 << 20))
ok "requests end at objects" limit_is plain chunk_sectors $((4 << 11))
ok "... or stripe units" limit_is fancy chunk_sectors 128

# ---- data ----

# exported NAME [DEVICE]: the image holds what the device shows.
exported() { sync && cmp <(rbd export --no-progress "rbd/$1" -) "$(blk "${2:-$1}")"; }
for name in plain fancy back; do
	ok "$name: fio verify, two queues at QD32" verify_two $name
	ok "$name: the image holds what the device shows" exported $name
done
ok "zeroes are written where they should be" zeroed plain $((4 << 20)) $((8 << 20)) blkdiscard -f -z
ok "... also those of a part of an object" zeroed plain $(((4 << 20) + 4096)) 16384 blkdiscard -f -z
objects() { rbd du --format json rbd/plain 2>/dev/null | jq '.images[0].used_size'; }
frees() { zeroed plain $((4 << 20)) $((8 << 20)) blkdiscard -f && objects && [ "$(objects)" -le $((16 << 20)) ]; }
ok "what is discarded is freed" frees
ok "mkfs, mount, copy, trim, fsck" file_system plain

# ---- snapshots and clones ----

add() { device "$@" | sed 's/^ *- //' | ublkctl add -f - && ask_daemon; }
add_from() { # NAME URI
	echo "{name: $1, backend: {type: rbd, uri: \"$2\", conf: $ceph_dir/ceph.conf, keyring: $ceph_dir/keyring}}" |
		ublkctl add -f - && ask_daemon
}
snapshot() {
	dd if="$(blk plain)" of="$work/before" bs=1M iflag=direct status=none && rbd snap create --no-progress rbd/plain@one &&
		verify_two plain && add_from old rbd:rbd/plain@one && cmp "$work/before" "$(blk old)" &&
		! dd if=/dev/zero of="$(blk old)" bs=4k count=1 oflag=direct status=none
}
ok "a snapshot is served as it was, read-only" snapshot
clone() {
	rbd snap protect rbd/plain@one && rbd clone rbd/plain@one rbd/clone && add clone &&
		cmp "$work/before" "$(blk clone)" && verify_two clone && exported clone && cmp "$work/before" "$(blk old)"
}
ok "a clone is written, and the snapshot is not" clone
ok "both are removed" eval 'delete clone 8 && delete old 8'

# ---- the size ----

if driver_has UPDATE_SIZE; then
	ok "the image grows, and the device by itself" eval \
		'rbd resize --no-progress --size 64M rbd/plain && wait_for 30 bytes_are plain $((64 << 20))'
	ok "the device grows, and the image with it" eval \
		'ublkctl resize plain 72M && bytes_are plain $((72 << 20)) && [ "$(image_size plain)" = $((72 << 20)) ]'
fi
fails_behind_end() {
	! dd if=/dev/zero of="$(blk fancy)" bs=64k seek=$(((40 << 20) / 65536)) count=1 oflag=direct status=none &&
		dd if=/dev/zero of="$(blk fancy)" bs=64k count=1 oflag=direct status=none
}
ok "the image shrinks: the log says so" eval \
	'rbd resize --no-progress --allow-shrink --size 32M rbd/fancy && logs "smaller than the device.*device=fancy"'
ok "... what ends behind its end fails, nothing else" fails_behind_end
ok "... it grows again, and it is as before" eval \
	'rbd resize --no-progress --size 48M rbd/fancy && verify_two fancy && exported fancy'

# ---- a cluster in trouble, under load ----

load away
ok "a device that holds the lock, under load" works away
ok "the OSD is killed: requests wait" eval 'cluster kill-osd && stands away'
ok "... why-stuck names what they wait for" wait_for 20 said 'the backend rbd does not answer \(librbd' ublkctl why-stuck away
ok "... it is back: they go on" eval 'cluster start-osd && works away'
if [ -n "${UBLKD_SOAK:-}" ]; then
	ok "the OSD stands still" eval 'cluster pause-osd && stands away && rest $paused'
	ok "... and goes on" eval 'cluster resume-osd && works away'
fi
ok "the monitor is killed: I/O goes on" eval 'cluster kill-mon && works away'
ok "... it is back" eval 'cluster start-mon && works away'
if [ -n "${UBLKD_SOAK:-}" ]; then
	ok "the cluster is full: writes wait" eval 'cluster fill && stands away'
	ok "... it is not: they go on" eval 'cluster unfill && works away'
fi
ok "another client on the lock: refused in words" said 'holds the lock' add away-two "exclusive: hold"
ok "the client is put on the blocklist: the image is open again" eval \
	'list_client "$(watcher away)" && logs "the image is lost.*device=away" && logs "open again.*device=away" && works away'
[ -z "${UBLKD_SOAK:-}" ] || ok "... twice" eval 'list_client "$(watcher away)" && works away && wait_for 20 said "connected" ublkctl show away'
ok "no error, no mismatch" load_ends
ok "the image holds what the device shows" exported away
no_error_of() { ! dmesg | grep -E "I/O error, dev $(basename "$(blk "$1")")"; }
ok "no error has reached the block layer" no_error_of away

# A client whose cache has what it never wrote: it may be lost with the client, and the next flush says so.
lost_flush() {
	local device
	device=$(blk back)
	dd if=/dev/urandom of="$device" bs=4k count=16 oflag=direct status=none && list_client "$(watcher back)" || return
	! dd if=/dev/zero of="$device" bs=4k count=1 seek=100 oflag=direct conv=fsync status=none &&
		dd if=/dev/zero of="$device" bs=4k count=1 seek=100 oflag=direct conv=fsync status=none
}
ok "a cache that is lost: one flush fails, and no more" lost_flush

# ---- the daemon dies, or is upgraded ----

# The first FLUSH lets librbd begin to keep writes back.
cache_upgraded() {
	local device
	device=$(blk back)
	dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct conv=fsync status=none || return
	dd if=/dev/urandom of="$work/cached" bs=4k count=256 status=none &&
		dd if="$work/cached" of="$device" bs=4k oflag=direct status=none && ublkctl upgrade && wait_for 60 settled || return
	daemon_pid=$(server)
	dd if=/dev/zero of="$device" bs=4k count=1 seek=1000 oflag=direct conv=fsync status=none &&
		cmp -n $((256 * 4096)) "$work/cached" <(rbd export --no-progress rbd/back -)
}
if driver_has QUIESCE; then ok "an upgrade writes the cache first: no flush fails" cache_upgraded; fi

load plain
load away
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/rbd.yaml" $all
ok "... the dead client is on the blocklist" logs 'served the image before is on the cluster.s blocklist.*device=away'
if driver_has QUIESCE; then
	ok "upgraded $upgrades times under load" upgrade $upgrades
else
	skip "upgraded $upgrades times under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
for name in plain away; do ok "$name: the image holds what the device shows" exported $name; done

# ---- the end without a cluster ----

ok "OSD and monitor are gone: a write fails when its time is over" eval \
	'cluster kill-osd && cluster kill-mon && ! dd if=/dev/zero of="$(blk dead)" bs=64k count=1 oflag=direct status=none'
ok "the daemon ends without its cluster" ends 300
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
finish_rbd
