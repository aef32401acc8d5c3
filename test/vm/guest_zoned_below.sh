#!/bin/bash
# In the guest: devices over zoned block devices (null_blk, which keeps its bytes in memory): both say the same of their
# zones, what is done to one is seen at the other; limits, fio's zonemode=zbd with verify, btrfs, zones that somebody else
# resets, or that are read-only; the death and the upgrade of the daemon meanwhile.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"
. "$here/guest_zones.sh"

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=30 upgrades=5

# null NAME KEY=VALUE...: /dev/NAME
null() {
	local folder=/sys/kernel/config/nullb/$1 pair
	mkdir "$folder" || return
	for pair in memory_backed=1 blocksize=512 zoned=1 "${@:2}"; do
		echo "${pair#*=}" >"$folder/${pair%=*}" || return
	done
	echo 1 >"$folder/power"
}
made() {
	modprobe null_blk nr_devices=0 && { mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; } &&
		null smr size=128 zone_size=4 zone_capacity=3 zone_nr_conv=2 zone_max_open=3 zone_max_active=5 &&
		null plain size=128 zone_size=4 && null fs size=512 zone_size=8 && null big size=64 zone_size=4 blocksize=4096
}
ok "zoned block devices are made" made
cat >"$work/below.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: smr, queues: 2, depth: 64, backend: {type: zoned, backend: {type: file, path: /dev/smr}}}
  - {name: plain, depth: 64, backend: {type: zoned, backend: {type: file, path: /dev/plain}}}
  - {name: fs, depth: 64, backend: {type: zoned, backend: {type: file, path: /dev/fs}}}
YAML
all='smr plain fs'

# ---- as below ----

# same NAME: both say the same of all zones.
same() { diff <(blkzone report "/dev/$1") <(blkzone report "$(blk "$1")"); }
# zone_is NAME INDEX CONDITION SECTORS: of both.
zone_is() {
	local device found
	for device in "/dev/$1" "$(blk "$1")"; do
		found=$(zone "$device" "$2")
		[ "$found" = "$3 $4" ] || { echo "zone $2 of $device is $found, not $3 $4" && return 1; }
	done
}
sum() { dd if="$1" bs=4k skip=$(($2 * 1024 + $3)) count="$4" iflag=direct status=none | md5sum; }
same_sum() { [ "$(sum "$(blk "$1")" "${@:2}")" = "$(sum "/dev/$1" "${@:2}")" ]; }
zeroes() { [ "$(sum "$(blk "$1")" "${@:2}")" = "$(head -c $(($4 * 4096)) /dev/zero | md5sum)" ]; }

ok "a zone is written before" dd if=/dev/urandom of=/dev/plain bs=4k seek=$((9 * 1024)) count=7 oflag=direct status=none
ok "... and another one is full, one is open" eval 'blkzone finish -o $((8 * 8192)) -c 1 /dev/plain && blkzone open -o $((7 * 8192)) -c 1 /dev/plain'
ok "three devices start" start_daemon "$work/below.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
for name in $all; do
	ok "$name: is host-managed" limit_is "$name" zoned host-managed
	ok "$name: the zones are those below" same "$name"
	for file in nr_zones chunk_sectors max_open_zones max_active_zones; do
		read -r value <"/sys/block/$name/queue/$file"
		ok "$name: $file as below, $value" limit_is "$name" "$file" "$value"
	done
done
ok "plain: what was written before" same_sum plain 9 0 7
ok "plain: ... goes on at the write pointer" eval 'put plain 9 7 1 && zone_is plain 9 oi 40'

stepped=smr
[ -z "${UBLKD_SOAK:-}" ] || stepped='smr plain'
for name in $stepped; do
	ok "$name: a zone is empty" zone_is $name 5 em 0
	ok "$name: ... written at its start" put $name 5 0 3
	ok "$name: ... open by that" zone_is $name 5 oi 18
	ok "$name: a write that is not at the write pointer fails" refused put $name 5 5 1
	ok "$name: ... one behind it too" refused put $name 5 1 1
	ok "$name: ... and changes nothing" zone_is $name 5 oi 18
	ok "$name: written at the write pointer" put $name 5 3 1
	ok "$name: the same bytes below" same_sum $name 5 0 4
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
	ok "$name: ... all as below" same $name
