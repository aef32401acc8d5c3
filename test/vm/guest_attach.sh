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

# ---- an NBD server ----

nbd() {
	qemu-nbd -t -f raw -x my/export -k "$work/nbd.sock" /mnt/ram/vm.img &
	nbd_pid=$!
	wait_for 60 test -S "$work/nbd.sock" && attach "nbd+unix:///my/export?socket=$work/nbd.sock" &&
		shown export '.backend == "nbd"' && same /mnt/ram/vm.img "$path" && ublkctl detach export
}
if command -v qemu-nbd >/dev/null; then
	ok "an export of an NBD server" nbd
	kill "$nbd_pid"
else
	skip "an export of an NBD server" "no qemu-nbd: ./dev check installs it"
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
umount_ram() { umount /mnt/ram; }
stop_daemon
ok "nothing uses the files any more" umount_ram
finish
