#!/bin/bash
# In the guest: ublkctl attach makes devices of a file, of a block device and of an NBD server's export, keeps
# them with --persist over a restart and a reload, and detach ends them.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 100 || exit 1
modprobe loop
snippets=$work/devices.d

cat >"$work/attach.yaml" <<END
daemon: {reactors: $reactors, devices_dir: $snippets}
devices: [{name: own, backend: {type: mem, size: 1MiB}}]
END
start_daemon "$work/attach.yaml"

# listed NAME...: the daemon has these devices, by the alphabet, and no others.
listed() {
	local names
	names=$(ublkctl --json list | jq -r 'map(.name) | sort | join(" ")')
	echo "there are: $names"
	[ "$names" = "$*" ]
}
shown() { ublkctl --json show "$1" | jq -e "$2"; }
# attach WORD...: sets $path to what is printed.
attach() {
	path=$(ublkctl attach --show "$@") && echo "$path" && [ -b "$path" ]
}
same() { cmp "$1" "$2"; }
ids() { ublkctl --json list | jq -c '[.[] | [.name, .id]] | sort'; }

# ---- a file ----

file() {
	head -c 4M /dev/urandom >/mnt/ram/vm.img
	attach /mnt/ram/vm.img && same /mnt/ram/vm.img "$path" && shown vm.img '.path == "'"$path"'"' &&
		verify "$path" --size=2M && sync "$path" && same /mnt/ram/vm.img "$path"
}
ok "a file" file
ok "... in use is not detached" said 'in use|open' bash -c "exec 9<'$path' && ! ublkctl detach vm.img"
ok "... and is still there" listed own vm.img
by_node() { ublkctl detach "$path" && listed own && [ ! -e "$path" ]; }
ok "... and is detached by its node" by_node

relative() {
	mkdir -p "/mnt/ram/a b" && truncate -s 1M "/mnt/ram/a b/disk \"1\"'.img"
	(cd "/mnt/ram/a b" && said '^/dev/ublkb[0-9]+ is disk--1--.img$' ublkctl attach "disk \"1\"'.img") &&
		shown 'disk--1--.img' '.options.path == "/mnt/ram/a b/disk \"1\"'"'"'.img"'
}
ok "a relative path with blanks and quotes" relative
ok "... detached by name" ublkctl detach 'disk--1--.img'

same_names() {
	mkdir -p /mnt/ram/1 /mnt/ram/2 && truncate -s 1M /mnt/ram/1/x /mnt/ram/2/x &&
		attach /mnt/ram/1/x && attach /mnt/ram/2/x && listed own x x-2 && ublkctl detach /dev/ublkd/x &&
		ublkctl detach x-2 && listed own
}
ok "two files of one name have names of their own" same_names

at_once() {
	local dir pids=()
	for dir in 1 2 3 4 5 6; do
		mkdir -p /mnt/ram/$dir && truncate -s 1M /mnt/ram/$dir/disk || return
		ublkctl attach /mnt/ram/$dir/disk &
		pids+=($!)
	done
	for dir in "${pids[@]}"; do wait "$dir" || return; done
	listed disk disk-2 disk-3 disk-4 disk-5 disk-6 own || return
	for dir in disk disk-2 disk-3 disk-4 disk-5 disk-6; do ublkctl detach $dir || return; done
}
ok "... also at once" at_once

