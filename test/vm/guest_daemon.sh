#!/bin/bash
# In the guest: the daemon from the user's view: start, control socket, SIGHUP, SIGTERM, kill -9.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

config=$work/daemon.yaml
socket=/run/ublkd/control.sock

# configure DEVICE...: the configuration, one device per argument, in flow style.
configure() {
	printf 'daemon: {reactors: [0, 1], stop_timeout: 10s}\ndevices:\n' >"$config"
	printf -- '- {%s}\n' "$@" >>"$config"
}

state_is() { ublkctl list | grep -qE "^$1 +$2 "; }
gone() { ! ublkctl show "$1" >/dev/null 2>&1; }
logged() { grep -q -- "$1" "$work/ublkd.log"; }
refused() { ! "$@" >"$work/refused" 2>&1; }
reload() { kill -HUP "$daemon_pid"; }

# refusal TEXT COMMAND...: the command must fail and print TEXT.
refusal() {
	local text=$1
	shift
	refused "$@" && grep -qF -- "$text" "$work/refused" || { cat "$work/refused"; return 1; }
}

# --- start --------------------------------------------------------------------------------------

# The messages to the service manager.
export NOTIFY_SOCKET=$work/notify
if command -v socat >/dev/null; then
	socat -u "UNIX-RECV:$NOTIFY_SOCKET" "OPEN:$work/notified,creat,append" &
	wait_for 5 test -S "$NOTIFY_SOCKET"
else
	unset NOTIFY_SOCKET
fi
notified() { grep -qa -- "$1" "$work/notified"; }
# A datagram does not end with a newline.
notified_order() { tr -d '\n' <"$work/notified" | grep -qE "$1"; }

modprobe ublk_drv
configure 'name: scratch, id: 3, queues: 2, backend: {type: mem, size: 64MiB}' \
	'name: nothing, backend: {type: null, size: 1GiB}' \
	"name: missing, backend: {type: file, path: $work/none/disk}"
start_daemon "$config"

ok "doctor: nothing is wrong here" ublkctl doctor
doctor_features() { ublkctl doctor | grep -qE 'ublk features .*CMD_IOCTL_ENCODE'; }
ok "doctor names the driver's features" doctor_features
ok "configured devices are live" state_is scratch live
ok "the kernel chose an id" state_is nothing live
ok "a device that cannot start stays listed as failed" state_is missing failed
ok "why it failed is in the list" grep -q "$work/none/disk" <(ublkctl list)
if [ -n "${NOTIFY_SOCKET:-}" ]; then
	ok "READY=1 was sent" wait_for 5 notified READY=1
else
	skip "READY=1 was sent" "needs socat"
fi

private() { [ "$(stat -c %a $socket)" = 600 ] && [ "$(stat -c %a /run/ublkd)" = 755 ]; }
ok "the control socket is private" private
second() { refusal 'another ublkd' ublkd --config "$config" && grep -q "pid=$daemon_pid" "$work/refused"; }
ok "a second daemon on the same socket is refused" second

process() {
	local status=/proc/$daemon_pid/status limits=/proc/$daemon_pid/limits
	[ "$(awk '/VmLck/ { print $2 }' "$status")" -gt 0 ] &&
		[ "$(readlink "/proc/$daemon_pid/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ] &&
		awk '/Max open files/ { exit $4 != $5 }' "$limits" &&
		! grep level=warn "$work/ublkd.log"
}
ok "memory locked, files raised, a mount namespace of its own, no warnings" process

pinned() {
	local task cpus=
	for task in /proc/"$daemon_pid"/task/*; do
		if grep -q '^reactor-' "$task/comm"; then
			cpus+=" $(awk '/Cpus_allowed_list/ { print $2 }' "$task/status")"
			# Every signal blocked but those that cannot be, and SIGBUS: shared memory that its client cut short.
			grep -qi '^SigBlk:.*fffffffe7ffbfebf' "$task/status" || { grep SigBlk "$task/status"; return 1; }
		fi
	done
	[ "$cpus" = ' 0 1' ] || { echo "reactors on$cpus"; return 1; }
}
ok "reactors are pinned and take no signals" pinned

# --- the control socket -------------------------------------------------------------------------

ok "data written is read back" verify /dev/ublkb3 --bs=4k --iodepth=16 --size=8M
counted() {
	ublkctl --json stats scratch >"$work/json" &&
		[ "$(sed -nE 's/.*"done": ([0-9]+).*/\1/p' "$work/json" | head -2 | sort -n | head -1)" -gt 500 ]
}
ok "stats counted it" counted
shown() {
	ublkctl show scratch >"$work/shown" && grep -qE 'path +/dev/ublkb3' "$work/shown" &&
		grep -qE 'mem.size +67108864' "$work/shown" && [ "$(node scratch)" = /dev/ublkb3 ]
}
ok "show" shown

