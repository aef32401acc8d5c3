#!/bin/bash
# In the guest: the daemon's state files under accidents and under attacks of a local user (nobody,
# 65534): state files with impossible names, unusable state files, files of another user in the place
# of the lock, the socket, the state or the flight recorders; no space for state; two daemons that
# request the same id.
# Runs on: uml
# With --all: 7.2 asan
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
# refused WORDS COMMAND...: it fails, and says so.
refused() {
	local code=0
	answers "$@" || code=$?
	[ $code = 1 ]
}
logged() { grep -E "$1" "$work/ublkd.log"; }
crash() {
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	daemon_pid=
}
# ctl ARGUMENT...: asks the daemon of $control.
control=/run/ublkd/control.sock
ctl() { ublkctl --socket "$control" "$@"; }
add() { ctl add -f "$1"; }
settled() { ctl list >/dev/null 2>&1 || ! kill -0 "$daemon_pid" 2>/dev/null; }
has_ended() { ! kill -0 "$daemon_pid" 2>/dev/null; }
# It does not start: exit code 1, with these words, and no device is there.
does_not_start() {
	local code=0
	start_daemon "$2" && wait_for 10 has_ended || return
	wait "$daemon_pid" || code=$?
	daemon_pid=
	[ $code = 1 ] && logged "$1" && ! find /dev -name 'ublkc*' | grep .
}
alive() { ctl list | grep -qE "^$1 +live"; }

# ---- names ----

# checks NAME: an empty file, or what is wrong with a device of that name.
checks() {
	printf 'devices: [{name: %s, backend: {type: mem, size: 1MiB}}]\n' "$1" >"$work/name.yaml"
	ublkd --config "$work/name.yaml" --check-config
}
no_such_names() {
	local name
	for name in .hid . .. .json ...; do
		refused "name: \"${name//./[.]}\" begins with a dot" checks "$name" || return
		refused "begins with a dot" add "$work/name.yaml" || return
	done
	for name in a/b /a '"a\nb"' '"a\0b"' '"a\x7f"' a:b "$(printf 'n%.0s' {1..32})"; do
		refused 'name: |a NUL character' checks "$name" || return
		refused 'name: |a NUL character' add "$work/name.yaml" || return
	done
}
odd_names() {
	local name
	for name in a.json a.json.new keeper.sock a. - _ 0 "$(printf 'n%.0s' {1..31})"; do
		checks "'$name'" && add "$work/name.yaml" && alive "$name" || return
	done
	[ "$(find $control.state -name '*.json' | wc -l)" = 9 ] || return
	crash
	start_daemon "$work/one.yaml" && [ "$(ctl list | grep -c ' live ')" = 9 ] || return
	for name in a.json a.json.new keeper.sock a. - _ 0 "$(printf 'n%.0s' {1..31})"; do
		ctl del -- "$name" || return
	done
}

cat >"$work/one.yaml" <<END
daemon: {reactors: $reactors}
devices: [{name: hid, id: 1, backend: {type: mem, size: 8MiB}}]
END
cat >"$work/none.yaml" <<END
daemon: {reactors: $reactors}
END
start_daemon "$work/one.yaml"
ok "names that begin with a dot, or that no file can have, are refused" no_such_names
ok "names that look like the folder's own files are none" odd_names

# ---- a note that is there, and cannot be used ----