read_only() {
	attach --read-only --name ro /mnt/ram/vm.img && [ "$(blockdev --getro "$path")" = 1 ] &&
		same /mnt/ram/vm.img "$path" && ! dd if=/dev/zero of="$path" bs=4k count=1 oflag=direct &&
		ublkctl detach ro
}
ok "--read-only" read_only
queues() {
	attach /mnt/ram/vm.img --queues "$(nproc)" --name q && shown q ".queues == $(nproc)" &&
		[ "$(ls "/sys/block/${path#/dev/}/mq" | wc -l)" = "$(nproc)" ] && ublkctl detach q
}
ok "--queues" queues
json() {
	ublkctl --json attach /mnt/ram/vm.img --name j >"$work/json" && cat "$work/json" &&
		jq -e '.name == "j" and .path == "/dev/ublkb\(.id)" and .snippet == null' "$work/json" && ublkctl detach j
}
ok "--json" json

# ---- a block device ----

block() {
	local loop
	loop=$(losetup -f --show /mnt/ram/vm.img) && attach "$loop" && shown "${loop#/dev/}" '.state == "live"' &&
		same "$loop" "$path" && ublkctl detach "${loop#/dev/}" && losetup -d "$loop"
}
ok "a block device" block

# ---- storage that ends within a block, and with larger ones ----

size_is() { [ "$(blockdev --getsize64 "$path")" = "$1" ]; }
left_out='the storage ends within a block of 512 bytes: its last 419 bytes are left out'
odd() {
	head -c 241059 /dev/urandom >/mnt/ram/odd.img
	said "^ublkctl: odd.img: $left_out" ublkctl attach /mnt/ram/odd.img && path=$(node odd.img) && size_is 240640 &&
		cmp -n 240640 /mnt/ram/odd.img "$path" && said "^odd.img: $left_out" ublkctl list && shown odd.img '.notes | length == 1' &&
		ublkctl detach odd.img
}
ok "a file that ends within a block: what is left out is told" odd
odd_added() {
	said "^ublkctl: odd: $left_out" ublkctl add -f - <<<'{name: odd, backend: {type: delay, all: 1us, backend: {type: file, path: /mnt/ram/odd.img}}}' &&
		ublkctl del odd
}
ok "... also by add, of what lies below" odd_added
odd_read_only() {
	attach --read-only /mnt/ram/odd.img && size_is 241152 && cmp -n 241059 /mnt/ram/odd.img "$path" &&
		[ -z "$(tail -c 93 "$path" | tr -d '\0')" ] && shown odd.img '.notes == null' && ublkctl detach odd.img
}
ok "... where it is only read all is there, and zeroes" odd_read_only
odd_image() { # its header says so, at byte 24
	qemu-img create -q -f qcow2 /mnt/ram/odd.qcow2 16M && qemu-io -c 'write -P 120 15M 1M' /mnt/ram/odd.qcow2 >/dev/null &&
		printf '\0\0\0\0\0\xff\xff\x9c' | dd of=/mnt/ram/odd.qcow2 bs=1 seek=24 conv=notrunc status=none &&
		said 'odd.qcow2: the storage ends within a block of 512 bytes: its last 412 bytes are left out' ublkctl attach /mnt/ram/odd.qcow2 &&
		path=$(node odd.qcow2) && size_is $((16777216 - 512)) && ublkctl detach odd.qcow2 &&
		attach --read-only /mnt/ram/odd.qcow2 && size_is 16777216 && [ "$(tail -c 1M "$path" | tr -d x | wc -c)" = 100 ] &&
		ublkctl detach odd.qcow2
}
if command -v qemu-io >/dev/null; then
	ok "an image whose disk ends within a block" odd_image
else
	skip "an image whose disk ends within a block" "no qemu-io: ./dev check installs it"
fi
large_blocks() {
	local loop
	loop=$(losetup -b 4096 -f --show /mnt/ram/vm.img) && attach "$loop" && shown "${loop#/dev/}" '.block_bytes == 4096' &&
		same "$loop" "$path" && ublkctl detach "${loop#/dev/}" && losetup -d "$loop"
}
ok "a block device with blocks of 4096 bytes" large_blocks

# ---- an NBD server ----

nbd() {
	qemu-nbd -t -f raw -x my/export -k "$work/nbd.sock" /mnt/ram/vm.img &
	nbd_pid=$!
	wait_for 60 test -S "$work/nbd.sock" && attach "nbd+unix:///my/export?socket=$work/nbd.sock" &&
		shown export '.backend == "nbd"' && same /mnt/ram/vm.img "$path" && ublkctl detach export
}
# What an export holds is not looked at; the user is told what it looks like.
hint() {
	qemu-img create -q -f qcow2 /mnt/ram/image.img 16M || return
	qemu-nbd -t -f raw -x hint -k "$work/hint.sock" /mnt/ram/image.img &
	nbd_pid=$!
	wait_for 60 test -S "$work/hint.sock" &&
		said 'hint\?socket.* looks like a qcow2 image, and its bytes are served as they are' ublkctl attach "nbd+unix:///hint?socket=$work/hint.sock" &&
		path=$(node hint) && cmp -n 65536 /mnt/ram/image.img "$path" && ublkctl detach hint
}
if command -v qemu-nbd >/dev/null; then
	ok "an export of an NBD server" nbd
	kill "$nbd_pid"
	ok "an export that begins as an image" hint
	kill "$nbd_pid"
else
	skip "an export of an NBD server" "no qemu-nbd: ./dev check installs it"
fi

# 1 MiB and 419 bytes, each an x.
odd_export() {
	nbdkit -f -U "$work/$1.sock" eval "${@:2}" get_size='echo 1048995' pread="head -c \$3 /dev/zero | tr '\\0' x" \
		can_write='exit 0' pwrite='cat >/dev/null' &
	odd_pid=$!
	wait_for 60 test -S "$work/$1.sock"
}
odd_nbd() {
	odd_export odd && said "^ublkctl: odd: $left_out" ublkctl attach --name odd "nbd+unix:///?socket=$work/odd.sock" && path=$(node odd) &&
		size_is 1048576 && ublkctl detach odd
}
odd_nbd_read_only() {
	odd_export odd-ro -r && attach --name odd "nbd+unix:///?socket=$work/odd-ro.sock" && size_is 1049088 &&
		[ "$(tr -d x <"$path" | wc -c)" = 93 ] && shown odd '.notes == null' && ublkctl detach odd
}
# The last bytes are in no block of the server.
odd_blocks() {
	odd_export odd-blocks block_size='echo 512 4096 1M' -r &&
		said '^ublkctl: odd: the export ends within a block of its server' ublkctl attach --name odd "nbd+unix:///?socket=$work/odd-blocks.sock" &&
		path=$(node odd) && size_is 1048576 && [ "$(tr -d x <"$path" | wc -c)" = 0 ] && ublkctl detach odd
}
if command -v nbdkit >/dev/null; then
	ok "an export that ends within a block" odd_nbd
	kill "$odd_pid"
	ok "... that is read-only" odd_nbd_read_only
	kill "$odd_pid"
	ok "... within a block of its server" odd_blocks
	kill "$odd_pid"
else
	skip "an export that ends within a block" "no nbdkit: ./dev check installs it"
fi

# ---- what is refused ----

# refuses WORDS WORD...: attach fails, says so, and leaves nothing behind.
refuses() { answers "$1" ublkctl attach "${@:2}"; [ $? = 1 ] && listed own && [ -z "$(ls -A "$snippets" 2>/dev/null)" ]; }
ok "no such file" refuses '^ublkctl: /mnt/ram/none: No such file' /mnt/ram/none
ok "an unknown scheme" refuses 'unknown scheme "nbd\+unx" \(did you mean "nbd\+unix"\?\)' nbd+unx:///x
ok "a name that is taken" refuses 'name: "own" is taken already' /mnt/ram/vm.img --name own
ok "a name that is taken, with --persist" refuses 'name: "own" is taken already' /mnt/ram/vm.img --name own --persist
ok "no server" refuses 'nothing: .*' "nbd+unix:///nothing?socket=$work/nothing"
ok "more queues than CPUs" refuses 'queues: 999 is more than one per CPU' /mnt/ram/vm.img --queues 999
no_device() { answers 'no device none' ublkctl detach none; [ $? = 1 ]; }
ok "detach of what is not there" no_device

# ---- kept ----

persist() {
	attach /mnt/ram/vm.img --name kept --persist && [ "$(stat -c %a "$snippets/kept.yaml")" = 644 ] &&
		[ "$(ls -A "$snippets")" = kept.yaml ] && cat "$snippets/kept.yaml" && shown kept '.from_file == false'
}
ok "--persist" persist
# reloaded JQ: the daemon has read its files again, and kept is so.
reloads=0
reloaded() {
	reloads=$((reloads + 1))
	kill -HUP "$daemon_pid" && wait_for 20 read_again
}
read_again() { [ "$(grep -c 'reading the configuration again' "$work/ublkd.log")" = $reloads ]; }
nothing_changes() {
	local before
	before=$(ids)
	exec 9<"$path"
	reloaded && wait_for 20 shown kept '.from_file' && reloaded && [ "$(ids)" = "$before" ] &&
		shown kept '.state == "live"' && listed kept own && same /mnt/ram/vm.img "$path"
	local code=$?
	exec 9<&-
	! grep -E 'kept.*(started anew|no longer)' "$work/ublkd.log" && return $code
}
ok "... a reload changes nothing" nothing_changes
others_stay() {
	attach "/mnt/ram/1/x" && reloaded && listed kept own x && ublkctl detach x
}
ok "... and leaves what was attached without it" others_stay
restart() {
	stop_daemon && start_daemon "$work/attach.yaml" && reloads=0 && listed kept own && shown kept '.from_file' &&
		path=$(node kept) && same /mnt/ram/vm.img "$path"
}
ok "... a restart of the daemon brings it back" restart
crash() {
	kill -9 "$daemon_pid" && { wait "$daemon_pid"; true; } 2>/dev/null
	start_daemon "$work/attach.yaml" && reloads=0 && wait_for 20 shown kept '.state == "live"' && listed kept own &&
		same /mnt/ram/vm.img "$path"
}
ok "... as does one after a crash" crash
in_use() {
	answers 'in use|open' bash -c "exec 9<'$path' && ublkctl detach kept"
	[ $? = 1 ] && listed kept own && [ -e "$snippets/kept.yaml" ]
}
ok "... detached while in use it stays, and stays kept" in_use
detached() {
	ublkctl detach kept && listed own && [ -z "$(ls -A "$snippets")" ] && reloaded && listed own && stop_daemon &&
		start_daemon "$work/attach.yaml" && reloads=0 && listed own
}
ok "... detached it does not come back" detached
forced() {
	attach /mnt/ram/vm.img --name kept --persist && exec 9<"$path" && ublkctl detach --force kept && exec 9<&- &&
		listed own && [ -z "$(ls -A "$snippets")" ]
}
ok "... --force ends it while in use" forced
stopped() {
	attach /mnt/ram/vm.img --name kept --persist && ublkctl del kept && [ -e "$snippets/kept.yaml" ] &&
		ublkctl detach kept && [ ! -e "$snippets/kept.yaml" ] && listed own
}
ok "... one that is deleted already is detached" stopped
still_configured() { said 'own is still in the configuration' ublkctl detach own && listed; }
ok "detach says when the configuration has the device" still_configured

# ---- what comes back ----

# The daemon dies, the file is away when the next one comes: its users wait, until a reload finds it.
comes_back() {
	attach /mnt/ram/1/x --name away && kill -9 "$daemon_pid" && { wait "$daemon_pid"; true; } 2>/dev/null
	mv /mnt/ram/1/x /mnt/ram/1/y && start_daemon "$work/attach.yaml" && reloads=0 && shown away '.state == "failed"' &&
		mv /mnt/ram/1/y /mnt/ram/1/x && reloaded && wait_for 20 shown away '.state == "live"' && same /mnt/ram/1/x "$path" &&
		ublkctl detach away
}
ok "a reload adopts a device whose file is there again" comes_back

# ---- the folder ----

added_by_hand() {
	printf -- '- {name: m1, backend: {type: mem, size: 1MiB}}\n- {name: m2, backend: {type: mem, size: 1MiB}}\n' \
		>"$snippets/two.yaml" && reloaded && wait_for 20 listed m1 m2 own && rm "$snippets/two.yaml" && reloaded &&
		wait_for 20 listed own
}
ok "a snippet that somebody writes, and removes" added_by_hand
broken() {
	printf 'name: own\nbackend: {type: mme}\n' >"$snippets/broken.yaml" && reloaded &&
		wait_for 20 grep -q "$snippets/broken.yaml:2:17: type: " "$work/ublkd.log" &&
		grep "$snippets/broken.yaml:1:7: name: .*own.* is taken already ($work/attach.yaml:2:18)" "$work/ublkd.log" &&
		listed own && rm "$snippets/broken.yaml"
}
ok "one with errors changes nothing" broken
no_folder() {
	sed -i "s,devices_dir: .*},},; s/, }/}/" "$work/attach.yaml" && head -1 "$work/attach.yaml" && reloaded &&
		wait_for 20 refuses 'set devices_dir in the section daemon of .*attach.yaml' /mnt/ram/vm.img --persist
}
ok "without a folder --persist says the cure" no_folder
stop_daemon

# ---- a server that says nothing ----

# Its time is up when ours is: its reason is told.
ip link set lo up
printf 'daemon: {reactors: %s, open_timeout: 1s}\n' "$reactors" >"$work/silent.yaml"
python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", 5555)); time.sleep(600)' &
silent_pid=$!
accepts() { (exec 9<>/dev/tcp/127.0.0.1/5555) 2>/dev/null; }
wait_for 20 accepts
AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b start_daemon "$work/silent.yaml"
silent() {
	answers "$1" ublkctl add -f - <<<"{name: s, backend: $2}"
	[ $? = 1 ] && [ "$(ublkctl --json list)" = "[]" ]
}
ok "a silent NBD server" silent "time is up .1000 ms. while waiting for the server's greeting" '{type: nbd, uri: "nbd://127.0.0.1:5555/x", timeout: 1s}'
ok "a silent NVMe/TCP target" silent "time is up.*ICReq" '{type: nvme-tcp, uri: "nvme+tcp://127.0.0.1:5555/nqn.2024-01.org.example:x", timeout: 1s}'
# Its requests go on, as on_disconnect says: how the last one ended is told.
silent_store() {
	said "asking its server takes longer than 1 s: http://127.0.0.1:5555: Operation timed out after 1[0-9]* milliseconds" \
		ublkctl add -f - <<<'{name: s, backend: {type: s3-disk, bucket: b, prefix: p, endpoint: "http://127.0.0.1:5555", timeout: 1s}}'
	local code=$?
	ublkctl del s
	return $code
}
ok "a silent store" silent_store
ok "a stripe over a silent server" silent "backends/1: .*time is up .1000 ms. while waiting for the server's greeting" \
	'{type: stripe, backends: [{type: mem, size: 1MiB}, {type: nbd, uri: "nbd://127.0.0.1:5555/x", timeout: 1s}]}'
late() {
	said "waiting for the server's greeting" ublkctl add -f - <<<'{name: s, backend: {type: nbd, uri: "nbd://127.0.0.1:5555/x", timeout: 60s}}'
	ublkctl del s
}
ok "one that has more time: what it waits for" late
kill "$silent_pid"
stop_daemon
umount_ram() { umount /mnt/ram; }
ok "nothing uses the files any more" umount_ram
finish
