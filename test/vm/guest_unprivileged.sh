#!/bin/bash
# In the guest: users who are not root, alice and bob, with a real systemd-udevd and the rules as they are
# installed. Alice runs ublkd for herself and uses her devices; bob can do nothing to them, root can.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

udevd=$(ls /lib/systemd/systemd-udevd /usr/lib/systemd/systemd-udevd 2>/dev/null | head -1)
if [ -z "$udevd" ] || ! command -v udevadm >/dev/null; then
	skip "devices of users" "no systemd-udevd: apt-get install udev"
	finish
fi

alice_id=1001 bob_id=1002 alice_pid='' bob_pid=''
bin=$work/bin
mkdir -p "$bin"
cp "$(command -v ublkd)" "$(command -v ublkd-keeper)" "$(command -v ublkctl)" "$bin"
chmod -R go+rX "$work"
chmod 755 /tmp/suite
for user in alice bob; do
	id=${user}_id
	mkdir -p "/run/user/${!id}" /tmp/$user/.config/ublkd
	chmod 700 "/run/user/${!id}"
	chown -R "${!id}:${!id}" "/run/user/${!id}" /tmp/$user
done

# session USER: sets $session to what runs a command with the user's environment and without capabilities.
session() {
	local id=${1}_id
	session=(setpriv --reuid "${!id}" --regid "${!id}" --clear-groups env -i "PATH=$bin:$PATH" "HOME=/tmp/$1"
		"XDG_RUNTIME_DIR=/run/user/${!id}")
}
as() { session "$1" && "${session[@]}" "${@:2}"; }
alice() { as alice "$@"; }
bob() { as bob "$@"; }
# alices COMMAND WORDS: ublkctl asks her daemon.
ctl() { alice ublkctl "$@"; }

# begin USER: the user's daemon, with the configuration at its default place.
begin() {
	local pid=${1}_pid
	session "$1"
	"${session[@]}" ublkd 2>"$work/$1.log" &
	printf -v "$pid" %s $!
	wait_for 60 answers_or_ended "$1"
}
answers_or_ended() {
	local pid=${1}_pid
	as "$1" ublkctl list >/dev/null 2>&1 || ! kill -0 "${!pid}" 2>/dev/null
}
# end USER: by SIGTERM; its exit code.
end() {
	local pid=${1}_pid
	kill "${!pid}" 2>/dev/null
	wait "${!pid}"
}
# fails_to_start USER WORDS: exit code 1, with these words.
fails_to_start() {
	local pid=${1}_pid code=0
	begin "$1" || return
	wait "${!pid}" || code=$?
	[ $code = 1 ] && log_of "$1" "$2"
}
log_of() { grep -E "$2" "$work/$1.log" || { tail -n 20 "$work/$1.log" && false; }; }
# refused WORDS COMMAND...: it fails, and says so.
refused() {
	local code=0
	answers "$@" || code=$?
	[ $code != 0 ] && [ $code != 99 ]
}
live() { ctl list | grep -qE "^$1 +live" || { tail -n 20 "$work/alice.log" && false; }; }
owner_is() { [ "$(stat -c '%u:%g:%a' "$1")" = "$2" ] || { ls -ln "$1" && false; }; }
owners_are() { wait_for 20 owner_is "/dev/ublkc$1" "$2" && wait_for 20 owner_is "/dev/ublkb$1" "$2"; }

alices=/tmp/alice/.config/ublkd/ublkd.yaml
cat >$alices <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: disk, id: 1, backend: {type: file, path: /tmp/alice/disk.img, size: 64MiB, create: true}}
  - {name: void, id: 2, backend: {type: "null", size: 1GiB}}
  - {name: memory, id: 3, backend: {type: mem, size: 64MiB}}
EOF

# ---- what root has not allowed yet ----

mkdir -p /run/udev/rules.d
rules=$here/../../deploy
"$udevd" >"$work/udevd.log" 2>&1 &
udevd_pid=$!
wait_for 20 test -S /run/udev/control
chmod 600 /dev/ublk-control
no_control() { fails_to_start alice 'cannot use the ublk driver.*EACCES.*ublkctl doctor'; }
ok "without the right to use /dev/ublk-control her daemon does not start" no_control
no_runtime_dir() {
	refused 'control: XDG_RUNTIME_DIR is not set.*write control' setpriv --reuid 1001 --regid 1001 --clear-groups \
		env -i HOME=/tmp/alice "$bin/ublkd"
}
ok "nor without XDG_RUNTIME_DIR" no_runtime_dir
ok "doctor says how root allows it" refused 'FAIL .*ublk driver.*not for this user.*ublk-control-for-users.rules' ctl doctor

