#!/bin/bash
# In the guest: snapshots of qcow2 images below nodes that have a state of their own. Caches in each mode stand aside: what
# was flushed is in the snapshot, in its order under a load, and what is applied is read. Zones, checksums and stripes are
# refused in words, nothing changes, and the cure works.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"
. "$here/guest_zones.sh"

ram_disk 700 || exit 1

image() { echo "{type: qcow2, create: true, size: ${2:-32MiB}, data: {type: file, path: /mnt/ram/$1.qcow2, create: true}}"; } # NAME [SIZE]
cached() { echo "{type: cache, mode: $2, ${3:-} store: {type: file, path: /mnt/ram/$1.store, size: 8MiB, create: true}, backend: $(image "$1")}"; }
cat >"$work/all.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: read, backend: $(cached read readthrough)}
  - {name: through, backend: $(cached through writethrough)}
  - {name: back, backend: $(cached back writeback 'dirty_time: 1h, dirty_max: 0.9,')}
  - {name: slow, backend: {type: throttle, total_iops_sec: 1000000, backend: {type: delay, all: 100us, backend: $(image slow)}}}
  - {name: zones, backend: {type: zoned, zones: {size: 4MiB}, backend: $(image zones 33MiB)}}
  - {name: stripe, backend: {type: stripe, backends: [$(image first), $(image second)]}}
YAML
cat >"$work/safe.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - name: safe
    backend: {type: integrity, data: $(image safe), metadata: {type: file, path: /mnt/ram/safe.pi, create: true}}
YAML
# The images alone.
{
	echo 'devices:'
	for name in zones safe through back first second; do echo "  - {name: $name, backend: $(image $name)}"; done
} >"$work/alone.yaml"

fill() { # NAME LETTER MIB: the first of them, flushed
	head -c $(($3 << 20)) < <(yes "$2" | tr -d '\n') | dd of="$(blk "$1")" bs=1M iflag=fullblock oflag=direct conv=notrunc,fsync status=none
}
has() { # NAME LETTER MIB
	head -c $(($3 << 20)) < <(yes "$2" | tr -d '\n') | cmp - <(dd if="$(blk "$1")" bs=1M count="$3" iflag=direct status=none)
}
# refuses WORDS ublkctl...: with a code of its own, and words.
refuses() {
	local words=$1
	shift
	if "$@" 2>"$work/said"; then return 1; fi
	cat "$work/said"
	grep -q "$words" "$work/said"
}

all='read through back slow zones stripe'
ok "devices over images start" start_daemon "$work/all.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all

# ---- those that let it be ----

dirty() { ublkctl --json show back | jq '[.. | objects | select(has("hit_ratio"))][0].dirty_bytes'; }
for name in read through back slow; do
	ok "$name: A" fill $name A 1
	[ $name = back ] && ok "back: the image does not have it yet" test "$(dirty)" = 1048576
	ok "$name: a snapshot of A" ublkctl snapshot create $name a
	[ $name = back ] && ok "back: the image has all" test "$(dirty)" = 0
	ok "$name: B" fill $name B 1
	ok "$name: ... is read" has $name B 1
	ok "$name: A is applied" ublkctl snapshot apply $name a
	ok "$name: ... and read" has $name A 1
	ok "$name: C" fill $name C 1
	ok "$name: ... is read" has $name C 1
	ok "$name: the snapshot is deleted" ublkctl snapshot delete $name a
done
ok "back: what is written is dirty again" test "$(dirty)" = 1048576
ok "back: a snapshot of C, for the image alone" ublkctl snapshot create back c
ok "back: D" fill back D 1

