#!/bin/bash
# In the guest: a device is stopped politely while its storage takes no writes. It stays, the reason is said, and each stop
# after that is refused too, whoever asks, until a FLUSH of its user has succeeded; by force it is gone, and what that has lost is
# said. A reload does not start another tree over bytes that a cache has alone, under whatever name.
# Runs on: uml
# By turns: 7.2
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

ram_disk 300 || exit 1

trigger=/mnt/ram/bad
failing() { echo "{type: error, errno: EIO, op: [read, write, flush], trigger: $trigger, backend: {type: file, path: /mnt/ram/$1, size: ${2:-32MiB}, create: true}}"; }
image="{type: qcow2, create: true, size: 16MiB, data: $(failing image)}"
cached="{type: cache, mode: writeback, dirty_time: 600s, block: 64KiB, store: {type: file, path: /mnt/ram/store, size: 16MiB, create: true}, backend: $(failing origin)}"
device() { printf 'name: %s\nbackend: %s\n' "$1" "$2" >"$work/$1.yaml"; } # NAME BACKEND
device image "$image"
device cached "$cached"
device plain "$(failing plain)"
device alone '{type: file, path: /mnt/ram/origin}'

fill() { # NAME LETTER MIB [FLAG]: the first of them
	head -c $(($3 << 20)) < <(yes "$2" | tr -d '\n') | dd of="$(blk "$1")" bs=1M iflag=fullblock oflag=direct "${@:4}" conv=notrunc status=none
}
has() { head -c $(($3 << 20)) < <(yes "$2" | tr -d '\n') | cmp - <(dd if="$(blk "$1")" bs=1M count="$3" iflag=direct status=none); }
add() { ublkctl add -f "$work/$1.yaml" && are_live "$1"; }
# says CODE WORDS COMMAND...: its exit code, and words in what it says.
says() {
	local code=0
	"${@:3}" >"$work/said" 2>&1 || code=$?
	cat "$work/said"
	[ $code = "$1" ] && grep -q "$2" "$work/said"
}
# goes_bad NAME: its storage takes nothing from now on. It looks for the trigger now and then; each block is asked for once, as
# a cache keeps it. goes_well NAME: it does again.
nr=0
reads() { # an image has only the first of them, and a cache has those already
	local first=1024
	[ "$1" != image ] || first=0
	nr=$((nr + 1)) && dd if="$(blk "$1")" of=/dev/null bs=4k count=1 skip=$((first + nr)) iflag=direct status=none 2>/dev/null
}
reads_not() { ! reads "$1"; }
goes_bad() { touch $trigger && wait_for 10 reads_not "$1"; }
goes_well() { rm $trigger && wait_for 10 reads "$1"; }
flushed() { dd if=/dev/zero of="$(blk "$1")" bs=4k count=1 oflag=direct conv=notrunc,fsync status=none; }

echo 'devices: []' >"$work/none.yaml"
ok "a daemon starts" start_daemon "$work/none.yaml"

# ---- what is written and not flushed ----

ok "image: it is added" add image
ok "image: A, not flushed" fill image A 4
goes_bad image
ok "image: a stop is refused, and says why" says 1 'a FLUSH failed.*--force' ublkctl del image
ok "image: it is live" are_live image
ok "image: its user hears of it, too" says 1 'Input/output error' flushed image
goes_well image
ok "image: A is written again" fill image A 4 conv=fsync
ok "image: it is stopped" ublkctl del image
ok "image: it is well" qemu-img check -q /mnt/ram/image
ok "image: it is added again" add image
ok "image: ... and has A" has image A 4
ok "image: B, not flushed, in new clusters" fill image B 8
goes_bad image
ok "image: by force it is gone, with a warning" says 0 'warning: image: .* its storage has not all' ublkctl del image --force
ok "image: ... it is" gone image
rm $trigger

