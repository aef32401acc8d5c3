#!/bin/bash
# In the guest: a real systemd-udevd with the udev rule creates /dev/ublkd/NAME for a device and for a
# partition of it, and not for a device without a state file.
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
stop_daemon
ok "nothing is left when the daemon ends" only ''
kill $udevd_pid
finish