cp "$rules/ublk-control-for-users.rules" /run/udev/rules.d/59-ublk-control.rules
allowed() { udevadm control --reload && udevadm trigger --settle /sys/class/misc/ublk-control && owner_is /dev/ublk-control 0:0:666; }
ok "the rule for /dev/ublk-control gives it to users" allowed
ok "doctor misses the rule for the nodes" answers 'WARN .*device nodes.*59-ublkd-owner.rules' ctl doctor
never_hers() {
	begin alice && log_of alice 'device did not start|/dev/ublkc1 was not given to user 1001 in 10 s.*gc --remove 1' &&
		log_of alice 'could not be deleted.*EACCES' && end alice
}
ok "without the rule her devices fail, with the cure" never_hers
cat >"$work/root.yaml" <<EOF
daemon: {reactors: $reactors}
devices: [{name: roots, id: 9, backend: {type: mem, size: 16MiB}}]
EOF
start_daemon "$work/root.yaml"
root_removes() { ublkctl gc --remove 1 2 3 && ! find /dev -name 'ublk[bc][123]' | grep .; }
ok "root removes what is left of them" root_removes

# ---- her devices ----

sed "s,@CMAKE_INSTALL_FULL_BINDIR@/ublkctl,$(command -v ublkctl)," "$rules/59-ublkd-owner.rules.in" \
	>/run/udev/rules.d/59-ublkd-owner.rules
