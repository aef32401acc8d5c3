#!/bin/bash
# In the guest: what others write while no device has it open. A cache drops what it kept, and refuses to write what only
# it has, over a file, an image, a stripe, a disk of objects and an object of a web server, and asks over a disk that says no
# version; an overlay refuses another base. The commands that the words name help.
# Runs on: uml
# By turns: 7.2
# When these change: storage/version.c filters/cache backends/s3_disk backends/qcow2/qcow2_base.c backends/qcow2/qcow2_mark.c
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

ram_disk 400 || exit 1
ip link set lo up
access=AKIDTEST secret='wJalr/secret+key='
umask 077
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' $access "$secret" >"$work/keys"
umask 022

letters() { head -c $(($2 << 10)) < <(yes "$1" | tr -d '\n'); } # LETTER KIB
fill() { letters "$2" "$3" | dd of="$(blk "$1")" bs="$3K" iflag=fullblock oflag=direct conv=notrunc,fsync status=none; } # NAME LETTER KIB
has() { letters "$2" "$3" | cmp - <(dd if="$(blk "$1")" bs="$3K" count=1 iflag=direct status=none); } # NAME LETTER KIB
start() { start_daemon "$work/$1.yaml" && wait_for 60 are_live "$2"; } # YAML NAME
failed() { ublkctl --json list | jq -e --arg name "$1" '[.. | objects | select(.name? == $name)][0].state == "failed"' >/dev/null; }
# refused YAML NAME WORDS
refused() {
	start_daemon "$work/$1.yaml" && wait_for 60 failed "$2" || return
	said "$3" ublkctl show "$2"
}
cache_of() { ublkctl --json show "$1" | jq "[.. | objects | select(has(\"hit_ratio\"))][0].$2"; } # NAME FIELD
store_of() { ublkctl --json cache store "/mnt/ram/$1.store" | jq -c "$2"; } # NAME FILTER
# As the death of a machine: nothing of it is left but what is on disks. A daemon without devices removes those of the kernel.
printf 'devices: []\n' >"$work/none.yaml"
dies() {
	local nodes=(/dev/ublkc*)
	# shellcheck disable=SC2046 # words
	kill -9 $(server) $(pids ublkd-keeper)
	wait_for 20 no_server && wait_for 20 no_keeper || return
	rm -rf /run/ublkd/*
	start_daemon "$work/none.yaml" && wait_for 60 cleared "${nodes[@]#/dev/ublkc}" && wait_for 20 no_node && end_server
}
no_node() { ! find /dev -name 'ublk[bc]*' | grep .; }

# ---- a file below a cache ----

file_yaml() { # YAML MODE TRIGGER
	cat >"$work/$1.yaml" <<-YAML
		daemon: {reactors: $reactors}
		devices:
		  - name: file
		    backend:
		      type: cache
		      mode: $2
		      dirty_time: 1h
		      block: 64KiB
		      store: {type: file, path: /mnt/ram/file.store, size: 8MiB, create: true}
		      backend: {type: error, errno: EIO, op: [write], trigger: $3, backend: {type: file, path: /mnt/ram/file, size: 16MiB, create: true}}
	YAML
}
file_yaml through writethrough "$work/bad"
file_yaml back writeback "$work/bad"
cat >"$work/plain.yaml" <<YAML
daemon: {reactors: $reactors}
devices: [{name: file, backend: {type: file, path: /mnt/ram/file}}]
YAML
# Somebody writes to the file with no cache above.
plain() { start plain file && fill file "$1" "$2" && end_server; } # LETTER KIB
# It stops while the origin cannot be written.
undrained() { touch "$work/bad" && { end_server; rm "$work/bad"; }; }

ok "through: A is written and read" eval 'start through file && fill file A 1024 && has file A 1024 && end_server'
ok "through: ... and kept" eval 'start through file && has file A 1024 && [ "$(cache_of file moved_bytes)" = 0 ] && end_server'
ok "the file is written without the cache" plain B 512
ok "through: ... which is read" eval 'start through file && has file B 512 && [ "$(cache_of file moved_bytes)" -gt 0 ] && end_server'
ok "through: ... and told" grep -q 'the origin of a cache has been changed without it' "$work/ublkd.log"

ok "back: C is dirty" eval 'start back file && fill file C 1024 && [ "$(cache_of file dirty_bytes)" = 1048576 ]'
ok "back: a store that is in use is refused" said 'in use' ublkctl cache store /mnt/ram/file.store
ok "back: it ends, and C stays dirty" undrained
ok "back: ... of which the store says how much" eval 'store_of file "[.dirty_bytes, (.dirty[] | .offset, .length), .done]" | tee /dev/stderr | grep -qF "[1048576,0,1048576,null]"'
ok "back: nobody wrote: C is read" eval 'start back file && has file C 1024 && undrained'
ok "the file is written without the cache" plain D 512
ok "back: the device is refused, in words" refused back file 'has 1048576 bytes that were never written to the origin, which was changed without the cache.*--discard.*--force'
ok "back: it ends" end_server
ok "back: ... also in another mode" refused through file 'changed without the cache'
ok "back: it ends" end_server
ok "back: ... and the file has what was written last" eval 'start plain file && has file D 512 && end_server'
ok "back: the store is shown" said '1.*MiB dirty' ublkctl cache store /mnt/ram/file.store
cp /mnt/ram/file.store /mnt/ram/copy.store
ok "back: C is forced" said '1.*MiB are written over the origin' ublkctl cache store /mnt/ram/file.store --force
ok "back: ... and read, and written" eval 'start back file && has file C 1024 && end_server && start plain file && has file C 1024 && end_server'
cp /mnt/ram/copy.store /mnt/ram/file.store
ok "the file is written without the cache" plain E 512
ok "back: C is discarded" said '1.*MiB discarded' ublkctl cache store /mnt/ram/file.store --discard
ok "back: ... and the file is read" eval 'start back file && has file E 512 && end_server'
ok "what is no store is refused" said 'no store of a cache' ublkctl cache store /mnt/ram/file

# ---- an image, a stripe, and a disk without a version below a cache ----

below() { # YAML MODE BACKEND: `file` over it, and alone as YAML.plain
	cat >"$work/$1.yaml" <<-YAML
		daemon: {reactors: $reactors}
		devices: [{name: file, backend: {type: cache, mode: $2, origin_id: $1, dirty_time: 1h, block: 64KiB, store: {type: file, path: /mnt/ram/$1.store, size: 8MiB, create: true}, backend: $3}}]
	YAML
	printf 'daemon: {reactors: %s}\ndevices: [{name: file, backend: %s}]\n' "$reactors" "$3" >"$work/$1.plain.yaml"
}
failing() { echo "{type: error, errno: EIO, op: [write, flush], trigger: $work/bad, backend: {type: file, path: $1}}"; }
kept() { start "$1" file && has file "$2" 1024 && [ "$(cache_of file moved_bytes)" = 0 ]; } # YAML LETTER
alone() { start "$1.plain" file && fill file "$2" 512 && end_server; } # YAML LETTER

qemu-img create -q -f qcow2 /mnt/ram/image.qcow2 16M
below image writeback "{type: qcow2, data: $(failing /mnt/ram/image.qcow2)}"
below image.through writethrough "{type: qcow2, data: {type: file, path: /mnt/ram/image.qcow2}}"
sed -i 's/image.through.store/image.store/; s/origin_id: image.through/origin_id: image/' "$work/image.through.yaml"
ok "image: A is written, and kept over a stop" eval 'start image file && fill file A 1024 && end_server && kept image A && end_server'
ok "image: ... over the death of the machine, with B" eval 'start image file && fill file B 1024 && dies && kept image B && [ "$(cache_of file dirty_bytes)" = 1048576 ]'
ok "image: ... over a stop that does not write B" undrained
ok "image: ... also if it is opened meanwhile, and not written" eval 'start image.plain file && end_server && kept image B && undrained'
ok "image: it is written without the cache" alone image C
ok "image: the device is refused" refused image file 'has 1048576 bytes that were never written to the origin, which was changed without the cache'
ok "image: it ends" end_server
ok "image: ... and C is there" eval 'start image.plain file && has file C 512 && end_server'
ok "image: B is discarded, and D is dirty" eval 'ublkctl cache store /mnt/ram/image.store --discard && start image file && fill file D 1024 && undrained && kept image D && undrained'
ok "image: QEMU writes to it" qemu-io -f qcow2 -c 'write -P 69 0 512k' /mnt/ram/image.qcow2
ok "image: the device is refused" refused image file 'was changed without the cache'
ok "image: it ends" end_server
ok "image: D is forced" eval 'ublkctl cache store /mnt/ram/image.store --force && start image file && has file D 1024 && end_server'
ok "image: through: D is read" kept image.through D
ok "image: it ends" end_server
for _ in 1 2; do
	ok "image: QEMU writes to it" qemu-io -f qcow2 -c 'write -P 69 0 512k' /mnt/ram/image.qcow2
	ok "image: through: ... which is read" eval 'start image.through file && has file E 512 && [ "$(cache_of file moved_bytes)" -gt 0 ] && end_server'
done
ok "image: qemu-img likes it" qemu-img check /mnt/ram/image.qcow2

truncate -s 8M /mnt/ram/s1 /mnt/ram/s2
below stripe writeback "{type: stripe, backends: [$(failing /mnt/ram/s1), $(failing /mnt/ram/s2)]}"
ok "stripe: A is written, and kept over a stop" eval 'start stripe file && fill file A 1024 && end_server && kept stripe A'
ok "stripe: B is dirty, and kept over another" eval 'fill file B 1024 && undrained && kept stripe B && undrained'
ok "stripe: it is written without the cache" alone stripe C
ok "stripe: the device is refused" refused stripe file 'was changed without the cache'
ok "stripe: it ends" end_server
ok "stripe: B is discarded, and C is read" eval 'ublkctl cache store /mnt/ram/stripe.store --discard && start stripe file && has file C 512 && end_server'

truncate -s 16M /mnt/ram/disk
modprobe -q loop
loop=$(losetup -f --show /mnt/ram/disk)
below disk writeback "$(failing "$loop")"
ok "disk: A is written, and kept over a stop" eval 'start disk file && fill file A 1024 && end_server && kept disk A'
ok "disk: B is dirty, and a kill asks nothing" eval 'fill file B 1024 && kill -9 "$(server)" && wait_for 20 no_server && kept disk B'
ok "disk: it ends, and B stays dirty" undrained
ok "disk: ... which is said" grep -q 'bytes are in its .store. alone.*a start with this cache asks whether to write them there' "$work/ublkd.log"
ok "disk: it is written without the cache" alone disk C
ok "disk: the device is refused" refused disk file 'has 1048576 bytes that were never written to the origin, which did not take them then, and may have been changed since.*--discard.*--force'
ok "disk: it ends" end_server
ok "disk: ... and C is there" eval 'start disk.plain file && has file C 512 && end_server'
ok "disk: B is forced" eval 'ublkctl cache store /mnt/ram/disk.store --force && start disk file && has file B 1024'
ok "disk: ... and its machine dies" dies
ok "disk: B is written over what others may have written, which is told" eval 'start disk file && has file B 1024 && grep -q "whether others have written there since is not known" "$work/ublkd.log" && end_server'
losetup -d "$loop"

# ---- a disk of objects below a cache, another host ----

listens() { { exec {probe}<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null && exec {probe}>&-; }
"$here/../interop/s3_store.py" --listen 127.0.0.1:7480 --control "$work/store.sock" --set "s3=$access:$secret:us-east-1" \
	>"$work/store.log" 2>&1 &
s3_pid=$!
ok "a store of objects" wait_for 60 listens 7480
disk="type: s3-disk, bucket: disks, prefix: vm, create: true, size: 16MiB, object_size: 256KiB, endpoint: 'http://127.0.0.1:7480',
  credentials_file: $work/keys, lease: 6s, timeout: 5s, on_disconnect: {queue: 60s}"
s3_yaml() { # YAML MODE
	cat >"$work/$1.yaml" <<-YAML
		daemon: {reactors: $reactors, open_timeout: 60s}
		devices: [{name: s3, backend: {type: cache, mode: $2, dirty_time: 1h, store: {type: file, path: /mnt/ram/s3.store, size: 32MiB, create: true}, backend: {$disk}}}]
	YAML
}
s3_yaml here writeback
s3_yaml gone writeback
sed -i 's|/mnt/ram/s3.store, size: 32MiB, create: true|/mnt/gone/s3.store|' "$work/gone.yaml"
cat >"$work/other.yaml" <<YAML
daemon: {reactors: $reactors, open_timeout: 60s}
devices: [{name: s3, backend: {$disk}}]
YAML
ok "s3: A is dirty, and its machine dies" eval 'start here s3 && fill s3 A 1024 && dies'
ok "s3: a store that is not there is refused" eval 'refused gone s3 "does not exist" && end_server'
ok "s3: another host that writes nothing" eval 'start other s3 && end_server'
ok "s3: A is there still" eval 'start here s3 && has s3 A 1024 && [ "$(cache_of s3 dirty_bytes)" = 1048576 ]'
ok "s3: ... and its machine dies" dies
ok "s3: another host writes B" eval 'start other s3 && fill s3 B 1024 && end_server'
ok "s3: the first one refuses A" refused here s3 'has 1048576 bytes that were never written to the origin, which was changed without the cache'
ok "s3: it ends" end_server
ok "s3: the disk has B" eval 'start other s3 && has s3 B 1024 && end_server'
ok "s3: A is discarded" ublkctl cache store /mnt/ram/s3.store --discard
ok "s3: ... and B is read" eval 'start here s3 && has s3 B 1024'
# Its own snapshots are not another's writes.
ok "s3: C, a snapshot, D, and its machine dies" eval 'fill s3 C 256 && ublkctl snapshot create s3 one && fill s3 D 512 && dies'
ok "s3: D is there" eval 'start here s3 && has s3 D 512 && end_server'
kill $s3_pid

# ---- an object of a web server ----

cat >"$work/server.py" <<'PYTHON'
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        first, last = (int(n) for n in self.headers["Range"][6:].split("-"))
        letter = open(sys.argv[1]).read()
        body = letter.encode() * (last - first + 1)
        self.send_response(206)
        # A small letter: it says no version. A digit: an ETag that is long.
        if not letter.islower():
            self.send_header("ETag", f'"{letter.rjust(300, "x") if letter.isdigit() else letter}"')
        for name, value in (("Content-Range", f"bytes {first}-{last}/1048576"), ("Content-Length", len(body))):
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
PYTHON
object() { printf %s "$1" >"$work/object"; }
object A
python3 "$work/server.py" "$work/object" 2>"$work/server.log" &
web_pid=$!
ok "a web server" wait_for 60 listens 8080

web="{type: http, url: 'http://127.0.0.1:8080/base.img'}"
overlay() { # NAME BACKING [OPTION]
	cat >"$work/$1.yaml" <<-YAML
		daemon: {reactors: $reactors}
		devices:
		  - {name: web, backend: {type: cache, origin_id: base, backend: $web, store: {type: file, path: /mnt/ram/web.store, size: 8MiB, create: true}}}
		  - {name: $1, backend: {type: qcow2, create: true, ${3:-} data: {type: file, path: /mnt/ram/$1.qcow2, create: true}, backing: $2}}
	YAML
}
reads() { [ "$(dd if="$(blk "$1")" bs=4k skip=32 count=1 iflag=direct status=none | head -c 1)" = "$2" ]; } # NAME LETTER
overlay over "$web"
overlay deep "{type: shared, name: base, backend: {type: cache, backend: $web, store: {type: file, path: /mnt/ram/base.store, size: 8MiB, create: true}}}"
cp "$work/over.yaml" "$work/over.before.yaml"
for name in over deep; do
	object A
	ok "$name: an overlay over A" eval "start $name $name && wait_for 60 are_live web && fill $name X 64 && reads $name A && reads web A && end_server"
	ok "$name: qemu-img likes it" qemu-img check "/mnt/ram/$name.qcow2"
	ok "$name: ... starts again" eval "start $name $name && has $name X 64 && reads $name A && end_server"
	object B
	ok "$name: over another base it is refused" refused $name $name 'backing. has changed.*ETag "A".*ETag "B".*accept_base: [0-9a-f]{16}'
	token=$(ublkctl show $name | grep -oE 'accept_base: [0-9a-f]{16}')
	ok "$name: a cache of the object has no old byte" eval 'wait_for 60 are_live web && reads web B && [ "$(cache_of web moved_bytes)" -gt 0 ]'
	ok "$name: it ends" end_server
	object A
	ok "$name: over the old one it is live" eval "start $name $name && reads $name A && end_server"
	object B
	sed -i "s/create: true, *data/create: true, $token, data/" "$work/$name.yaml"
	ok "$name: it is used over the new one on purpose" eval "start $name $name && has $name X 64 && reads $name B && end_server"
	ok "$name: qemu-img likes it" qemu-img check "/mnt/ram/$name.qcow2"
	object C
	ok "$name: ... and over no other" refused $name $name 'backing. has changed.*ETag "B".*ETag "C"'
	ok "$name: it ends" end_server
done
object B
ok "over: what was accepted is noted" eval 'start over.before over && reads over B && end_server'
object D
ok "the machine dies, and the base changes" eval 'object B; start over over && dies && object D'
ok "over: it is refused" refused over over 'backing. has changed'
ok "over: it ends" end_server
object b
ok "over: a server that says no version any more is refused" refused over over 'ETag "B" 1048576, not size 1048576.*accept_base: [0-9a-f]{16}'
ok "over: it ends" end_server
overlay long "$web"
object 1
ok "long: an overlay over an object with a long ETag" eval 'start long long && wait_for 60 are_live web && reads long 1 && reads web 1 && end_server'
object 2
ok "long: over another one it is refused" refused long long 'backing. has changed'
ok "long: a cache of the object has no old byte" eval 'wait_for 60 are_live web && reads web 2'
ok "long: it ends" end_server
ok "an image between that nobody of ours writes" qemu-img create -q -f qcow2 /mnt/ram/mid.qcow2 1M
overlay chain "{type: qcow2, data: {type: file, path: /mnt/ram/mid.qcow2}, backing: $web}"
object A
ok "chain: an overlay over it, over A" eval 'start chain chain && fill chain X 64 && reads chain A && end_server'
object B
ok "chain: over another base it is refused" refused chain chain 'backing. has changed'
ok "chain: it ends" end_server
kill $web_pid
ok "no keeper is left" wait_for 10 no_keeper
finish
