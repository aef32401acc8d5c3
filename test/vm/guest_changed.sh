#!/bin/bash
# In the guest: images that other programs use while their devices wait for the next ublkd. QEMU is kept out by its locks,
# which outlive the process; what it does all the same (locking=off), or a program without locks, is found, and the device is
# refused in words: nothing is lost that the other program has written, and both ways out work.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

ram_disk 700 || exit 1
# One that nobody changes, and one for each way to do it.
changed='snapshot write place resize check commit rebase header shorter old old-write back'
all="same $changed"
for name in $all; do qemu-img create -q -f qcow2 "/mnt/ram/$name.qcow2" 32M || exit 1; done
for name in old old-write; do qemu-img create -q -f qcow2 -o compat=0.10 /mnt/ram/$name.qcow2 32M || exit 1; done
{
	echo "daemon: {reactors: $reactors}"
	echo 'devices:'
	echo '  - {name: stored, backend: {type: qcow2, create: true, size: 32M, data: {type: cache, mode: writeback, dirty_time: 1h,'
	echo '      store: {type: file, path: /mnt/ram/store, size: 16MiB, create: true}, backend: {type: file, path: /mnt/ram/stored.qcow2, size: 40MiB, create: true}}}}'
	for name in $all; do echo "  - {name: $name, backend: {type: qcow2, data: {type: file, path: /mnt/ram/$name.qcow2}}}"; done
} >"$work/all.yaml"
head -c 7M /dev/urandom >"$work/random"

# fill NAME: 6 MiB flushed, then one that is not.
fill() {
	dd if="$work/random" of="$(blk "$1")" bs=1M count=6 oflag=direct conv=notrunc,fsync status=none &&
		dd if="$work/random" of="$(blk "$1")" bs=1M skip=6 seek=10 count=1 oflag=direct conv=notrunc status=none
}
has_flushed() { dd if="$(blk "$1")" bs=1M count=6 iflag=direct status=none | cmp -n $((6 << 20)) - "$work/random"; } # NAME
is_whole() { # NAME
	has_flushed "$1" &&
		dd if="$(blk "$1")" bs=1M skip=10 count=1 iflag=direct status=none | cmp -i 0:$((6 << 20)) - "$work/random"
}
mark() { od -An -tx1 -j88 -N4 "/mnt/ram/$1.qcow2" | tr -d ' '; }
refused() { # WORDS COMMAND...
	if "${@:2}" >"$work/said" 2>&1; then return 1; fi
	lines_have "$work/said" "$1"
}
locked() { # NAME
	refused 'Failed to get "write" lock' qemu-io -c 'write 0 4k' "/mnt/ram/$1.qcow2" &&
		refused 'Failed to get "write" lock' qemu-img snapshot -c s "/mnt/ram/$1.qcow2" &&
		refused 'Failed to get shared "write" lock' qemu-img info "/mnt/ram/$1.qcow2"
}
# The image, for a QEMU that asks for no lock.
open_to_all() { echo "driver=qcow2,file.driver=file,file.locking=off,file.filename=/mnt/ram/$1.qcow2"; }

change() { # NAME
	local image
	image=$(open_to_all "$1")
	case $1 in
	snapshot | old | back) qemu-img snapshot --image-opts -c s1 "$image" ;;
	write | old-write) qemu-io --image-opts -c 'write -P 238 20M 2M' "$image" ;;
	place) qemu-io --image-opts -c 'write -P 238 1M 1M' "$image" ;;
	resize) qemu-img resize --image-opts "$image" 64M ;;
	check) qemu-img check --image-opts -r all "$image" ;;
	commit)
		qemu-img create -q -f qcow2 -u -b commit.qcow2 -F qcow2 /mnt/ram/above.qcow2 32M &&
			qemu-io --image-opts -c 'write -P 238 20M 2M' "$(open_to_all above),backing.driver=qcow2,backing.file.driver=file,backing.file.locking=off,backing.file.filename=/mnt/ram/commit.qcow2" &&
			qemu-img commit --image-opts "$(open_to_all above),backing.driver=qcow2,backing.file.driver=file,backing.file.locking=off,backing.file.filename=/mnt/ram/commit.qcow2"
		;;
	rebase) qemu-img rebase -u --image-opts -b '' "$image" ;;
	# no program that knows the format
	header) printf x | dd of=/mnt/ram/header.qcow2 bs=1 seek=4000 conv=notrunc status=none ;;
	shorter) truncate -s 128K /mnt/ram/shorter.qcow2 ;;
	esac
}
said_of() { ublkctl --json list | jq -r --arg name "$1" '.. | objects | select(.name? == $name and has("state")) | "\(.state) \(.error)"'; }
waits() { # NAME
	local text
	text=$(said_of "$1")
	echo "$text"
	[[ $text != live* && $text == *'another program has changed the image'*'ublkctl del --force'* ]]
}
all_wait() { # NAME...
	local name
	for name; do waits "$name" || return; done
}