watched() {
	fio --name=load --filename=/dev/ublkb3 --ioengine=io_uring --direct=1 --rw=randrw --bs=4k \
		--iodepth=8 --time_based --runtime=4 --minimal >/dev/null &
	local fio=$!
	sleep 1.5
	ublkctl stats scratch --watch 1 --count 1 >"$work/watched"
	wait $fio
	grep -qE 'scratch +read +[1-9]' "$work/watched" || { cat "$work/watched"; return 1; }
}
ok "stats --watch shows what goes on" watched

add() { printf '%s\n' "$@" | ublkctl add -f -; }
added() {
	add 'name: extra' 'id: 9' 'backend: {type: mem, size: 8MiB}' && state_is extra live &&
		[ "$(blockdev --getsize64 /dev/ublkb9)" = 8388608 ]
}
ok "add: live when it returns" added
ok "add: errors have a position" refusal '<stdin>:2:17: type: "mme"' add 'name: x' 'backend: {type: mme}'
ok "add: a name taken" refusal 'name: "extra" is taken already (live)' add 'name: extra' 'backend: {type: null}'
ok "add: an id taken by us" refusal 'id: 9 is taken already by device "extra"' add 'name: x' 'id: 9' 'backend: {type: null}'
add_fails() { refusal "x: $work/none/other" add 'name: x' "backend: {type: file, path: $work/none/other}" && gone x; }
ok "add: a device that does not start is not kept" add_fails

holds() { find "/proc/$1/fd" -lname "$2" | grep -q .; }
in_use() {
	flock -o /dev/ublkb9 sleep 60 &
	local holder=$! code=0
	wait_for 10 holds $holder /dev/ublkb9 || return
	refusal "in use" ublkctl del extra && grep -qF "flock[$holder]" "$work/refused" &&
		state_is extra live || code=1
	ublkctl del extra --force && gone extra && [ ! -e /dev/ublkb9 ] || code=2
	kill $holder
	return $code
}
ok "del: refused by name when in use, unless forced" in_use
ok "del: a device that is not there" refusal 'there is no device "extra"' ublkctl del extra

leaks() {
	local before after
	before=$(ls /proc/"$daemon_pid"/fd | wc -l)
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		add 'name: again' 'queues: 2' 'backend: {type: mem, size: 8MiB}' && ublkctl del again || return
	done
	after=$(ls /proc/"$daemon_pid"/fd | wc -l)
	[ "$before" = "$after" ] || { echo "$before descriptors, then $after"; return 1; }
}
ok "ten devices added and deleted leave no descriptor" leaks

# --- SIGHUP -------------------------------------------------------------------------------------

add 'name: mine' 'backend: {type: mem, size: 8MiB}'
truncate -s 1M "$work/disk"
dd if=/dev/urandom of=/dev/ublkb3 bs=64k count=1 oflag=direct status=none
before=$(dd if=/dev/ublkb3 bs=64k count=1 iflag=direct status=none | md5sum)
mkdir -p "$work/none" && truncate -s 1M "$work/none/disk"
configure 'name: scratch, id: 3, queues: 2, backend: {type: mem, size: 64MiB}' \
	'name: new, id: 5, backend: {type: mem, size: 16MiB}' \
	"name: missing, id: 6, backend: {type: file, path: $work/none/disk}"
reload

ok "SIGHUP: a new device is added" wait_for 10 state_is new live
ok "SIGHUP: one that is in the file no more is removed" wait_for 10 gone nothing
ok "SIGHUP: one that had failed is tried again" wait_for 10 state_is missing live
kept() { [ "$(dd if=/dev/ublkb3 bs=64k count=1 iflag=direct status=none | md5sum)" = "$before" ]; }
ok "SIGHUP: an unchanged device is left alone, with its data" kept
ok "SIGHUP: what was added by hand is left alone" state_is mine live
if [ -n "${NOTIFY_SOCKET:-}" ]; then
	ok "RELOADING=1, then READY=1" wait_for 5 notified_order 'RELOADING=1MONOTONIC_USEC=[0-9]+READY=1'
else
	skip "RELOADING=1, then READY=1" "needs socat"
fi

configure 'name: scratch, id: 3, queues: 1, backend: {type: mem, size: 32MiB}' \
	'name: new, id: 5, backend: {type: mem, size: 16MiB}' \
	"name: missing, id: 6, backend: {type: file, path: $work/none/disk}"
exec 7</dev/ublkb5
sed -i 's/name: new,/name: new, depth: 64,/' "$config"
reload
resized() { [ "$(blockdev --getsize64 /dev/ublkb3)" = $((32 << 20)) ] && state_is scratch live; }
ok "SIGHUP: a changed device is started anew" wait_for 10 resized
depth_is() { ublkctl --json show new | grep -q "\"depth\": $1,"; }
stayed() { logged 'device is not stopped and stays as it is.*device=new' && depth_is 128; }
ok "SIGHUP: a changed device in use stays as it is" wait_for 10 stayed
exec 7<&-
reload
ok "SIGHUP: and changes with the next one" wait_for 10 depth_is 64

