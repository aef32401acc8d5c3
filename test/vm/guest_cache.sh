#!/bin/bash
# In the guest: devices with a cache over a slow file. Content under fio verify, a file system, the death and the
# upgrade of the daemon under loads that verify what they wrote, and at the end the origin, read without the cache,
# has what the device read. Opened again the cache is warm. Caches are dropped and warmed, under a load too.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=50 upgrades=5
ram_disk 900 || exit 1

# cached NAME OPTIONS: a cache of half the size of its origin, which takes its time.
cached() {
	echo "{type: cache, $2, backend: {type: delay, read: 300us, write: 300us, backend: {type: file, path: /mnt/ram/$1.origin, size: 128MiB, create: true}}," \
		"store: {type: file, path: /mnt/ram/$1.store, size: 64MiB, create: true}}"
}
cat >"$work/cache.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: read, queues: 2, depth: 64, backend: $(cached read 'mode: readthrough')}
  - {name: write, queues: 2, depth: 64, backend: $(cached write 'mode: writethrough, block: 16KiB')}
  - {name: back, queues: 2, depth: 64, backend: $(cached back 'mode: writeback, dirty_time: 200ms')}
YAML
all='read write back'

ok "three devices start" start_daemon "$work/cache.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
for name in $all; do
	ok "$name: two jobs under verify" verify_two $name
	ok "$name: requests of all sizes" verify "$(blk $name)" --bsrange=512-640k --blockalign=512 --bs_unaligned=0 \
		--iodepth=16 --size=32M --io_size=16M
	ok "$name: zeroes where a range was discarded" zeroed $name $((100 << 10)) $((9 << 20)) blkdiscard -f -z
	ok "$name: a file system" file_system $name
done

# caches NAME KEY: of its one cache.
caches() { ublkctl --json show "$1" | jq "[.. | objects | select(has(\"hit_ratio\"))][0].$2"; }
hits_grow() { # NAME
	local before
	before=$(caches "$1" hits)
	dd if="$(blk "$1")" of=/dev/null bs=64k skip=16 count=8 iflag=direct status=none &&
		dd if="$(blk "$1")" of=/dev/null bs=64k skip=16 count=8 iflag=direct status=none &&
		[ "$(caches "$1" hits)" -ge $((before + 8)) ]
}
for name in $all; do ok "$name: what was read is read from the store" hits_grow $name; done

# ---- commands ----

first_sum() { dd if="$(blk "$1")" bs=64k count=256 iflag=direct status=none | md5sum; }
# Nothing of it is a miss then.
dropped_and_warmed() { # NAME
	local sum before
	sum=$(first_sum "$1")
	ublkctl cache drop "$1" | tee "$work/said" && grep -q ' dropped$' "$work/said" &&
		ublkctl cache warm "$1" --length 16MiB | tee "$work/said" && grep -q ' fetched, .* there already$' "$work/said" || return
	before=$(caches "$1" misses)
	[ "$(first_sum "$1")" = "$sum" ] && [ "$(caches "$1" misses)" = "$before" ]
}
fills_up() { ublkctl cache warm "$1" | tee "$work/said" && grep -q '^the cache is full: ' "$work/said"; }
refuses() { ! ublkctl cache warm "$1" --offset 1TiB 2>"$work/said" && grep -q 'smaller --offset' "$work/said"; }
for name in $all; do
	ok "$name: dropped, and warmed" dropped_and_warmed $name
	ok "$name: warmed until it is full" fills_up $name
	ok "$name: a range outside of it is refused" refuses $name
done
# It may find no daemon at times. Starting programs takes the guest's time.
commands_go_on() {
	while [ -e "$work/goes_on" ]; do
		for name in $all; do
			ublkctl cache warm $name && ublkctl cache drop $name
			sleep 0.5
		done
	done >/dev/null 2>&1
}

# ---- the daemon dies, or is upgraded, under loads ----

for name in $all; do load $name; done
touch "$work/goes_on"
commands_go_on &
commands=$!
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/cache.yaml" $all
rm "$work/goes_on"
wait $commands
if driver_has QUIESCE; then
	ok "upgraded under load" upgrade $upgrades
else
	skip "upgraded twice under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
ok "no error has reached the block layer" no_io_error
sums() { for name in $all; do md5sum <"$(blk "$name")"; done; }
before=$(sums)
# shellcheck disable=SC2086 # words
ok "killed without a load, it serves again" eval "kill_daemon && start_again '$work/cache.yaml' $all"
ok "all content is there" test "$(sums)" = "$before"

# ---- without the cache ----

for name in $all; do dd if="$(blk $name)" of="/mnt/ram/$name.raw" bs=1M iflag=direct conv=sparse status=none; done
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
for name in $all; do ok "$name: the origin has what the device read" cmp "/mnt/ram/$name.raw" "/mnt/ram/$name.origin"; done

ok "the caches are opened again" start_daemon "$work/cache.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
warm() { [ "$(caches "$1" used_blocks)" -gt 100 ]; }
for name in $all; do
	ok "$name: the cache is warm" warm $name
	ok "$name: the same content" cmp "/mnt/ram/$name.raw" "$(blk $name)"
done
finish