ok "plain: what was only read is stopped at once" add plain
goes_bad plain
ok "plain: ... with a storage that takes nothing" ublkctl del plain
rm $trigger
ok "plain: it is added again" add plain
ok "plain: A, flushed by its user" fill plain A 1 conv=fsync
goes_bad plain
ok "plain: it is stopped at once, too" ublkctl del plain
rm $trigger
ok "plain: and added again" add plain
ok "plain: A, not flushed" fill plain A 1
goes_bad plain
ok "plain: a stop is refused" says 1 'a FLUSH failed' ublkctl del plain
goes_well plain
refused() { says 1 'a FLUSH failed.*fsync until that succeeds.*--force' ublkctl del plain; }
ok "plain: nobody has flushed since: the next stop is refused, too" refused
ok "plain: ... and the one after it" refused
ok "plain: ... it is live" are_live plain
ok "plain: its user hears of it" says 1 'Input/output error' flushed plain
ok "plain: and has not flushed with success: a stop is refused" refused
ok "plain: B, flushed by its user" fill plain B 1 conv=fsync
ok "plain: it is stopped" ublkctl del plain
ok "plain: it has B" cmp -n $((1 << 20)) <(yes B | tr -d '\n') /mnt/ram/plain
ok "plain: it is added once more" add plain
ok "plain: A, not flushed" fill plain A 1
goes_bad plain
ok "plain: a stop is refused" says 1 'a FLUSH failed' ublkctl del plain
goes_well plain
ok "plain: by force it is gone, with the warning" says 0 'warning: plain: .*a FLUSH failed' ublkctl del plain --force

# ---- what a cache has alone ----

dirty() { ublkctl --json show cached | jq '[.. | objects | select(has("hit_ratio"))][0].dirty_bytes'; }
ok "cached: it is added" add cached
ok "cached: A, flushed" fill cached A 4 conv=fsync
goes_bad cached
ok "cached: a stop is refused, and says why" says 1 'dirty blocks of the cache.*--force' ublkctl del cached
ok "cached: it is live" are_live cached
ok "cached: a FLUSH of its origin has failed, and its user hears of that" says 1 'Input/output error' flushed cached
ok "cached: ... and takes writes as before" fill cached B 4 conv=fsync
ok "cached: ... its store has them" test "$(dirty)" = $((4 << 20))
ok "cached: by force it is gone, and says where they are" says 0 'warning: .*4194304 bytes are in its .store. alone' ublkctl del cached --force
rm $trigger
ok "cached: it is added again" add cached
ok "cached: ... and has B" has cached B 4
ok "cached: C, flushed" fill cached C 4 conv=fsync
ok "cached: it is stopped" ublkctl del cached
ok "cached: the origin has C" cmp -n $((4 << 20)) <(yes C | tr -d '\n') /mnt/ram/origin
stop_daemon

# ---- a reload ----

configure() { # FILE: what the device vm is
	{
		echo "devices:"
		sed "1s/^name: .*/  - name: vm/; 2s/^/    /" "$work/$1.yaml"
	} >"$work/vm.yaml"
}
logged() { grep -q "$1" "$work/ublkd.log"; }
configure cached
ok "reload: a device with a cache starts" start_daemon "$work/vm.yaml"
ok "reload: ... and is live" wait_for 10 are_live vm
ok "reload: A, flushed" fill vm A 2 conv=fsync
goes_bad vm
configure alone
kill -HUP "$daemon_pid"
ok "reload: without the cache, while the origin fails: it is refused in words" \
	wait_for 10 logged 'device is not stopped and stays as it is.*dirty blocks of the cache'
