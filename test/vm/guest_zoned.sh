#!/bin/bash
# In the guest: devices with zones, over memory and over a file. blkzone's commands, fio's zonemode=zbd with content that
# it verifies, btrfs on zones; the death and the upgrade of the daemon meanwhile; write pointers over a restart.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"
. "$here/guest_zones.sh"

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=30 upgrades=5
ram_disk 1000 || exit 1
mib=$((1 << 20))

# 16 zones of 4 MiB on mem, and of a smaller capacity, with limits, behind two conventional ones; 40 of 8 MiB for btrfs.
cat >"$work/zoned.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: mem, queues: 2, depth: 64, backend: {type: zoned, zones: {size: 4MiB}, backend: {type: mem, size: 65MiB}}}
  - name: file
    depth: 64
    backend:
      type: zoned
      zones: {size: 4MiB, capacity: 3MiB, max_open: 3, max_active: 5, conventional: 2}
      backend: {type: file, path: /mnt/ram/zones, size: 65MiB, create: true}
  - name: fs
    depth: 64
    backend:
      type: zoned
      zones: {size: 8MiB}
      backend: {type: file, path: /mnt/ram/fs, size: 513MiB, create: true}
YAML
all='mem file fs'

ok "three devices start" start_daemon "$work/zoned.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all

for name in mem file; do
	ok "$name: is host-managed" limit_is $name zoned host-managed
	ok "$name: its zones" limit_is $name nr_zones 16
	ok "$name: ... are of 4 MiB" limit_is $name chunk_sectors 8192
done
ok "file: max_open" limit_is file max_open_zones 3
ok "file: max_active" limit_is file max_active_zones 5

# ---- zones by command ----

zone_is() { # NAME INDEX CONDITION SECTORS
	local found
	found=$(zone "$(blk "$1")" "$2")
	[ "$found" = "$3 $4" ] || { echo "zone $2 of $1 is $found, not $3 $4" && return 1; }
}
sum() { dd if="$(blk "$1")" bs=4k skip=$(($2 * 1024 + $3)) count="$4" iflag=direct status=none | md5sum; }
zeroes() { [ "$(sum "$@")" = "$(head -c $(($4 * 4096)) /dev/zero | md5sum)" ]; }

# What keeps zones is the same over both.
stepped='file'
[ -z "${UBLKD_SOAK:-}" ] || stepped='mem file'
for name in $stepped; do
	ok "$name: a zone is empty" zone_is $name 5 em 0
	ok "$name: ... written at its start" put $name 5 0 3
	ok "$name: ... open by that" zone_is $name 5 oi 18
	ok "$name: a write that is not at the write pointer fails" refused put $name 5 5 1
	ok "$name: ... one behind it too" refused put $name 5 1 1
	ok "$name: ... and changes nothing" zone_is $name 5 oi 18
	ok "$name: written at the write pointer" put $name 5 3 1
	ok "$name: what is behind it reads zeroes" zeroes $name 5 4 8
	ok "$name: closed by a command" act $name close 5
	ok "$name: ... it is" zone_is $name 5 cl 20
	ok "$name: opened by a command" act $name open 5
	ok "$name: ... it is" zone_is $name 5 oe 20
	ok "$name: finished" act $name finish 5
	ok "$name: ... it is full" zone_is $name 5 fu 2000
	ok "$name: ... and cannot be written" refused put $name 5 4 1
	ok "$name: ... what was not written reads zeroes" zeroes $name 5 4 8
	ok "$name: reset" act $name reset 5
	ok "$name: ... it is empty" zone_is $name 5 em 0
	ok "$name: ... and reads zeroes" zeroes $name 5 0 8
done
ok "file: a zone ends at its capacity" eval 'put file 6 0 768 && zone_is file 6 fu 2000 && refused put file 6 768 1'
ok "file: conventional zones are written in any order" eval 'put file 1 100 5 && put file 0 3 2 && put file 1 0 9'
ok "file: ... and cannot be reset" refused act file reset 1
ok "file: three zones are opened" act file open 7 3
ok "file: ... the fourth is one too many" refused act file open 10
ok "file: ... also for a write" refused put file 10 0 1
# After a failed write the block layer wants to hear of the pointer before the next one.
ok "file: ... which changes nothing" zone_is file 10 em 0
ok "file: closed ones make room" eval 'put file 7 0 1 && put file 8 0 1 && act file close 7 2 && put file 10 0 1'
ok "file: ... two more are active then" put file 11 0 1
ok "file: ... the sixth is one too many" refused put file 12 0 1
ok "file: all are reset" blkzone reset "$(blk file)"
ok "file: ... they are empty" eval 'zone_is file 7 em 0 && zone_is file 11 em 0'
ok "file: ... and conventional ones keep their bytes" refused zeroes file 1 0 9

