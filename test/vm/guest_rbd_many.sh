#!/bin/bash
# In the guest: sixteen images of one cluster under load, by one ublkd and by sixteen rbd-nbd: threads and memory.
# With --soak: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_rbd_lib.sh"

images=16

if ! ceph_up memstore; then
	skip "rbd" "$ceph_why"
	finish
fi

make_images() {
	local i
	for ((i = 0; i < images; i++)); do rbd create --size 16M "rbd/i$i" || return; done
}
ok "a cluster, $images images" make_images

# load DEVICE...: all at once, 4k at QD32
load() {
	local device jobs=()
	for device; do jobs+=("--name=j${#jobs[@]}" "--filename=$device"); done
	fio --ioengine=libaio --direct=1 --rw=randrw --bs=4k --iodepth=32 --io_size=4M --minimal "${jobs[@]}"
}

# use PID...: sets $threads, $rss_kib and $pss_kib, the sums; pages that several processes have count once in the latter.
use() {
	local pid key value _
	threads=0 rss_kib=0 pss_kib=0
	for pid; do
		while read -r key value _; do
			case $key in
			Threads:) threads=$((threads + value)) ;;
			VmRSS:) rss_kib=$((rss_kib + value)) ;;
			Pss:) pss_kib=$((pss_kib + value)) ;;
			esac
		done < <(cat "/proc/$pid/status" "/proc/$pid/smaps_rollup")
	done
	echo "# $what: $# processes, $threads threads, RSS $((rss_kib / 1024)) MiB, PSS $((pss_kib / 1024)) MiB"
}

# ---- ublkd ----

config() {
	local i
	printf 'daemon: {reactors: %s}\ndevices:\n' "$reactors"
	for ((i = 0; i < images; i++)); do
		echo "  - {name: i$i, queues: 1, backend: {type: rbd, uri: \"rbd:rbd/i$i\", conf: $ceph_dir/ceph.conf,"
		echo "     keyring: $ceph_dir/keyring}}"
	done
}
config >"$work/many.yaml"
devices() { mapfile -t blocks < <(find /dev -name 'ublkb*'); [ ${#blocks[@]} = $images ]; }
ok "one ublkd serves them" eval 'start_daemon "$work/many.yaml" && wait_for 120 devices'
ok "... under load" load "${blocks[@]}"
what='ublkd'
use "$daemon_pid"
ours_threads=$threads ours_rss=$rss_kib ours_pss=$pss_kib
ok "... and ends" stop_daemon

# ---- rbd-nbd ----

map_all() {
	local i
	modprobe nbd nbds_max=$images || return
	blocks=()
	for ((i = 0; i < images; i++)); do
		CEPH_CONF=$ceph_dir/ceph.conf rbd-nbd map --keyring "$ceph_dir/keyring" --device "/dev/nbd$i" "rbd/i$i" || return
		blocks+=("/dev/nbd$i")
	done
}
unmap_all() {
	local block
	for block in "${blocks[@]}"; do rbd-nbd unmap "$block" || return; done
}
ok "$images rbd-nbd serve them" map_all
ok "... under load" load "${blocks[@]}"
what='rbd-nbd'
# shellcheck disable=SC2046 # one process each
use $(pidof rbd-nbd)

ok "ublkd has less than an eighth of their threads" test $((ours_threads * 8)) -lt "$threads"
ok "... less than a fifth of their memory" test $((ours_rss * 5)) -lt "$rss_kib"
ok "... less than half of it if what processes share counts once" test $((ours_pss * 2)) -lt "$pss_kib"
ok "they end" unmap_all
cluster kill >/dev/null 2>&1
finish_rbd