# count NAME: a number is written and flushed, to one block and then to another one, until it is told to end. So each
# moment has the same number in both, or one more in the first.
count() {
	python3 - "$(blk "$1")" "$work/enough" <<'PYTHON'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
places = (4 << 20, 9 << 20)
number = 0
while not os.path.exists(sys.argv[2]):
    number += 1
    block[:8] = number.to_bytes(8, "little")
    for place in places:
        os.pwrite(fd, block, place)
        os.fdatasync(fd)
PYTHON
}
number() { dd if="$(blk "$1")" bs=1M skip="$2" count=1 iflag=direct status=none | od -An -tu8 -N8 | tr -d ' '; }
in_order() { # NAME
	local first second
	first=$(number "$1" 4)
	second=$(number "$1" 9)
	echo "$first, $second"
	[ "$second" -gt 0 ] && { [ "$first" = "$second" ] || [ "$first" = $((second + 1)) ]; }
}
counts() { [ "$(number "$1" 9)" -gt "${2:-0}" ]; } # NAME [MORE THAN]
created_under_load() { # NAME
	local i
	for i in 1 2 3; do
		wait_for 60 counts "$1" "$(number "$1" 9)" && ublkctl snapshot create "$1" "load-$i" || return
	done
}
applied_in_order() { # NAME
	local i
	for i in 1 2 3; do ublkctl snapshot apply "$1" "load-$i" && in_order "$1" || return; done
}
for name in through back; do
	rm -f "$work/enough"
	count $name &
	counting=$!
	ok "$name: created under a load" created_under_load $name
	touch "$work/enough"
	ok "$name: ... of which no request fails" wait $counting
	ok "$name: each is of one moment" applied_in_order $name
done

# ---- those that do not ----

report() { blkzone report -c 3 "$(blk zones)"; }
ok "zones: A in zone 0" fill zones A 1
ok "zones: a snapshot of that" ublkctl snapshot create zones a
ok "zones: zone 0 is reset" act zones reset 0
ok "zones: B in zone 0" fill zones B 2
before=$(report)
ok "zones: A is not applied" refuses 'write pointers' ublkctl snapshot apply zones a
ok "zones: ... with --force" refuses 'write pointers' ublkctl snapshot apply zones a --force
ok "zones: the pointers are what they were" test "$(report)" = "$before"
ok "zones: B is read" has zones B 2
ok "zones: snapshots are listed" said 'a' ublkctl snapshot list zones

ok "stripe: A" fill stripe A 2
for verb in create apply; do
	ok "stripe: no $verb of one backend" refuses 'several backends' ublkctl snapshot $verb stripe a --node stripe/backends/0
done
ok "stripe: A is read" has stripe A 2
ok "no error has reached the block layer" no_io_error
ok "they end" end_server

integrity=
if driver_has INTEGRITY; then
	integrity=1
	ok "a device with checksums starts" start_daemon "$work/safe.yaml"
	ok "... and is live" are_live safe
	ok "safe: A" fill safe A 1
	ok "safe: a snapshot of that" ublkctl snapshot create safe a
	ok "safe: B" fill safe B 1
	ok "safe: A is not applied" refuses 'checksums' ublkctl snapshot apply safe a
	ok "safe: B is read" has safe B 1
	ok "it ends" end_server
else
	skip "snapshots below checksums" "an older driver has none"
fi

# ---- the cures ----

ok "the images alone" start_daemon "$work/alone.yaml"
ok "... are live" are_live zones safe through back first second
ok "zones: A is applied" ublkctl snapshot apply zones a
[ -z "$integrity" ] || ok "safe: A is applied" ublkctl snapshot apply safe a
for name in through back; do ok "$name: each is of one moment, without the cache" applied_in_order $name; done
ok "back: C is applied" ublkctl snapshot apply back c
ok "back: ... and is C, without the cache" has back C 1
for name in first second; do ok "$name: a snapshot" ublkctl snapshot create $name a; done
ok "they end" end_server

# They have blocks of before.
rm /mnt/ram/{through,back}.store
ok "the zones start again" start_daemon "$work/all.yaml"
# shellcheck disable=SC2086 # words
ok "... with all" are_live $all
ok "zones: the pointer is the snapshot's" test "$(zone "$(blk zones)" 0)" = 'cl 800'
ok "zones: A is read" has zones A 1
ok "they end" end_server
if [ -n "$integrity" ]; then
	rm /mnt/ram/safe.pi
	ok "the device with checksums starts again" start_daemon "$work/safe.yaml"
	ok "... and is live" are_live safe
	ok "safe: A is read" has safe A 1
	ok "it ends" end_server
fi
ok "no keeper is left" wait_for 10 no_keeper
finish
