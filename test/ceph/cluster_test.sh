#!/bin/bash
# The cluster of cluster.sh: it serves images, and its daemons die, pause and return as the tests of others
# expect. Prints TAP; no root, no ublk. In a network namespace of its own where it may make one.
set -u

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [ -z "${UBLKD_CEPH_PRIVATE:-}" ]; then
	UBLKD_CEPH_PRIVATE=1 exec "$here/cluster.sh" private "$0" "$@"
fi
tmp=$(mktemp -d /tmp/ublkd-ceph.XXXXXX)
end_all() {
	local made
	for made in "$tmp"/*/made; do
		[ ! -e "$made" ] || cluster kill "${made%/*}"
	done
	rm -rf "$tmp"
}
trap end_all EXIT
. "$here/../tap.sh"
cluster() { timeout 120 "$here/cluster.sh" "$@"; }
# A client whose I/O waits does not end by SIGTERM.
client() { timeout -k 1 "${seconds:-60}" "$@"; }

if ! why=$("$here/cluster.sh" check 2>&1); then
	skip "a Ceph cluster" "$why"
	echo "1..$n"
	exit
fi

# use DIR [USER]: the clients below go there
use() { eval "$(cluster env "$tmp/$1" "${2:-ublkd}")"; }
put() { client rados -p rbd put "$1" "$tmp/$2"; }
has() { client rados -p rbd get "$1" "$tmp/got" && cmp "$tmp/got" "$tmp/$2"; }
# in_vain COMMAND...: it does not end within three seconds, and so has no error either
in_vain() {
	local code=0
	seconds=3 "$@" || code=$?
	[ "$code" = 124 ] || [ "$code" = 137 ] || { echo "ended with $code: $*"; return 1; }
}
nobody_left() { ! pgrep -af "^ceph-(mon|osd) -c $tmp/$1/"; } # DIR
head -c 100000 /dev/urandom >"$tmp/first"
head -c 100000 /dev/urandom >"$tmp/second"

# ---- memstore ----

bench() { client rbd bench --rbd-cache=false --io-type write --io-size 4K --io-total 4M rbd/disk | grep -q 'elapsed'; }
no_key() { ! client rados -p rbd ls --id ublkd --keyring /dev/null 2>/dev/null; }

ok "a cluster in memory starts" cluster start "$tmp/mem"
use mem
ok "an image is made by a user who has the capabilities of RBD" client rbd create disk --size 64M
ok "it takes writes" bench
ok "who has no key is refused" no_key
ok "an object is written" put first first
ok "and read" has first first
ok "it stops" cluster stop "$tmp/mem"
ok "no process is left" nobody_left mem
ok "it starts again" cluster start "$tmp/mem"
ok "an orderly stop has kept what was written" has first first

port_of() { cut -d ' ' -f 2 "$tmp/$1/settings"; }
taken_port() {
	cluster stop "$tmp/mem" && cluster start "$tmp/other" && cluster start "$tmp/mem" &&
		[ "$(port_of other)" != "$(port_of mem)" ] && has first first
}
ok "it finds another port where its own is taken" taken_port
cluster stop "$tmp/mem"
cluster stop "$tmp/other"

# ---- bluestore: faults ----

# copies NUMBER: of what is in the pool
copies() {
	cluster mon "$tmp/blue" "{\"prefix\": \"osd pool set\", \"pool\": \"rbd\", \"var\": \"size\", \"val\": \"$1\",
		\"yes_i_really_mean_it\": true}"
}
# With another number of copies the PGs begin a new interval, and the OSD's log says what is left of the old one's lease
# (pruub=SECONDS).
long_lease() {
	local i
	copies 2 && copies 1 || return
	for ((i = 0; i < 100; i++)); do
		if grep -qE 'pruub=3[0-9]{3}\.' "$tmp/blue/osd.log"; then return; fi
		sleep 0.1
	done
	grep -oE 'pruub=[^ ]*' "$tmp/blue/osd.log" | tail -n 1
	return 1
}

ok "a cluster on bluestore starts" cluster start "$tmp/blue" --store bluestore
use blue
ok "an object is written" put first first
ok "the OSD is killed" cluster kill-osd "$tmp/blue"
ok "writes wait" in_vain put second second
ok "the OSD returns" cluster start-osd "$tmp/blue"
ok "what was acknowledged is there" has first first
ok "writes go on" put second second
ok "its lease outlives every pause" long_lease
ok "the OSD is paused" cluster pause-osd "$tmp/blue"
ok "reads wait" in_vain has first first
ok "the OSD goes on" cluster resume-osd "$tmp/blue"
ok "reads go on" has second second
ok "the monitor is killed" cluster kill-mon "$tmp/blue"
ok "nobody can connect" in_vain has first first
ok "the monitor returns" cluster start-mon "$tmp/blue"
ok "reads go on" has first first
ok "the OSD is full" cluster fill "$tmp/blue"
ok "writes wait" in_vain put third first
ok "reads do not" has first first
ok "it is not full any more" cluster unfill "$tmp/blue"
ok "writes go on" put third first
ok "a paused OSD is killed" cluster pause-osd "$tmp/blue"
ok "with the monitor" cluster kill "$tmp/blue"
ok "no process is left" nobody_left blue

# ---- from one that was made before ----

prebuilt() { cluster start "$tmp/copy" --from "$tmp/mem" && use copy && has first first; }
ok "a copy of a stopped cluster starts" prebuilt
refused() { ! cluster start-osd "$tmp/nothing" && ! cluster kill-osd "$tmp/blue" && ! cluster start; }
ok "what cannot be done is an error" refused

echo "1..$n"
exit $bad
