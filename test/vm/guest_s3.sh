#!/bin/bash
# In the guest: disks of objects, bare and below a cache that writes back. Content under fio verify, the store that is
# killed and back, the death and the upgrade of the daemon, snapshots, and at the end the objects, opened anew without
# the cache, have what the devices read. The store is Ceph's gateway with UBLKD_SOAK=1, else one of ours.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_rbd_lib.sh"
. "$here/guest_devices.sh"

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=10 upgrades=3
ram_disk 900 || exit 1
access=AKIDTEST secret='wJalr/secret+key='
endpoint=http://127.0.0.1:7480
umask 077
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' $access "$secret" >"$work/keys"
umask 022
ip link set lo up

# ---- the store ----

listens() { { exec {probe}<>/dev/tcp/127.0.0.1/7480; } 2>/dev/null && exec {probe}>&-; }
gateway() {
	radosgw -f -c "$ceph_dir/ceph.conf" -n client.admin --rgw-data="$work" --log-file="$work/rgw.log" --admin-socket= \
		--rgw-frontends="beast endpoint=127.0.0.1:7480" >"$work/rgw.out" 2>&1 &
	store_pid=$!
	wait_for 300 listens
}
make_gateway() {
	ceph_up bluestore || { echo "$ceph_why" && return 1; }
	gateway && radosgw-admin -c "$ceph_dir/ceph.conf" -n client.admin user create --uid=u --display-name=u \
		--access-key=$access --secret-key="$secret" &&
		python3 "$here/../interop/s3_signature.py" $endpoint $access "$secret" us-east-1 /disks
}
# Its objects are in its memory: to kill it is to close its connections and not to listen.
ours() {
	"$here/../interop/s3_store.py" --listen 127.0.0.1:7480 --control "$work/store.sock" --set page=50 \
		--set "s3=$access:$secret:us-east-1" >"$work/store.log" 2>&1 &
	store_pid=$!
	wait_for 60 listens
}
tell() { # COMMAND
	socat -t 60 - "UNIX-CONNECT:$work/store.sock" <<<"$1" | grep '^ok'
}
if [ -n "${UBLKD_SOAK:-}" ] && command -v radosgw >/dev/null; then
	ok "Ceph's gateway" make_gateway
	kill_store() { kill -9 $store_pid; }
	start_store() { gateway; }
	end_store() { kill -9 $store_pid && cluster stop; }
else
	ok "a store" ours
	kill_store() { tell down; }
	start_store() { tell up; }
	end_store() { kill $store_pid; }
fi

# ---- devices ----

disk() { # PREFIX [OPTION]
	echo "{type: s3-disk, bucket: disks, prefix: $1, endpoint: '$endpoint', credentials_file: $work/keys, lease: 10s, timeout: 30s," \
		"on_disconnect: {queue: 5m}${2:+, $2}}"
}
new='create: true, size: 24MiB, object_size: 256KiB'
cat >"$work/s3.yaml" <<YAML
daemon: {reactors: $reactors, open_timeout: 60s}
devices:
  - {name: bare, depth: 32, backend: $(disk bare "$new")}
  - name: cached
    depth: 32
    backend: {type: cache, mode: writeback, dirty_time: 300ms, backend: $(disk cached "$new"), store: {type: file, path: /mnt/ram/cache, size: 48MiB, create: true}}
YAML
all='bare cached'
# shellcheck disable=SC2086 # words
live() { wait_for 120 are_live $all; }
ok "two devices start" eval 'start_daemon "$work/s3.yaml" && live'
for name in $all; do
	ok "$name: fio verify" verify_one $name
	ok "$name: zeroes where a range was discarded" zeroed $name $((100 << 10)) $((9 << 20)) blkdiscard -f -z
done
ok "discards are of objects" limit_is bare discard_granularity $((256 << 10))
ok "a file system" file_system cached

# ---- the store dies, the daemon dies, under loads ----

for name in $all; do load $name; done
ok "the store is killed: requests wait" eval 'kill_store && stands bare'
ok "... why-stuck says for what" wait_for 20 said 's3-disk: (the server|waiting for one of the (buffers|connections))' ublkctl why-stuck bare
ok "... it is back: they go on" eval 'start_store && works bare && works cached'
# shellcheck disable=SC2086 # words
ok "killed $kills times, it serves again" kill_and_start $kills "$work/s3.yaml" $all
ok "a snapshot under a load" ublkctl snapshot create bare one
# An emulated gateway takes longer for its requests than an upgrade waits for them.
if [ -n "${UBLKD_SOAK:-}" ]; then ok "no error, no mismatch" load_ends; fi
if driver_has QUIESCE; then ok "upgraded" upgrade $upgrades; fi
if [ -z "${UBLKD_SOAK:-}" ]; then ok "no error, no mismatch" load_ends; fi
ok "no error has reached the block layer" no_io_error

# ---- afterwards ----

for name in $all; do dd if="$(blk $name)" of="/mnt/ram/$name.raw" bs=1M iflag=direct status=none; done
ok "the snapshot is listed" said 'one' ublkctl snapshot list bare
ok "it ends" end_server
cat >"$work/bare.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: bare, depth: 32, backend: $(disk bare)}
  - {name: cached, depth: 32, backend: $(disk cached)}
  - {name: one, depth: 32, read_only: true, backend: $(disk bare 'snapshot: one')}
YAML
ok "the objects are opened without a cache" eval 'start_daemon "$work/bare.yaml" && live && are_live $all one'
for name in $all; do ok "$name: they have what the device read" cmp "/mnt/ram/$name.raw" "$(blk $name)"; done
ok "the snapshot can be read" dd if="$(blk one)" of=/dev/null bs=1M iflag=direct status=none
ok "the daemon ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
end_store >/dev/null 2>&1
finish