done
ok "smr: a zone ends at its capacity" eval 'put smr 6 0 768 && zone_is smr 6 fu 1800 && refused put smr 6 768 1'
ok "smr: conventional zones are written in any order" eval 'put smr 1 100 5 && put smr 0 3 2 && put smr 1 0 9 && same_sum smr 1 0 200'
ok "smr: ... and cannot be reset" refused act smr reset 1
ok "smr: three zones are opened" act smr open 7 3
ok "smr: ... the fourth is one too many" refused act smr open 10
ok "smr: ... also for a write" refused put smr 10 0 1
ok "smr: ... which changes nothing" zone_is smr 10 em 0
ok "smr: show has a line for its zones" said '^ *32 +4(\.0+)? ?MiB +2 +26 +3 of 3 +3 of 5 +1 +[0-9]+ +[1-9][0-9]*$' ublkctl show smr
ok "smr: closed ones make room" eval 'put smr 7 0 1 && put smr 8 0 1 && act smr close 7 2 && put smr 10 0 1'
ok "smr: ... two more are active then" put smr 11 0 1
ok "smr: ... the sixth is one too many" refused put smr 12 0 1
ok "smr: ... all as below" same smr
ok "smr: show says what the device below does" said '^ *32 +4(\.0+)? ?MiB +2 +24 +3 of 3 +5 of 5 +1 ' ublkctl show smr
ok "smr: all are reset" blkzone reset "$(blk smr)"
ok "smr: ... they are empty" eval 'zone_is smr 7 em 0 && zone_is smr 11 em 0 && same smr'
ok "smr: ... and conventional ones keep their bytes" refused zeroes smr 1 0 9
ok "smr: cannot have another size" answers 'cannot (change its size|resize)' refused ublkctl resize smr 256MiB

# ---- somebody else ----

ok "plain: somebody resets a zone below" eval 'act plain reset 5 && put plain 5 0 4 && blkzone reset -f -o $((5 * 8192)) -c 1 /dev/plain'
ok "plain: ... the next write fails" refused put plain 5 4 1
ok "plain: ... the one at the pointer below does not" eval 'zone_is plain 5 em 0 && put plain 5 0 2 && zone_is plain 5 oi 10'
ok "plain: a zone becomes read-only below" eval 'put plain 6 0 4 && echo $((6 * 8192)) >/sys/kernel/config/nullb/plain/zone_readonly'
ok "plain: ... is read" same_sum plain 6 0 4
ok "plain: ... and not written" refused put plain 6 4 1
ok "plain: ... all as below" same plain
ok "plain: ... and writable again" eval 'echo $((6 * 8192)) >/sys/kernel/config/nullb/plain/zone_readonly && same plain && put plain 6 0 1'

# ---- fio ----

for name in smr plain; do
	ok "$name: fio in zones, one after the other" zbd $name --rw=write --bs=64k --iodepth=8 --offset=8M --size=12M
	ok "$name: ... in several at random" zbd $name --rw=randwrite --bs=16k --iodepth=16 --offset=8M --size=32M --io_size=6M \
		--max_open_zones=3
	ok "$name: ... all as below" same $name
done

# ---- the daemon dies, or is upgraded, under loads ----

# Of writes that were refused below.
errors_below() { dmesg | grep -cE 'I/O error, dev (smr|plain|fs)'; }
errors_before=$(errors_below)
for name in smr plain; do load_zones $name; done
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/below.yaml" $all
if driver_has QUIESCE; then
	ok "upgraded under load" upgrade $upgrades
else
	skip "upgraded under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