notes=$control.state
content() { dd if=/dev/ublkb1 bs=64k count=16 iflag=direct status=none | md5sum; }
fill() {
	dd if=/dev/urandom of=/dev/ublkb1 bs=64k count=16 oflag=direct status=none && content >"$work/content"
}
same_content() { content | cmp - "$work/content"; }
reader() { dd if=/dev/ublkb1 of="$work/read" bs=4k count=1 iflag=direct status=none & reader_pid=$!; }
reader_waits() { kill -0 $reader_pid && [ ! -s "$work/read" ]; }
reader_ends() {
	wait_for 10 test -s "$work/read" && wait $reader_pid && cmp -n 4096 "$work/read" /dev/ublkb1
}
# left_alone WORDS: a daemon that knows nothing of the device says so; its users wait, its memory is kept.
left_alone() {
	start_daemon "$work/none.yaml" && logged "$1" && logged 'no note names is left alone.*id=1' &&
		logged 'memory in the fd store stays' && reader_waits && [ -n "$(pids ublkd-keeper)" ] && [ -e /dev/ublkc1 ]
}
back_again() {
	crash
	"$@" && start_daemon "$work/one.yaml" && alive hid && reader_ends && same_content
}
hide() { mv $notes/hid.json "$notes/$1"; }
unhide() { mv "$notes/$1" $notes/hid.json; }
# After a failure: a new device, lest the next check waits for the lost one for ever.
begin_anew() {
	[ -z "$daemon_pid" ] || crash
	rm -f "$notes"/*hid* "$notes"/nnn* "$notes/link"
	start_daemon "$work/none.yaml" && ctl gc --remove 1 && stop_daemon && start_daemon "$work/one.yaml"
	return 1
}
# hidden NAME: the note gets a name that no device can have, as earlier versions could make it.
hidden() {
	fill && crash && hide "$1" || return
	rm -f "$work/read"
	reader
	{ left_alone "$2" && back_again unhide "$1"; } || begin_anew
}
ok "a note .NAME.json is not passed over: users wait, memory stays" \
	hidden .hid.json 'cannot be used.*file="?\.hid\.json"? reason="begins with a dot'
long=$(printf 'n%.0s' {1..40}).json
ok "nor one whose name is too long" hidden "$long" 'cannot be used.*reason="no device can have so long a name'
# altered COMMAND...: the note is changed by it, and changed back by $mend.
altered() {
	local words=$1
	shift
	fill && crash && "$@" || return
	rm -f "$work/read"
	reader
	# shellcheck disable=SC2086 # words
	{ left_alone "$words" && back_again $mend; } || begin_anew
}
mend="chmod 600 $notes/hid.json"
ok "a note that others may write is not believed" altered 'reason="others may write to it"' chmod 666 $notes/hid.json
mend="chown 0 $notes/hid.json"
ok "nor is another user's" altered 'reason="it belongs to another user"' chown 65534 $notes/hid.json
link_note() { ln -f $notes/hid.json $notes/link; }
mend="rm $notes/link"
ok "nor is one with two names" altered 'reason="it has more than one name' link_note
# Without any note the memory in the fd store may be the device's all the same.
gone_note() { mv $notes/hid.json "$work/note"; }
bring_note() { mv "$work/note" $notes/hid.json; }
mend=bring_note
ok "nor is memory dropped when the note is gone" altered 'no note names' gone_note
# Its name is not to be had: the memory would be replaced by another's.
no_second_one() {
	fill && crash && gone_note || return
	rm -f "$work/read"
	reader
	sed 's/id: 1, //' "$work/one.yaml" >"$work/other_id.yaml"
	start_daemon "$work/other_id.yaml" && said '^hid +failed' ctl list &&
		logged 'another device of this name is still in the fd store' &&
		reader_waits && back_again bring_note || begin_anew
}
ok "nor replaced by that of a new device of the same name" no_second_one
given_up() {
	crash && gone_note && start_daemon "$work/none.yaml" || return
	# A device that was made in the last ten seconds might be one that is starting.
	wait_for 20 ctl gc --remove 1 && stop_daemon || return
	start_daemon "$work/none.yaml" && logged 'belongs to no device and is dropped' && wait_for 10 no_keeper
	stop_daemon
	rm -f "$work/note"
}
ok "ublkctl gc gives the device up, and the next start its memory" given_up

start_daemon "$work/one.yaml"
if driver_has QUIESCE; then
	upgrade_refused() {
		local before=$daemon_pid
		"$@" || return
		refused 'does not take over: the notes of the devices in .* cannot be used' ctl upgrade || return
		[ "$(server)" = "$before" ] && alive hid && same_content
	}
	ok "content" fill
	ok "upgrade is refused when the note has a name that no device can have" upgrade_refused hide .hid.json
	ok "and when it is gone" upgrade_refused rm $notes/.hid.json
	ok "a resize writes it again" ctl resize hid 16MiB
	ok "with a note the upgrade goes on" eval 'answers "1 device" ctl upgrade && wait_for 10 settled && same_content'
	daemon_pid=$(server)
	end_server
else
	skip "upgrade is refused when a note is not found" "the driver is older than Linux 6.16"
	stop_daemon
fi

# ---- another local user, in a folder that everybody may write ----

open=/mnt/open
mkdir -p $open
chmod 1777 $open
sysctl -qw fs.protected_hardlinks=0 fs.protected_regular=0 fs.protected_fifos=0 fs.protected_symlinks=0
control=$open/c.sock
echo precious >/mnt/precious
chmod 600 /mnt/precious
cat >"$work/open.yaml" <<END
daemon: {reactors: $reactors, control: $control}
devices: [{name: disk, id: 1, backend: {type: file, path: /mnt/secret, size: 1MiB, create: true}}]
END
is_precious() { [ "$(cat /mnt/precious)" = precious ]; }
clean() { rm -rf $open/c.sock* $open/flight-*; }
# planted WORDS COMMAND...: what nobody has made keeps the daemon from starting, and is not written to.
planted() {
	local words=$1
	shift
	nobody "$@" && does_not_start "$words" "$work/open.yaml" && is_precious
	set -- $?
	clean
	return "$1"
}
in_order() {
	start_daemon "$work/open.yaml" && alive disk && crash && start_daemon "$work/open.yaml" && alive disk &&
		logged 'adopting a device.*disk' && [ "$(stat -c %a%u $control $control.lock $control.state | xargs)" = "6000 6000 7000" ] &&
		[ "$(stat -c %a%u $control.state/disk.json)" = 6000 ]
	set -- $?
	stop_daemon
	return "$1"
}
ok "in a folder like /tmp it serves, and only root can read what it keeps" in_order
clean
ok "a state folder of another user is refused" planted 'cannot use the state folder.*belongs to user 65534' mkdir $control.state
ok "a symlink to one too" planted 'cannot use the state folder.*is a symlink' ln -s /run $control.state
ok "and one that others may write" eval 'mkdir -m 777 $control.state && planted "others may write in" true'
ok "a lock of another user is refused, not waited for" \
	planted "the lock is not ublkd's own.*another user" touch $control.lock
ok "a symlink in its place is not written through" planted 'cannot open the lock.*symlink' ln -s /mnt/precious $control.lock
ok "nor is a hard link" planted 'the lock is not.*hard links' ln /mnt/precious $control.lock
ok "nor a pipe waited for" planted "the lock is not ublkd's own.*no regular file" mkfifo $control.lock
cat >"$work/listen.py" <<'END'
import socket, sys, time
s = socket.socket(socket.AF_UNIX, int(sys.argv[2]))
s.bind(sys.argv[1])
s.listen(8)
print("listening", flush=True)
c, _ = s.accept()
print(c.recv(4096)[:64], flush=True)
time.sleep(60)
END
chmod 755 "$work" && chmod 644 "$work/listen.py"
# impostor PATH TYPE: a process of nobody's that listens there.
impostor() {
	rm -f "$work/impostor" # what the one before said
	nobody python3 "$work/listen.py" "$1" "$2" >"$work/impostor" 2>&1 &
	impostor_pid=$!
	wait_for 20 grep -q listening "$work/impostor"
}
end_impostor() { kill $impostor_pid && { wait $impostor_pid || :; } 2>/dev/null; }
asks_no_impostor() {
	impostor $control 1 && refused 'user other than root: no request was sent' ctl list &&
		refused 'user other than root: no request was sent' add "$work/one.yaml" && ! grep "b'[^']" "$work/impostor"
}
ok "ublkctl tells nothing to whoever else serves the socket" asks_no_impostor
ok "and its socket is not replaced" planted 'cannot make the control socket.*a socket of another user' true
end_impostor
keeper_of_nobody() {
	mkdir -m 700 $control.state && chown 65534 $control.state && impostor $control.state/keeper.sock 5 &&
		chown 0 $control.state || return
	sed 's/type: file.*/type: mem, size: 1MiB}}]/' "$work/open.yaml" >"$work/open_mem.yaml"
	start_daemon "$work/open_mem.yaml" && alive disk && logged "not in the fd store.*EPERM.*not ublkd's own" &&
		! grep "b'[^']" "$work/impostor"
	set -- $?
	stop_daemon
	end_impostor
	return "$1"
}
ok "a keeper of another user gets no memory" keeper_of_nobody
clean
flight_planted() {
	nobody ln -s /mnt/precious $open/flight-0 && nobody ln -s /mnt/precious $open/flight-0.old &&
		nobody ln -s /mnt/precious $open/flight-1 && start_daemon "$work/open.yaml" && alive disk && is_precious &&
		[ "$(stat -c %F%a%u $open/flight-0)" = "regular file6000" ]
	set -- $?
	stop_daemon
	return "$1"
}
ok "a flight recorder is not written through a symlink" flight_planted
clean
chmod 777 $open
ok "a folder where others can replace files is refused" planted 'others may replace what is in /mnt/open ' true
chmod 755 $open
chown 65534 $open
ok "and a folder of another user" planted '/mnt/open belongs to user 65534' true
chown 0 $open
chmod 1777 $open
elsewhere() {
	nobody mkdir $open/his && mkdir /mnt/dir && nobody ln -s /mnt/dir $open/way || return
	sed "s|control: .*}|control: $open/$1}|" "$work/open.yaml" >"$work/elsewhere.yaml"
	does_not_start 'belongs to user 65534' "$work/elsewhere.yaml" && ! find /mnt/dir $open/his -mindepth 1 | grep .
	set -- $?
	rm -rf $open/his $open/way /mnt/dir
	return "$1"
}
ok "below a folder of his too" elsewhere his/sub/c.sock
ok "and by way of a symlink of his" elsewhere way/sub/c.sock
rm -f /mnt/secret