udevadm control --reload
doctor_is_content() {
	alice ublkctl --json doctor >"$work/doctor.json"
	jq -e '[.[] | select(.verdict == "FAIL")] | length == 0' "$work/doctor.json" &&
		jq -e '.[] | select(.what == "privileges").found | test("unprivileged")' "$work/doctor.json" ||
		{ cat "$work/doctor.json" && false; }
}
has_started() { begin alice && live disk && live void && live memory; }
ok "alice's devices start" has_started
ok "doctor is content" doctor_is_content
hers() { owners_are 1 1001:1001:600 && owners_are 2 1001:1001:600; }
ok "their nodes are hers" hers
is_unprivileged() {
	ctl --json show disk | tee "$work/show.json" | jq -e '.ublk_flags | index("UNPRIVILEGED_DEV")' &&
		jq -e '(.ublk_flags | index("USER_RECOVERY") | not) and .data_path == "copy" and .partition_scan == false' "$work/show.json" ||
		{ cat "$work/show.json" && false; }
}
ok "they are unprivileged, with what works" is_unprivileged
her_files() {
	[ -S /run/user/1001/ublkd/control.sock ] && [ "$(ls /tmp/alice/.local/state/ublkd)" = "disk.json
disk.owed
memory.json
memory.owed
void.json
void.owed" ]
}
ok "her daemon's files are in her folders" her_files
roots_stay() { udevadm trigger --action=change --settle /sys/block/ublkb9 && owner_is /dev/ublkb9 0:6:660; }
ok "root's device stays root's" roots_stay
hers_after_change() { udevadm trigger --action=change --settle /sys/block/ublkb1 && owner_is /dev/ublkb1 1001:1001:600; }
ok "hers stays hers after another event" hers_after_change
not_probed() {
	udevadm info /dev/ublkb1 >"$work/info" && cat "$work/info" && grep 'UBLKD_OWNER=1001:1001' "$work/info" &&
		grep 'UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG=1' "$work/info" && ! grep ID_FS "$work/info"
}
makes_file_system() { alice /sbin/mkfs.ext4 -q -U 11111111-2222-3333-4444-555555555555 /dev/ublkb1; }
ok "she makes a file system on it" makes_file_system
ok "... which root's udev does not read" not_probed

alice_verifies() {
	session alice
	(
		cd /tmp/alice || exit
		verify_as() { "${session[@]}" "$(command -v fio)" "$@"; }
		fio() { verify_as "$@"; }
		verify /dev/ublkb1 --size=16M --bsrange=4k-64k --iodepth=16
	)
}
ok "fio verifies what she wrote to a file" alice_verifies
copies() {
	alice dd if=/dev/urandom of=/tmp/alice/random bs=1M count=8 status=none &&
		alice dd if=/tmp/alice/random of="$1" bs=1M oflag=direct conv=fsync status=none &&
		alice cmp -n $((8 << 20)) /tmp/alice/random "$1"
}
ok "dd and cmp on memory" copies /dev/ublkb3
null_reads() { alice dd if=/dev/ublkb2 of=/dev/null bs=1M count=64 iflag=direct; }
ok "she reads from null" null_reads
served_over_network() {
	session alice
	"${session[@]}" nbdkit --foreground --unix /tmp/alice/nbd.sock memory 32M 2>"$work/nbdkit.log" &
	local server=$! code=0
	wait_for 20 test -S /tmp/alice/nbd.sock || return
	ctl attach --name net 'nbd+unix:///?socket=/tmp/alice/nbd.sock' &&
		copies "$(ctl --json show net | jq -r .path)" && ctl detach net || code=1
	kill $server
	return $code
}
if command -v nbdkit >/dev/null; then
	ok "dd and cmp on an NBD server" served_over_network
else
	skip "dd and cmp on an NBD server" "no nbdkit"
fi
if driver_has UPDATE_SIZE; then
	resizes() { ctl resize disk 96MiB && [ "$(alice blockdev --getsize64 /dev/ublkb1)" = $((96 << 20)) ]; }
	ok "she resizes it" resizes
else
	skip "she resizes it" "no UPDATE_SIZE"
fi
attaches() {
	alice truncate -s 8M /tmp/alice/other.img && ctl attach --persist --name other /tmp/alice/other.img &&
		[ -s /tmp/alice/.config/ublkd/devices.d/other.yaml ] && alice head -c 4096 "$(ctl --json show other | jq -r .path)" | wc -c
}
ok "she attaches another file, for good" attaches
ok "no upgrade takes over such devices" refused 'end with it' ctl upgrade "$bin/ublkd"
detaches() { ctl detach other && [ ! -e /tmp/alice/.config/ublkd/devices.d/other.yaml ]; }
ok "and detaches it, without --force" detaches

# ---- what others can do ----

ok "bob cannot read her device" refused 'Permission denied' bob dd if=/dev/ublkb1 of=/dev/null bs=4k count=1
not_by_driver() {
	mknod -m 666 "$work/ublkb1" b $((0x$(stat -c %t /dev/ublkb1))) $((0x$(stat -c %T /dev/ublkb1))) &&
		refused 'Operation not permitted' bob dd if="$work/ublkb1" of=/dev/null bs=4k count=1
}
ok "... nor by a node that anybody may open: the driver refuses" not_by_driver
ok "nor ask her daemon" refused 'no permission' bob ublkctl --socket /run/user/1001/ublkd/control.sock list
not_end() { ! bob bash -c "kill $alice_pid" && live disk; }
ok "nor end it" not_end
cat >/tmp/bob/.config/ublkd/ublkd.yaml <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: disk, id: 1, backend: {type: mem, size: 16MiB}}
  - {name: own, id: 5, backend: {type: mem, size: 16MiB}}
EOF
bob_begins() { begin bob && log_of bob 'device did not start.*device=disk.*id 1 is taken by a device of user 1001' && as bob ublkctl list | grep -E '^own +live'; }
ok "his daemon cannot take her number, and has a device of his own" bob_begins
not_remove() { refused '^ *1 .*failed.*EACCES' bob ublkctl gc --remove 1 && live disk && null_reads; }
ok "nor remove her device" not_remove
not_seen() { as bob ublkctl gc && ! as bob ublkctl gc | grep -E '^ *[1239] '; }
ok "his list of orphans has none of others" not_seen
not_hers() { owners_are 5 1002:1002:600 && refused 'Permission denied' alice dd if=/dev/ublkb5 of=/dev/null bs=4k count=1; }
ok "alice cannot read his" not_hers
ok "bob ends his daemon" end bob
roots_reads() { dd if=/dev/ublkb1 of=/dev/null bs=4k count=4 iflag=direct; }
ok "root reads her device" roots_reads
ok "root's ublkctl does not trust her daemon's socket" refused 'runuser -u USER' ublkctl --socket /run/user/1001/ublkd/control.sock list
root_refused() { refused 'served by the living process' ublkctl gc --remove 1; }
ok "root's gc leaves alone what is served" root_refused

