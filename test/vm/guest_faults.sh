#!/bin/bash
# In the guest: a failure below one device affects only that device, and returns the right errno.
# Runs on: uml asan
# By turns: 7.2 asan
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 64 || exit 1
truncate -s 16M /mnt/ram/shrinks
cat >"$work/faults.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: good, id: 1, queues: 2, backend: {type: mem, size: 16MiB}}
  - {name: missing, backend: {type: file, path: /mnt/ram/no/such/file}}
  - {name: shrinks, id: 2, backend: {type: file, path: /mnt/ram/shrinks}}
  - {name: toolarge, id: 3, backend: {type: file, path: /mnt/ram/sparse, size: 200MiB, create: true, direct: off}}
  - {name: locked, id: 4, backend: {type: file, path: /mnt/ram/locked, size: 1MiB, create: true}}
EOF
truncate -s 1M /mnt/ram/locked
flock_holder() { python3 -c '
import fcntl, struct, time
f = open("/mnt/ram/locked", "r+b")
fcntl.fcntl(f, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0) + b"\0" * 4)
open("/mnt/ram/held", "w")
time.sleep(600)'; }
if command -v python3 >/dev/null; then
	flock_holder &
	holder=$!
	wait_for 60 test -e /mnt/ram/held
fi
start_daemon "$work/faults.yaml"

works() { verify /dev/ublkb1 --bs=4k --iodepth=8 --size=2M; }
ok "a device with a missing file does not stop the others" works
ok "the log names the missing file" grep -q '/mnt/ram/no/such/file' "$work/ublkd.log"
if [ -n "${holder:-}" ]; then
	ok "a locked file is refused" test ! -e /dev/ublkb4
	ok "the log names the locked file" grep -q '/mnt/ram/locked' "$work/ublkd.log"
	kill "$holder"
else
	skip "a locked file is refused" "no python3 to hold the lock"
fi

shrunk_file() {
	dd if=/dev/zero of=/dev/ublkb2 bs=1M count=16 oflag=direct status=none || return
	truncate -s 1M /mnt/ram/shrinks
	dd if=/dev/ublkb2 of=/dev/null bs=4k count=1 iflag=direct status=none || return
	dd if=/dev/ublkb2 of=/dev/null bs=4k skip=3000 count=1 iflag=direct 2>&1 |
		grep 'Input/output error'
}
ok "a truncated file: EIO behind its end, the rest is served" shrunk_file

full_disk() {
	dd if=/dev/zero of=/dev/ublkb3 bs=1M oflag=direct 2>&1 | grep 'No space left on device'
}
ok "a full disk: ENOSPC" full_disk
ok "the daemon and the other devices live on" works
finish