ok "smr: ... all as below" same smr
ok "plain: ... all as below" same plain
ok "zones are what they were after a death" eval '
	act plain reset 5 && act plain open 5 && put plain 5 0 3 && before=$(blkzone report "$(blk plain)") &&
	kill_daemon && start_again "$work/below.yaml" $all && [ "$(blkzone report "$(blk plain)")" = "$before" ] &&
	same_sum plain 5 0 3 && zone_is plain 5 oe 18 && put plain 5 3 1'

# ---- a file system ----

if modprobe btrfs && command -v mkfs.btrfs >/dev/null; then
	mkdir -p /mnt/fs
	formatted() { mkfs.btrfs -f -q -O zoned -d single -m single "$(blk fs)" && mount "$(blk fs)" /mnt/fs; }
	ok "btrfs: made and mounted" formatted
	ok "btrfs: written" copies one
	ok "btrfs: ... by appends" eval '[ "$(ublkctl --json stats fs | jq "[.. | objects | .zone_append? | objects | .done] | add")" -gt 0 ]'
	dies() {
		local copier
		copies two &
		copier=$!
		# shellcheck disable=SC2086 # words
		kill_daemon && start_again "$work/below.yaml" $all && wait $copier
	}
	ok "btrfs: the daemon dies meanwhile" dies
	ok "btrfs: read again" eval 'echo 3 >/proc/sys/vm/drop_caches; diff -r "$here" /mnt/fs/one && diff -r "$here" /mnt/fs/two'
	ok "btrfs: scrubbed" btrfs scrub start -B /mnt/fs
	ok "btrfs: unmounted" umount /mnt/fs
	ok "btrfs: checked" btrfs check --readonly "$(blk fs)"
	ok "btrfs: ... all as below" same fs
	has_btrfs=1
else
	has_btrfs=
	skip "btrfs" "no btrfs here"
fi

# ---- over a restart ----

ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "it starts again" start_daemon "$work/below.yaml"
# shellcheck disable=SC2086 # words
ok "... and serves" are_live $all
ok "plain: open zones are what they are below" eval 'same plain && zone_is plain 5 oe 20 && put plain 5 4 1'
if [ -n "$has_btrfs" ]; then
	ok "btrfs: mounted again" mount "$(blk fs)" /mnt/fs
	ok "btrfs: the same files" eval 'diff -r "$here" /mnt/fs/one && diff -r "$here" /mnt/fs/two'
	ok "btrfs: unmounted again" umount /mnt/fs
fi
ok "under the loads nothing was refused below" test "$(errors_below)" = "$errors_before"

# ---- refused ----

# wrong BACKEND WORDS: a device of that is not made, and why.
wrong() {
	printf 'daemon: {reactors: %s}\ndevices:\n  - {name: wrong, backend: %s}\n' "$reactors" "$1" >"$work/wrong.yaml"
	start_daemon "$work/wrong.yaml"
	logs "$2" && stop_daemon
}
ok "it ends once more" end_server
ok "refused: file over zones" wrong '{type: file, path: /dev/smr}' 'is a zoned block device, whose zones are written in order: set type: zoned'
ok "refused: a filter between" wrong '{type: zoned, backend: {type: throttle, total_iops_sec: 9, backend: {type: file, path: /dev/smr}}}' 'directly below it'
ok "refused: other zones over them" wrong '{type: zoned, zones: {size: 4MiB}, backend: {type: file, path: /dev/smr}}' 'leave out zones'
ok "refused: no zones at all" wrong '{type: zoned, backend: {type: mem, size: 64MiB}}' 'has no zones of its own'
ok "refused: a size" wrong '{type: zoned, backend: {type: file, path: /dev/smr, size: 64MiB}}' 'leave out size'
ok "refused: blocks that are smaller than those below" wrong '{type: zoned, backend: {type: file, path: /dev/big}}, block_size: 512' 'block_size: 4096'
ok "refused: the page cache" wrong '{type: zoned, backend: {type: file, path: /dev/smr, direct: off}}' 'needs direct I/O'
finish