ok "reload: the device is live" are_live vm
ok "reload: ... and has A" has vm A 2
goes_well vm
plain_now() { ublkctl --json show vm | jq -e '.backend == "file"' && are_live vm; }
reload() { kill -HUP "$daemon_pid" && wait_for 10 refused_times "$1"; }
refused_times() { [ "$(grep -c 'device is not stopped and stays as it is' "$work/ublkd.log")" -ge "$1" ]; }
# A FLUSH of the origin has failed, which the user has not heard of.
ok "reload: when the origin is well it is refused for the FLUSH that failed" reload 2
ok "reload: ... and once more" reload 3
ok "reload: ... and del is refused for it" says 1 'a FLUSH failed.*fsync until that succeeds' ublkctl del vm
ok "reload: the device is as it was" eval '! plain_now && are_live vm && has vm A 2'
ok "reload: its user hears of it" says 1 'Input/output error' flushed vm
ok "reload: A again, flushed" fill vm A 2 conv=fsync
again() { kill -HUP "$daemon_pid" && plain_now; }
ok "reload: then it is done" wait_for 20 again
ok "reload: ... and the origin has A" has vm A 2
stop_daemon

# ---- a reload that brings another name ----

# The origin is an export, which nothing locks. URI again: by another way to the same socket.
mkdir /mnt/ram/server /mnt/ram/server/ctl
truncate -s 32M /mnt/ram/server/disk
ln -s server /mnt/ram/link
python3 "$here/forgetful_server.py" /mnt/ram/server/socket /mnt/ram/server/disk /mnt/ram/server/ctl &
server_pid=$!
wait_for 10 test -S /mnt/ram/server/socket
nbd() { echo "{type: nbd, uri: \"nbd+unix:///?socket=/mnt/ram/$1/socket\"}"; }
behind="{type: error, errno: EIO, op: [read, write, flush], trigger: $trigger, backend: $(nbd server)}"
written_back="{type: cache, mode: writeback, dirty_time: 600s, block: 64KiB, store: {type: file, path: /mnt/ram/store_nbd, size: 16MiB, create: true}, backend: $behind}"
devices() { { echo devices: && printf -- '  - {%s}\n' "$@"; } >"$work/vm.yaml"; } # DEVICE...
reload_to() { # DEVICE...
	devices "$@"
	kill -HUP "$daemon_pid"
}
refused_for() { logged "device did not start.*device=$1 error=.*its storage is also that of device .*vm.*$2"; }
devices "name: vm, backend: $written_back"
ok "name: a device with a cache starts" start_daemon "$work/vm.yaml"
ok "name: ... and is live" wait_for 10 are_live vm
ok "name: A, flushed" fill vm A 2 conv=fsync
goes_bad vm
reload_to "name: other, backend: $(nbd link)"
ok "name: another name over the stale origin is refused" wait_for 10 refused_for other 'was to be stopped and is still there.*ublkctl del vm'
ok "name: ... the device is live" are_live vm
ok "name: ... and has A" has vm A 2
device added "$(nbd link)"
ok "name: add refuses it, too" says 1 'also that of device .*vm' ublkctl add -f "$work/added.yaml"
ok "name: ... and attach" says 1 'also that of device .*vm' ublkctl attach "nbd+unix:///?socket=/mnt/ram/link/socket"
goes_well vm
ok "name: its user hears of it" says 1 'Input/output error' flushed vm
ok "name: A again, flushed" fill vm A 2 conv=fsync
goes_over() { kill -HUP "$daemon_pid" && are_live other; }
ok "name: then the other one starts" wait_for 20 goes_over
ok "name: ... and has A" has other A 2
ok "name: ... the first is gone" gone vm
ok "name: B, flushed" fill other B 2 conv=fsync

# Without anything above it, too: whoever renames a device that is mounted wants one.
exec {held}<"$(blk other)"
reload_to "name: vm, backend: $(nbd server)"
still_there() { logged 'device did not start.*device=vm error=.*device .*other.*was to be stopped and is still there'; }
ok "name: in use, and renamed: both are not there at a time" wait_for 10 still_there
exec {held}<&-
goes_back() { kill -HUP "$daemon_pid" && are_live vm; }
ok "name: ... when it is free the new one is" wait_for 20 goes_back
ok "name: ... and has B" has vm B 2

# What two hosts may do two devices may.
reload_to "name: vm, backend: $(nbd server)" "name: second, backend: $(nbd link)"
ok "name: two that only pass bytes on are both there" wait_for 10 are_live vm second
stop_daemon
kill $server_pid

finish