cp "$config" "$work/good.yaml"
echo 'devicez: 1' >>"$config"
lines=$(wc -l <"$work/ublkd.log")
reload
ok "SIGHUP: errors are logged with their position" wait_for 5 logged 'daemon.yaml:6:1: unknown key'
untouched() { ! tail -n +$((lines + 1)) "$work/ublkd.log" | grep -E 'is gone|is live' && state_is new live; }
ok "SIGHUP: with errors nothing changes" untouched
cp "$work/good.yaml" "$config"

# --- the end ------------------------------------------------------------------------------------

load_on() {
	fio --name=load --filename="$1" --ioengine=io_uring --direct=1 --rw=randrw --bs=4k \
		--iodepth=32 --time_based --runtime=30 --minimal >/dev/null 2>&1 &
	load=$!
	sleep 1
}

term_under_load() {
	local start=$SECONDS
	load_on /dev/ublkb3
	stop_daemon || { echo "exit code $?"; return 1; }
	wait $load
	[ $((SECONDS - start)) -lt 15 ] && ! ls /dev/ublkb* 2>/dev/null && [ ! -e $socket ]
}
ok "SIGTERM under load: exit code 0, no device and no socket left" term_under_load
if [ -n "${NOTIFY_SOCKET:-}" ]; then
	ok "STOPPING=1 was sent" wait_for 5 notified STOPPING=1
else
	skip "STOPPING=1 was sent" "needs socat"
fi
unset NOTIFY_SOCKET

configure 'name: scratch, id: 3, queues: 2, backend: {type: mem, size: 64MiB}'
twice() {
	local pid=$daemon_pid code=0
	# Both are there before it looks: the first stop cannot have ended.
	kill -STOP "$pid" && kill -TERM "$pid" && kill -INT "$pid" && kill -CONT "$pid"
	daemon_pid=
	wait "$pid" || code=$?
	[ $code = 1 ] && logged 'second signal'
}
start_daemon "$config"
ok "a second signal ends it at once with exit code 1" twice

# Another daemon, on another socket: the first one must not touch its devices.
printf 'daemon: {control: %s/other.sock}\ndevices: [{name: other, id: 8, backend: {type: mem, size: 64MiB}}]\n' \
	"$work" >"$work/other.yaml"
ublkd --config "$work/other.yaml" 2>"$work/other.log" &
other_pid=$!
other() { ublkctl --socket "$work/other.sock" "$@"; }
wait_for 20 other list >/dev/null 2>&1

# The kernel keeps the devices of a killed server, with their ids.
restart() {
	[ -e /dev/ublkc3 ] && start_daemon "$config" && state_is scratch live &&
		logged 'adopting a device.*id=3'
}
ok "what a killed daemon left is adopted at the next start" restart
others_live() { other list | grep -q 'other.*live' && dd if=/dev/ublkb8 of=/dev/null bs=4k count=1 status=none; }
ok "what other daemons have is left alone" others_live

# --- mount namespaces ---------------------------------------------------------------------------

mounts_of() { grep -c " - ext4 $2 " "/proc/$1/mountinfo"; }
dead() { ! grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null; }

mount --make-rshared /
mkdir -p /mnt/a /mnt/b
mounted_before() {
	mkfs.ext4 -q /dev/ublkb8 && mount /dev/ublkb8 /mnt/b || return
	stop_daemon && start_daemon "$config" || return
	[ "$(mounts_of self /dev/ublkb8)" = 1 ] || return
	[ "$(mounts_of "$daemon_pid" /dev/ublkb8)" = 0 ]
}
ok "a file system on a ublk device is not mounted in the daemon's namespace" mounted_before

mounted_later() {
	mkfs.ext4 -q /dev/ublkb3 && mount /dev/ublkb3 /mnt/a && echo data >/mnt/a/file || return
	[ "$(mounts_of "$daemon_pid" /dev/ublkb3)" = 1 ] || { echo "mounts do not arrive"; return 1; }
	umount /mnt/a
	[ "$(mounts_of "$daemon_pid" /dev/ublkb3)" = 0 ] || { echo "umounts do not arrive"; return 1; }
	ublkctl del scratch
}
ok "mounts and umounts of the host arrive: the device can be deleted after umount" mounted_later

# The deadlock: a server that dies with a file system on its own device.
killed() {
	kill -9 "$other_pid"
	wait_for 20 dead "$other_pid" || { cat "/proc/$other_pid/stack"; return 1; }
}
ok "kill -9 with a file system mounted on its device: it ends" killed
ublkd --config "$work/other.yaml" 2>"$work/other.log" &
other_pid=$!
ok "and it can be started again" wait_for 20 others_live
ok "the file system goes on" umount /mnt/b
other_ends() { kill "$other_pid" && wait "$other_pid"; }
ok "exit code 0" other_ends
finish