# ---- no room for notes ----

control=/run/ublkd/control.sock
mkdir -p /mnt/small
mount -t tmpfs -o size=96k,mode=755 none /mnt/small
notes=/mnt/small/state
truncate -s 1M /mnt/file.img
cat >"$work/small.yaml" <<END
daemon: {reactors: $reactors, state_dir: $notes}
devices: [{name: disk, id: 1, backend: {type: file, path: /mnt/file.img}}]
END
cat >"$work/more.yaml" <<END
{name: more, backend: {type: mem, size: 1MiB}}
END
cram() { dd if=/dev/zero of=/mnt/small/full bs=4k status=none 2>/dev/null; ! echo x >/mnt/small/x; }
make_room() { rm -f /mnt/small/full /mnt/small/x; }
size_is() { [ "$(blockdev --getsize64 /dev/ublkb1)" = "$1" ]; }
no_temporary() { ! find $notes -name '*.new' | grep .; }
start_daemon "$work/small.yaml"
ok "the folder of the notes is full" cram
ok "a device that cannot be noted is not added, in words" \
	refused "cannot note the device in $notes: ENOSPC" add "$work/more.yaml"
if driver_has UPDATE_SIZE; then
	truncate -s 2M /mnt/file.img
	ok "nor is one resized" refused "cannot note the device in $notes: ENOSPC" ctl resize disk
	ok "it has the size that it had" size_is 1048576
	ok "nothing half written is left" no_temporary
	ok "room is made" make_room
	ok "now it is resized" ctl resize disk
	ok "and has the new size" size_is 2097152
