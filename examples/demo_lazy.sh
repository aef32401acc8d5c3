#!/bin/bash
# The demo of lazy disks: nginx has the image of a disk with a file system. A device of it, writable by a
# qcow2 overlay and with a cache on this machine, is used at once, and fetches what is read alone. Then the
# server ends, and what has been read still reads. ./dev demo --lazy runs it on this machine or in the test
# guest. Needs root, the ublk driver, and nginx: installed, or in build/vm/nginx (test/vm/nginx.sh).
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/demo_lib.sh"

nginx=$here/../build/vm/nginx/nginx
if [ ! -x "$nginx" ]; then nginx=$(command -v nginx) || { echo "demo: nginx is missing" >&2; exit 1; }; fi
server=''
end_server() {
	[ -n "$server" ] || return 0
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
	server=''
}
undo() { if [ "$1" = last ]; then end_server; fi; }

image_bytes=$((256 << 20))

# Two files: one that is used, and a large one that nobody needs.
make_image() {
	mkdir -p "$work/www" "$work/files" "$work/nginx"
	cp -r "$here" "$work/files/"
	dd if=/dev/urandom of="$work/files/used" bs=1M count=8 status=none
	dd if=/dev/urandom of="$work/files/large" bs=1M count=100 status=none
	truncate -s $image_bytes "$work/www/base.img"
	mkfs.ext4 -q -F -d "$work/files" "$work/www/base.img"
}

start_server() {
	cat >"$work/nginx.conf" <<CONF
daemon off;
pid $work/nginx.pid;
error_log $work/nginx/error.log;
events {}
http {
	access_log off;
	client_body_temp_path $work/nginx/1; proxy_temp_path $work/nginx/2; fastcgi_temp_path $work/nginx/3;
	uwsgi_temp_path $work/nginx/4; scgi_temp_path $work/nginx/5;
	server { listen 127.0.0.1:8080; root $work/www; }
}
CONF
	chmod 755 "$work" # its workers are nobody
	ip link set lo up 2>/dev/null || true
	"$nginx" -p "$work/nginx" -e "$work/nginx/error.log" -c "$work/nginx.conf" >"$work/nginx.log" 2>&1 &
	server=$!
	for _ in $(seq 100); do
		if [ -s "$work/nginx.pid" ]; then return 0; fi
		sleep 0.1
	done
	cat "$work/nginx.log" >&2
	return 1
}

# Of the answers to this device.
fetched() { ctl --json show vm-1 | jq '[.connections[].received_bytes] | add'; }
say_fetched() {
	local bytes
	bytes=$(fetched)
	echo "   fetched: $((bytes >> 10)) KiB of an image of $((image_bytes >> 10)) KiB ($((100 * bytes / image_bytes))%)"
}

step "an image on a web server: $((image_bytes >> 20)) MiB with a file system"
make_image
start_server

step "a writable disk of it, from $here/demo_lazy.yaml"
serve demo_lazy.yaml "s|/srv/vm-1.qcow2|$work/vm-1.qcow2|" "s|/var/cache/ublkd/base|$work/base.cache|"
disk=$(node vm-1)

step "it is mounted: what is read is fetched, and kept"
mkdir -p "$work/mnt"
mount "$disk" "$work/mnt"
cmp "$work/mnt/used" "$work/files/used"
say_fetched

step "it is written: that goes to an overlay on this machine"
cp "$work/mnt/used" "$work/mnt/copy"
sync -f "$work/mnt"
echo "   the overlay: $(stat -c '%b' "$work/vm-1.qcow2" | awk '{ print int($1 / 2) }') KiB"
ctl show vm-1 | grep -E '^(CACHE|MODE|NODE|IMAGE|vm-1|QUEUE| +[0-9])' || true

step "the server ends: what has been read still reads"
umount "$work/mnt"
end_server
mount "$disk" "$work/mnt"
cmp "$work/mnt/used" "$work/files/used" && cmp "$work/mnt/copy" "$work/files/used"
echo "   both files are right, with nobody to ask"
if cat "$work/mnt/large" >/dev/null 2>&1; then echo "demo: a file that was never read is there" >&2 && exit 1; fi
echo "   a file that was never read gives an error, after the two seconds that its requests wait"

step "the server is back: so is all the rest"
rm -f "$work/nginx.pid"
start_server
for _ in $(seq 100); do
	if cmp "$work/mnt/large" "$work/files/large" 2>/dev/null; then break; fi
	sleep 0.1
done
cmp "$work/mnt/large" "$work/files/large"
say_fetched

step "everything is removed"
umount "$work/mnt"
remove "$disk"
end_server

finished "a disk used before it was copied, written, and read without its server"
