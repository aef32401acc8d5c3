#!/bin/bash
# In the guest: the demos of ./dev demo show what they promise, and leave nothing behind, also when they are ended.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_rbd_lib.sh"

examples=$(readlink -f "$here/../../examples")

shows() { # PATTERN...: in what the demo has printed
	local pattern
	for pattern; do grep -qE "$pattern" "$work/demo" || { cat "$work/demo" && echo "missing: $pattern" && return 1; }; done
}
demo() { # NAME PATTERN...
	timeout -k 1 300 "$examples/$1" >"$work/demo" 2>&1 || { cat "$work/demo" && return 1; }
	shows "${@:2}"
}
nothing_left() {
	local name
	for name in ublkd ceph-mon ceph-osd; do [ -z "$(pids $name)" ] || { echo "$name is left" && return 1; }; done
	! ls -d /tmp/ublkd-demo.* 2>/dev/null
}

ok "two disks" demo demo.sh '^ram +live' '^disk +live' '^ +write: IOPS=' '^done: '
ok "nothing is left" nothing_left

if [ -x "$(dirname "$(dirname "$here")")/build/vm/nginx/nginx" ]; then
	ok "a lazy disk" demo demo_lazy.sh '^vm-1 +live' 'fetched: [0-9]+ KiB of an image of 262144 KiB \(([0-9]|1[0-9])%\)' \
		'both files are right, with nobody to ask' 'gives an error' '^done: '
	ok "nothing is left" nothing_left
else
	skip "a lazy disk" "no nginx: test/vm/nginx.sh"
fi

if [ -z "${UBLKD_SOAK:-}" ]; then
	skip "an image of a Ceph cluster" "takes long: UBLKD_SOAK=1 runs it"
	finish
fi
if ! ceph_why=$("$here/../ceph/cluster.sh" check 2>&1); then
	skip "an image of a Ceph cluster" "$ceph_why"
	finish
fi

ok "an image of a Ceph cluster" demo demo_rbd.sh '^vm-1 +live' '^ +write: IOPS=' 'BACKEND' \
	'^library +librbd: [1-9][0-9] threads in the process, of 1 client for 1 image$' \
	'does not answer \(librbd and the OSDs\)' 'the read has ended' '^done: '
ok "nothing is left" nothing_left

osd_is_paused() { grep -q ' T ' "/proc/$(pids ceph-osd)/stat" 2>/dev/null; }
ended() {
	local demo code=0
	"$examples/demo_rbd.sh" >"$work/demo" 2>&1 &
	demo=$!
	wait_for 120 osd_is_paused || return
	kill -TERM $demo
	wait $demo || code=$?
	[ $code = 143 ] || { echo "exit code $code" && cat "$work/demo" && return 1; }
	nothing_left
}
ok "ended while the OSD is paused: nothing is left" ended
finish
