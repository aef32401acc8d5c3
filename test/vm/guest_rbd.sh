#!/bin/bash
# In the guest: a Ceph cluster serves images.
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_rbd_lib.sh"

ok "a cluster starts" start_cluster
ok "an image is made" rbd create disk --size 64M
bench() { said 'ops: 256 ' rbd bench --rbd-cache=false --io-type "$1" --io-size 4K --io-threads 8 --io-total 1M rbd/disk; }
ok "it takes writes" bench write
ok "and reads" bench read
head -c 1000000 /dev/urandom >"$work/data"
same_bytes() {
	rbd import --no-progress "$work/data" copy && rbd export --no-progress copy "$work/back" && cmp "$work/data" "$work/back"
}
ok "what was written is read" same_bytes
paused() {
	cluster pause-osd && ! timeout -k 1 3 rbd bench --io-type read --io-size 4K --io-total 4K rbd/disk &&
		cluster resume-osd && bench read
}
ok "reads wait while the OSD is paused, and go on" paused
finish_rbd
