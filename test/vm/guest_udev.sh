#!/bin/bash
# In the guest: /dev/ublkd/NAME by a real systemd-udevd with our rule, for a device and for a
# partition of it, and not for what has no state file or a bad one.
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

# state NAME ID [PHASE]: as docs/recovery.md has it.
state_dir=/run/ublkd/control.sock.state
state() {
	mkdir -p $state_dir
	printf '{"version": 1, "name": "%s", "phase": "%s", "id": %d}\n' "$1" "${3:-serving}" "$2" \
		>"$state_dir/$1.json"
}
points_to() { [ "$(readlink -f "/dev/ublkd/$1")" = "$2" ]; }
settle() { udevadm settle --timeout=30; }
links() { ls /dev/ublkd 2>/dev/null; }
only() { settle && echo "$(links)" && [ "$(links | tr '\n' ' ')" = "$1" ]; }

cat >"$work/udev.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: data.1, id: 1, backend: {type: mem, size: 16MiB}}
  - {name: noname, id: 2, backend: {type: mem, size: 16MiB}}
  - {name: later, id: 3, backend: {type: mem, size: 16MiB}}
EOF
start_daemon "$work/udev.yaml"
# Whatever wrote them: these are the files that the rule's program has to find.
rm -rf $state_dir
state data.1 1
state later 3 adding
for id in 1 2 3; do udevadm trigger --action=change --settle "/sys/block/ublkb$id"; done

ok "a device gets its name" wait_for 20 points_to data.1 /dev/ublkb1
ok "... the others none" only 'data.1 '
partition() { addpart /dev/ublkb1 1 2048 8192 && wait_for 20 points_to data.1-part1 /dev/ublkb1p1; }
ok "... and a partition of it" partition
state later 3
udevadm trigger --action=change --settle /sys/block/ublkb3
ok "a name that comes later is there after an event" only 'data.1 data.1-part1 later '
moved() {
	delpart /dev/ublkb1 1 && ublkctl del later && only 'data.1 '
}
ok "a device that is removed loses its name" moved
again() {
	printf 'name: later\nid: 3\nbackend: {type: mem, size: 1MiB}\n' | ublkctl add -f - &&
		wait_for 20 points_to later /dev/ublkb3
}
state later 3
ok "a device that is added has it from its first event on" again
stop_daemon
ok "nothing is left when the daemon ends" only ''
kill $udevd_pid
finish