ok "devices on images start" start_daemon "$work/all.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
marked=$(mark same)
ok "an image that is open to be written is marked" test "$marked" != 00000000
for name in $all stored; do ok "$name: is filled" fill $name; done
if driver_has QUIESCE; then
	ok "upgraded" eval 'ublkctl upgrade && wait_for 60 settled'
	daemon_pid=$(server)
	ok "... they are live" wait_for 60 are_live same snapshot
	ok "... and locked" locked same
else
	skip "upgraded" "an older driver cannot"
fi
ok "it is killed" kill_daemon

# ---- while they wait ----

ok "QEMU is kept out" locked same
ok "... by the keeper" test -n "$(pids ublkd-keeper)"
ok "what a cache below an image keeps is free for its verb" ublkctl cache store /mnt/ram/store --force
cp /mnt/ram/back.qcow2 "$work/back.qcow2"
for name in $changed; do ok "$name: is changed by a program that asks for no lock" change $name; done
ok "what a snapshot has" qemu-img convert --image-opts -l s1 -O raw "$(open_to_all snapshot)" "$work/then.raw"

# ---- the next one ----

ok "the next one takes over what nobody has changed" start_again "$work/all.yaml" same
ok "... with all that was written" is_whole same
ok "the image over a cache is taken over" wait_for 60 are_live stored
# The verb has dropped the memory that waited.
ok "... with all that was flushed" has_flushed stored
# shellcheck disable=SC2086 # words
ok "all others are refused in words" wait_for 60 all_wait $changed
ok "... and locked still" locked write
reload() { kill -HUP "$(server)"; }
ok "one that is put back, and a reload" eval 'cat "$work/back.qcow2" >/mnt/ram/back.qcow2 && reload'
ok "... is taken over" wait_for 60 are_live back
ok "... with all that was written" is_whole back
changed=${changed% back}
ok "it is killed again" kill_daemon
ok "the next one takes over both" start_again "$work/all.yaml" same back
ok "... with all that was written" eval 'is_whole same && is_whole back'
# shellcheck disable=SC2086 # words
ok "... and refuses the others" wait_for 60 all_wait $changed

# ---- they are taken as they are ----

deleted() {
	local name
	for name in $changed; do delete "$name" 30 --force || return; done
}
ok "the others are given up" deleted
sound() { # NAME
	local result=0
	qemu-img check "/mnt/ram/$1.qcow2" || result=$?
	[ $result -eq 0 ] || [ $result -eq 3 ]
}
for name in ${changed/shorter/}; do ok "$name: QEMU has it at once, and finds no error" sound $name; done
ok "the snapshot is as it was" eval 'qemu-img convert -l s1 -O raw /mnt/ram/snapshot.qcow2 "$work/now.raw" && cmp "$work/then.raw" "$work/now.raw"'
changed=${changed/shorter/}
sed -i '/shorter/d' "$work/all.yaml"
ok "they are added again" reload
# shellcheck disable=SC2086 # words
ok "... and live" wait_for 60 are_live $changed
has() { dd if="$(blk "$1")" bs=1M skip="$2" count="$3" iflag=direct status=none | cmp - <(head -c $(($3 << 20)) < <(yes "$(printf '\356')" | tr -d '\n')); } # NAME AT MIB
for name in write old-write commit; do ok "$name: what QEMU wrote is there" has $name 20 2; done
ok "place: what QEMU wrote is there" has place 1 1
ok "resize: it has the new size" bytes_are resize $((64 << 20))
for name in $changed; do ok "$name: is filled" fill $name; done
ok "they end" end_server
for name in same back $changed; do ok "$name: qemu-img check finds no error" sound $name; done
ok "the mark stays" test "$(mark same)" = "$marked"
ok "no keeper is left" wait_for 10 no_keeper
finish