# ---- limits of the driver ----

# checks DEVICE-OPTIONS WORDS
checks() {
	printf 'devices: [{name: x, %s}]\n' "$1" >/tmp/alice/x.yaml
	refused "$2" alice ublkd --config /tmp/alice/x.yaml --check-config
}
forbidden() {
	checks 'recovery: reissue, backend: {type: mem, size: 1MiB}' 'x.yaml:1:.*recovery: reissue is impossible.*set recovery: none' &&
		checks 'data_path: user_copy, backend: {type: mem, size: 1MiB}' 'data_path: user_copy is impossible.*set data_path: auto' &&
		checks 'data_path: zero_copy, backend: {type: file, path: /tmp/alice/disk.img}' 'zero_copy is impossible without CAP_SYS_ADMIN' &&
		checks 'backend: {type: nbd, uri: "nbd://h", on_disconnect: forever}' 'at most {queue: 20s} without CAP_SYS_ADMIN' &&
		checks 'backend: {type: zoned, zone_size: 4MiB, backend: {type: mem, size: 64MiB}}' 'zoned is impossible'
}
ok "what the driver keeps from users is refused with words" forbidden
limit=/sys/module/ublk_drv/parameters/ublks_max
too_many() {
	local before code=0
	read -r before <$limit
	echo 3 >$limit
	printf 'name: more\nbackend: {type: mem, size: 1MiB}\n' | refused 'ublks_max' alice ublkctl add -f - || code=1
	echo "$before" >$limit
	return $code
}
ok "so is one device more than ublks_max" too_many
killed_by_driver() {
	printf 'name: slow\nid: 4\nbackend: {type: delay, read: 60s, backend: {type: mem, size: 1MiB}}\n' | alice ublkctl add -f - &&
		echo 2000 >/sys/block/ublkb4/queue/io_timeout || return
	alice dd if=/dev/ublkb4 of=/dev/null bs=4k count=1 iflag=direct
	wait_for 30 alice_is_gone
}
alice_is_gone() { ! kill -0 "$alice_pid" 2>/dev/null; }
ok "the driver kills a daemon that does not answer in time" killed_by_driver
wait "$alice_pid" 2>/dev/null
starts_again() { begin alice && live disk && live memory && log_of alice 'deleted a dead device' && owners_are 1 1001:1001:600; }
ok "the next one removes what that left, and serves" starts_again
kill_under_load() {
	session alice
	(cd /tmp/alice && "${session[@]}" "$(command -v fio)" --name=load --filename=/dev/ublkb1 --size=16M --direct=1 --rw=randrw --time_based \
		--runtime=60 --iodepth=8 --ioengine=io_uring >"$work/load.log" 2>&1) &
	local load=$!
	rest 3
	kill -KILL "$alice_pid"
	wait "$alice_pid" 2>/dev/null
	! wait $load && grep -E 'error=(Input/output error|No such device)' "$work/load.log" && return
	cat "$work/load.log"
	return 1
}
ok "kill -9 under load: her programs get errors, none hangs" kill_under_load
# Younger than ten seconds it could be one that is starting.
is_orphan() { ublkctl gc | grep -E '^ *1 '; }
dead_in_driver() {
	[ -e /dev/ublkc1 ] && wait_for 20 test ! -e /dev/ublkb1 && wait_for 20 is_orphan
}
ok "... the driver keeps a dead device, which root's gc lists" dead_in_driver
# gc leaves a device alone for some seconds after it was made: it may be starting.
removes_all() {
	local id
	for id in 1 2 3; do wait_for 30 cleared $id || return; done
}
ok "... and removes" removes_all
starts_once_more() { begin alice && live disk; }
ok "she starts again" starts_once_more
ok "her daemon ends" end alice
no_notes() { [ -z "$(ls /tmp/alice/.local/state/ublkd)" ]; }
ok "... and leaves no note" no_notes
kill $udevd_pid
finish
