#!/bin/bash
# The s3 backend reads objects of Ceph's gateway (radosgw), which verifies signatures with code of its own, and s3-disk
# has disks there. Prints TAP; no root, no ublk. In a network namespace of its own where it may make one. Usage:
# s3_test.sh [TEST_FOLDER], where node_io is; skipped without Ceph.
set -u

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [ -z "${UBLKD_CEPH_PRIVATE:-}" ]; then
	UBLKD_CEPH_PRIVATE=1 exec "$here/cluster.sh" private "$0" "$@"
fi
top=${here%/*/*}
tests=$(readlink -f "${1:-$top/build/asan/test}")
tmp=$(mktemp -d /tmp/ublkd-s3.XXXXXX)
gateway=
end_all() {
	[ -z "$gateway" ] || kill -9 "$gateway" 2>/dev/null
	[ ! -e "$tmp/ceph/made" ] || "$here/cluster.sh" kill "$tmp/ceph"
	rm -rf "$tmp"
}
trap end_all EXIT
. "$top/test/tap.sh"

why=$("$here/cluster.sh" check 2>&1) || { echo "1..0 # SKIP $why"; exit; }
command -v radosgw >/dev/null || { echo "1..0 # SKIP radosgw is missing: ./dev check installs it"; exit; }

access=AKIDTEST secret='wJalr/secret+key='
endpoint=

# The port that is free is found by trying: other tests may be beside us.
start_gateway() {
	local port i
	for port in 7480 7481 7482 7483; do
		radosgw -f -c "$tmp/ceph/ceph.conf" -n client.admin --rgw-data="$tmp" --log-file="$tmp/rgw.log" --admin-socket= \
			--rgw-frontends="beast endpoint=127.0.0.1:$port" >"$tmp/rgw.out" 2>&1 &
		gateway=$!
		disown
		for ((i = 0; i < 1200; i++)); do
			kill -0 $gateway 2>/dev/null || break
			if answers $port; then
				endpoint=http://127.0.0.1:$port
				return
			fi
			sleep .05
		done
		kill -9 $gateway 2>/dev/null
	done
	tail "$tmp/rgw.out" "$tmp/rgw.log"
	return 1
}
answers() { { exec {probe}<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null && exec {probe}>&-; } # PORT

make_user() {
	timeout 120 radosgw-admin -c "$tmp/ceph/ceph.conf" -n client.admin user create --uid=u --display-name=u \
		--access-key=$access --secret-key="$secret"
}
put() { python3 "$top/test/interop/s3_signature.py" "$endpoint" $access "$secret" us-east-1 "$@"; } # PATH [FILE]

# tree KEY [LINE]...: $tmp/tree is a device of this object
tree() {
	printf '%s\n' 'type: delay' 'all: 1us' 'backend:' '  type: s3' '  bucket: images' "  key: \"$1\"" \
		"  endpoint: \"$endpoint\"" >"$tmp/tree"
	shift
	[ $# = 0 ] || printf '  %s\n' "$@" >>"$tmp/tree"
}
node_io() { timeout 120 "$tests/node_io" --read-only "$tmp/script" "$tmp/tree"; }
# reads KEY [LINE]...: all is as in the file
reads() {
	tree "$@"
	printf '%s\n' "load $tmp/disk" verify "read 1000k 1M" "read 4095k 1k" >"$tmp/script"
	node_io
}
# refused WORDS KEY [LINE]...: it is not opened, with these words
refused() {
	local words=$1 code=0
	shift
	tree "$@"
	echo verify >"$tmp/script"
	node_io >"$tmp/words" 2>&1 || code=$?
	cat "$tmp/words"
	[ $code = 3 ] && grep -q -- "$words" "$tmp/words"
}
# disk PREFIX SCRIPT_LINE...: does so with the disk
disk() {
	printf '%s\n' 'type: delay' 'all: 1us' 'backend:' '  type: s3-disk' '  bucket: images' "  prefix: \"$1\"" \
		"  endpoint: \"$endpoint\"" "  $with_keys" '  create: true' '  size: 64MiB' '  object_size: 64KiB' '  lease: 1s' >"$tmp/tree"
	shift
	printf '%s\n' "$@" >"$tmp/script"
	timeout 120 "$tests/node_io" --queues 1 --depth 16 "$tmp/script" "$tmp/tree"
}
# conditionally HEADER PATH: the object is not replaced
conditionally() {
	put "$2" "$tmp/keys" "$1" >"$tmp/words" 2>&1 && return 1
	cat "$tmp/words"
	grep -q ' 412 .*PreconditionFailed' "$tmp/words"
}
# 700 objects: more than a page of the list
many() {
	local i
	for ((i = 0; i < 700; i++)); do echo "write $((i * 64))k 64k $i"; done
}
keys() { printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' $access "$1"; } # SECRET

head -c 4M /dev/urandom >"$tmp/disk"
umask 077
keys "$secret" >"$tmp/keys"
keys other >"$tmp/wrong"
with_keys="credentials_file: $tmp/keys"

ok "a cluster starts" "$here/cluster.sh" start "$tmp/ceph"
ok "a gateway starts" start_gateway
ok "a user is made" make_user
ok "a bucket is made" put /images
ok "an object is put" put /images/disk.img "$tmp/disk"
ok "another one, whose key is escaped" put '/images/a%20b%2Bc/%C3%A9~%281%29%3D%40%26.img' "$tmp/disk"
ok "it is read" reads disk.img "$with_keys"
ok "it is read in small requests" reads disk.img "$with_keys" "request_max: 64KiB" "connections: 2"
ok "the other one is read" reads 'a b+c/é~(1)=@&.img' "$with_keys"
ok "without keys it is refused" refused '403 AccessDenied.*: set credentials_file' disk.img
ok "a wrong key is refused" refused '403 SignatureDoesNotMatch.*: see the secret key' disk.img "credentials_file: $tmp/wrong"
ok "there is no such key" refused '404 NoSuchKey.*: see key' nothing.img "$with_keys"
# Disks that can be written, with a prefix that is escaped in URLs and in XML.
name='vm 1/a&b<é>+~'
ok "an object that is there is not made anew" conditionally 'If-None-Match: *' /images/disk.img
ok "an object that was changed is not replaced" conditionally 'If-Match: "0123456789abcdef0123456789abcdef"' /images/disk.img
ok "a disk is made and written" disk "$name" zeroes "random 1 300" verify flush close open verify
ok "another process reads and changes it" disk "$name" probe "dump $tmp/before" "load $tmp/before" "random 2 300" flush \
	verify close open verify "discard 0 4M" "zero 8M 100k" flush close open verify "dump $tmp/before"
ok "it is as before" disk "$name" "load $tmp/before" verify
ok "its process dies" disk "$name" "load $tmp/before" "random 3 300" flush crash open verify "random 4 100" flush crash open verify
mapfile -t lines < <(many)
ok "many objects, and its process dies" disk 'many &<more>' "${lines[@]}" flush crash open verify close open verify
echo "1..$n"
exit $bad