else
	skip "nor is one resized" "the driver is older than Linux 6.16"
fi
ok "what a crash left half written goes at the next start" \
	eval 'crash; make_room; : >$notes/more.json.new; start_daemon "$work/small.yaml" && alive disk && no_temporary &&
		logged "never completed.*more.json.new"'
ok "it ends" stop_daemon
umount /mnt/small

# ---- two daemons that want the same id ----

control=/run/ublkd/control.sock
cat >"$work/second.yaml" <<END
daemon: {reactors: $reactors, control: /run/ublkd/second.sock}
devices: [{name: hid, id: 1, backend: {type: mem, size: 1MiB}}]
END
second() { ublkctl --socket /run/ublkd/second.sock "$@"; }
second_list() { second list >"$work/second.list" 2>&1; }
second_says() { second_list && grep -E "$1" "$work/second.list"; }
start_daemon "$work/one.yaml"
ok "content" fill
start_second() {
	ublkd --config "$work/second.yaml" 2>"$work/second.log" &
	second_pid=$!
	wait_for 30 second_list && second_says '^hid +failed' && grep 'device did not start.*is taken by a device of another ublk server' "$work/second.log"
}
ok "the second daemon's device of the same id fails in words" start_second
ok "the first one's serves" same_content
# The driver frees an id when the last who has the device open lets go of it, a moment after its server has ended; a reload before
# that is refused in words.
reloaded() { kill -HUP $second_pid && rest 0.3 && second_says "$1"; }
reload_second() {
	wait_for 10 reloaded "$1" && return
	tail -n 20 "$work/second.log"
	return 1
}
first_is_dead() {
	crash
	second_says '^hid +failed' && kill -HUP $second_pid && rest 0.5 && wait_for 10 second_says '^hid +failed' &&
		start_daemon "$work/one.yaml" && alive hid && same_content
}
ok "the second one does not take the id of the first when that was killed" first_is_dead
ok "the id is free when the first one ends" stop_daemon
ok "the second takes it at its next reload" reload_second '^hid +live'
third() {
	local code=0
	ublkd --config "$work/second.yaml" 2>"$work/third.log" || code=$?
	[ $code = 1 ] && grep "another ublkd runs with this control socket.*pid=$second_pid" "$work/third.log" &&
		second_says '^hid +live'
}
ok "two daemons of one socket: the second does not start" third
ok "it ends" eval 'kill $second_pid && wait $second_pid'

finish
