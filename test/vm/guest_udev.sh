#!/bin/bash
# In the guest: a real systemd-udevd with the udev rule creates /dev/ublkd/NAME for a device and for a
# partition of it, and not for a device without a state file; and the links of /dev/disk by content.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

udevd=$(ls /lib/systemd/systemd-udevd /usr/lib/systemd/systemd-udevd 2>/dev/null | head -1)
if [ -z "$udevd" ] || ! command -v udevadm >/dev/null; then
	skip "/dev/ublkd/NAME" "no systemd-udevd: apt-get install udev"
	finish
fi

# The rule as it is installed, but for the place of the program.
mkdir -p /run/udev/rules.d
rule=$here/../../deploy/60-ublkd.rules.in
sed "s,@CMAKE_INSTALL_FULL_BINDIR@/ublkctl,$(command -v ublkctl)," "$rule" >/run/udev/rules.d/60-ublkd.rules
"$udevd" >"$work/udevd.log" 2>&1 &
udevd_pid=$!
wait_for 20 test -S /run/udev/control

state_dir=/run/ublkd/control.sock.state
points_to() { [ "$(readlink -f "/dev/ublkd/$1")" = "$2" ]; }
settle() { udevadm settle --timeout=30; }
links() { ls /dev/ublkd 2>/dev/null; }
only() { settle && echo "$(links)" && [ "$(links | tr '\n' ' ')" = "$1" ]; }

cat >"$work/udev.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: data.1, id: 1, backend: {type: mem, size: 16MiB}}
  - {name: other, id: 2, backend: {type: mem, size: 16MiB}}
EOF
start_daemon "$work/udev.yaml"

ok "devices have their names from their first event on" wait_for 20 only 'data.1 other '
ok "... for the right ones" points_to data.1 /dev/ublkb1
partition() { addpart /dev/ublkb1 1 2048 8192 && wait_for 20 points_to data.1-part1 /dev/ublkb1p1; }
ok "... and a partition of it" partition
removed() { delpart /dev/ublkb1 1 && ublkctl del other && only 'data.1 '; }
ok "a device that is removed loses its name" removed
added() {
	printf 'name: later\nid: 2\nbackend: {type: mem, size: 1MiB}\n' | ublkctl add -f - &&
		wait_for 20 points_to later /dev/ublkb2
}
ok "one that is added with its number has its own" added
unknown() {
	mv $state_dir/later.json "$work" && udevadm trigger --action=change --settle /sys/block/ublkb2 &&
		only 'data.1 ' && mv "$work/later.json" $state_dir
}
ok "one without a state file has none" unknown

# Of udev's own rules those of systemd before 257 leave ublkb* out. mkfs writes and closes: udev looks again.
uuid=11111111-2222-3333-4444-555555555555
by() { [ "$(readlink -f "/dev/disk/by-$1/$2")" = "$3" ]; }
file_system() {
	mkfs.ext4 -qF -L ublkd-test -U $uuid /dev/ublkb1 && wait_for 20 by uuid $uuid /dev/ublkb1 && by label ublkd-test /dev/ublkb1
}
ok "a file system is found by its UUID and label" file_system
found_again() { udevadm trigger --action=change --settle /sys/block/ublkb1 && by uuid $uuid /dev/ublkb1; }
ok "... also after another event" found_again
other_uuid() { tune2fs -U 99999999-2222-3333-4444-555555555555 /dev/ublkb1 >/dev/null && wait_for 20 by uuid 99999999-2222-3333-4444-555555555555 /dev/ublkb1; }
ok "... and by another one when it has that" other_uuid
gone() { [ ! -e /dev/disk/by-uuid/$uuid ]; }
ok "... only" wait_for 20 gone
partitioned() {
	printf 'label: gpt\nuuid=22222222-3333-4444-5555-666666666666, name=part-of-test, size=4MiB\n' | sfdisk -q /dev/ublkb2 &&
		wait_for 20 by partuuid 22222222-3333-4444-5555-666666666666 /dev/ublkb2p1 && by partlabel part-of-test /dev/ublkb2p1
}
printf 'name: parts\nid: 2\nbackend: {type: mem, size: 16MiB}\n' >"$work/parts.yaml"
ok "another device" eval 'ublkctl del later && ublkctl add -f "$work/parts.yaml"'
ok "a partition is found by its UUID and label" partitioned
# What an administrator says before is kept to.
foreign() {
	printf '%s\n' 'KERNEL=="ublkb1", ENV{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}="1"' >/run/udev/rules.d/59-foreign.rules &&
		udevadm control --reload && udevadm trigger --action=change --settle /sys/block/ublkb1 &&
		[ ! -e /dev/disk/by-uuid/99999999-2222-3333-4444-555555555555 ] && points_to data.1 /dev/ublkb1
}
ok "a device whose content is not to be read has its name alone" foreign
stop_daemon
ok "nothing is left when the daemon ends" only ''
kill $udevd_pid
finish