# ---- what is said of it ----

ok "doctor: the kernel has zones" said '^OK +zones ' ublkctl doctor
ok "mem: one queue" test "$(ublkctl --json list | jq '.. | objects | select(.name? == "mem") | .queues')" = 1
ok "file: show has a line for its zones" said '^ *16 +4(\.0+)? ?MiB +2 +14 +0 of 3 +0 of 5 +0 +[0-9]+ +[1-9][0-9]*$' ublkctl show file
ok "mem: cannot have another size" answers 'cannot (change its size|resize)' refused ublkctl resize mem 128MiB

# ---- fio ----

for name in mem file; do
	first=0
	[ $name = mem ] || first=8M
	ok "$name: fio in zones, one after the other" zbd $name --rw=write --bs=64k --iodepth=8 --offset=$first --size=12M
	ok "$name: ... in several at random" zbd $name --rw=randwrite --bs=16k --iodepth=16 --offset=$first --size=32M --io_size=6M \
		--max_open_zones=3
done

# ---- the daemon dies, or is upgraded, under loads ----

for name in mem file; do load_zones $name; done
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/zoned.yaml" $all
if driver_has QUIESCE; then
	ok "upgraded under load" upgrade $upgrades
else
	skip "upgraded under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
ok "zones are what they were after a death" eval '
	act mem reset 5 && act mem open 5 && put mem 5 0 3 && before=$(blkzone report "$(blk mem)") && bytes=$(sum mem 5 0 3) &&
	kill_daemon && start_again "$work/zoned.yaml" $all && [ "$(blkzone report "$(blk mem)")" = "$before" ] &&
	[ "$(sum mem 5 0 3)" = "$bytes" ] && zone_is mem 5 oe 18 && put mem 5 3 1'

# ---- a file system ----

if modprobe btrfs && command -v mkfs.btrfs >/dev/null; then
	mkdir -p /mnt/fs
	made() { mkfs.btrfs -f -q -O zoned -d single -m single "$(blk fs)" && mount "$(blk fs)" /mnt/fs; }
	ok "btrfs: made and mounted" made
	ok "btrfs: written" copies one
	ok "btrfs: ... by appends" eval '[ "$(ublkctl --json stats fs | jq "[.. | objects | .zone_append? | objects | .done] | add")" -gt 0 ]'
	dies() {
		local copier
		copies two &
		copier=$!
		# shellcheck disable=SC2086 # words
		kill_daemon && start_again "$work/zoned.yaml" $all && wait $copier
	}
	ok "btrfs: the daemon dies meanwhile" dies
	ok "btrfs: read again" eval 'echo 3 >/proc/sys/vm/drop_caches; diff -r "$here" /mnt/fs/one && diff -r "$here" /mnt/fs/two'
	ok "btrfs: scrubbed" btrfs scrub start -B /mnt/fs
	ok "btrfs: unmounted" umount /mnt/fs
	ok "btrfs: checked" btrfs check --readonly "$(blk fs)"
	has_btrfs=1
else
	has_btrfs=
	skip "btrfs" "no btrfs here"
fi

# ---- over a restart ----

ok "file: a zone is written" eval 'act file reset 5 && put file 5 0 3 && act file finish 6 && act file reset 7 && act file open 7'
bytes=$(sum file 5 0 4)
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "it starts again" start_daemon "$work/zoned.yaml"
# shellcheck disable=SC2086 # words
ok "... and serves" are_live $all
ok "file: zones that were open are closed, or empty" eval 'zone_is file 5 cl 18 && zone_is file 6 fu 2000 && zone_is file 7 em 0'
ok "file: the same bytes" test "$(sum file 5 0 4)" = "$bytes"
ok "file: ... and it goes on at the write pointer" put file 5 3 1
if [ -n "$has_btrfs" ]; then
	ok "btrfs: mounted again" mount "$(blk fs)" /mnt/fs
	ok "btrfs: the same files" eval 'diff -r "$here" /mnt/fs/one && diff -r "$here" /mnt/fs/two'
	ok "btrfs: unmounted again" umount /mnt/fs
fi

# ---- refused ----

wrong() { sed "s/zones: {size: 8MiB}/zones: {$1}/" "$work/zoned.yaml" >"$work/wrong.yaml"; }
wrong 'size: 16MiB'
ok "it ends once more" end_server
ok "zones of another size are refused in words" eval 'start_daemon "$work/wrong.yaml"; logs "the backend holds zones of 8388608 bytes"'
ok "it ends at last" end_server
finish
