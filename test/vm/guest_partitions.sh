#!/bin/bash
# In the guest: partition_scan. A file with a partition table that somebody else wrote: the kernel makes nodes of
# it, or none until it is asked; through a crash, an upgrade and a reload; and what an older driver lacks is said.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 100 || exit 1

# A DOS table: two partitions of 1 MiB, at 1 MiB and at 2 MiB.
with_table() { # FILE
	python3 - "$1" <<'END'
import struct, sys
with open(sys.argv[1], "wb") as disk:
    disk.truncate(16 << 20)
    disk.seek(446)
    for first in (2048, 4096):
        disk.write(struct.pack("<B3sB3sII", 0, b"", 0x83, b"", first, 2048))
    disk.seek(510)
    disk.write(b"\x55\xaa")
END
}
with_table /mnt/ram/scanned
with_table /mnt/ram/foreign

configure() { # KEYS of the second device
	cat >"$work/parts.yaml" <<END
daemon: {reactors: $reactors}
devices:
  - {name: scanned, id: 1, backend: {type: file, path: /mnt/ram/scanned}}
  - {name: foreign, id: 2, $1 backend: {type: file, path: /mnt/ram/foreign}}
END
}
has_nodes() { [ -b "/dev/ublkb$1p1" ] && [ -b "/dev/ublkb$1p2" ] && [ ! -e "/dev/ublkb$1p3" ]; }
has_none() { [ -b "/dev/ublkb$1" ] && ! ls "/dev/ublkb$1p"*; }
shows() { ublkctl --json show "$1" | jq -e ".partition_scan == $2 and (.ublk_flags | contains([\"NO_AUTO_PART_SCAN\"])) == ($2 | not)"; }
state_of() { ublkctl --json list | jq -r ".[] | select(.name == \"$1\").state"; }
is_live() { [ "$(state_of "$1")" = live ]; }
# A scan takes milliseconds: one second after that of the other device this one would be over, too.
settled_without() { wait_for 20 has_nodes 1 && rest 1 && has_none "$1"; }

configure 'partition_scan: no,'
start_daemon "$work/parts.yaml"

if ! driver_has NO_AUTO_PART_SCAN; then
	ok "a driver that lacks it: the device does not start, in words" said \
		'NO_AUTO_PART_SCAN \(Linux 7.0\); set partition_scan: yes' ublkctl --json show foreign
	ok "... and the others do" wait_for 20 has_nodes 1
	ok "doctor says so" said '^OK +partition_scan +cannot be switched off' ublkctl doctor
	configure 'partition_scan: yes,'
	kill -HUP "$daemon_pid"
	ok "with the default it starts" wait_for 20 is_live foreign
	ok "... and has its partitions" wait_for 20 has_nodes 2
	finish
fi

ok "doctor says that there is a choice" said '^OK +partition_scan +can be switched off' ublkctl doctor
ok "partitions are found where nothing is said" wait_for 20 has_nodes 1
ok "... and not where partition_scan is off" settled_without 2
ok "show tells them apart" shows scanned true
ok "... either way" shows foreign false

ok "an upgrade" ublkctl upgrade
ok "... keeps that" shows foreign false
ok "... and makes no nodes" has_none 2
kill -KILL "$(server)"
wait "$daemon_pid"
start_daemon "$work/parts.yaml"
ok "after a crash it serves again" wait_for 20 is_live foreign
ok "... as it was" shows foreign false
ok "... without nodes" has_none 2

ok "who asks for partitions gets them" blockdev --rereadpt /dev/ublkb2
ok "... both" has_nodes 2
written() { dd if=/dev/urandom of="$work/data" bs=1M count=1 status=none && dd if="$work/data" of=/dev/ublkb2p2 conv=fsync status=none && cmp -n 1048576 -i 0:2097152 "$work/data" /mnt/ram/foreign; }
ok "... and writes through one land where it is" written

configure 'partition_scan: yes,'
kill -HUP "$daemon_pid"
changed() { is_live foreign && shows foreign true; }
ok "a reload that switches it on starts the device again" wait_for 20 changed
ok "... with its partitions" wait_for 20 has_nodes 2

finish
