#!/bin/bash
# In the guest: no limit that a device says costs its users requests. What a file system writes and reads for the same files
# is counted on a device of ours, on a loop device and on null_blk of the same size. A backend without an optimal size was
# once told as one of 4 KiB: btrfs wrote a hundred times as many requests. So did one of an NBD server's preferred block,
# and of the granularity of an NVMe namespace.
# Runs on: uml
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_nvme_lib.sh"

ram_disk 1700 || exit 1
ip link set lo up
size=512
all=(mem file qcow2) zoned=()
modprobe loop
ok "an image" ublkctl create-image /mnt/ram/image --size ${size}M
cat >"$work/one.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: mem, backend: {type: mem, size: ${size}MiB}}
  - {name: file, backend: {type: file, path: /mnt/ram/file, size: ${size}MiB, create: true}}
  - {name: qcow2, backend: {type: qcow2, data: {type: file, path: /mnt/ram/image}}}
  - {name: zoned, backend: {type: zoned, zones: {size: 8MiB}, backend: {type: mem, size: ${size}MiB}}}
YAML
# also_on NAME BACKEND: one more backend, by itself and below zones
also_on() {
	all+=("$1") zoned+=("zoned-$1")
	cat >>"$work/one.yaml" <<-YAML
		  - {name: $1, backend: $2}
		  - {name: zoned-$1, backend: {type: zoned, zones: {size: 8MiB}, backend: ${2//$1-0/$1-1}}}
	YAML
}
# A server that prefers blocks of 4 KiB, as each qemu-nbd does.
if command -v qemu-nbd >/dev/null; then
	for i in 0 1; do
		truncate -s ${size}M "/mnt/ram/nbd-$i"
		qemu-nbd -t -e 8 -f raw -k "$work/nbd-$i" "/mnt/ram/nbd-$i" &
	done
	ok "NBD servers" wait_for 20 test -S "$work/nbd-0" -a -S "$work/nbd-1"
	also_on nbd "{type: nbd, uri: \"nbd+unix:///?socket=$work/nbd-0\"}"
fi
# On a loop device nvmet tells the granularity of a page.
if nvmet_up; then
	nqn=nqn.2026-01.org.example:nvme
	on_nvmet() {
		nvmet_subsystem $nqn-0 "$(loop_disk /mnt/ram/nvme-0 ${size}M)" &&
			nvmet_subsystem $nqn-1 "$(loop_disk /mnt/ram/nvme-1 ${size}M)" &&
			nvmet_port 1 127.0.0.1 4420 && nvmet_link 1 $nqn-0 && nvmet_link 1 $nqn-1
	}
	ok "an NVMe target" on_nvmet
	also_on nvme "{type: nvme-tcp, host: 127.0.0.1, subsystem: \"$nqn-0\"}"
fi
ok "a daemon starts" start_daemon "$work/one.yaml"
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 bs=512
truncate -s ${size}M /mnt/ram/loop
declare -A disk=([loop]=$(losetup -f --show --direct-io=on /mnt/ram/loop) [null]=/dev/nullb0)
for one in "${all[@]}" zoned "${zoned[@]}"; do disk[$one]=$(node "$one"); done

# From the driver's counters: requests, and sectors.
counted() { # DISK FIELD...
	local all
	read -r -a all <"/sys/block/${disk[$1]##*/}/stat"
	echo $((all[$2] + ${3:+all[$3]} + 0))
}
make() { # TYPE DISK
	case $2 in
	zoned*) mkfs.btrfs -f -q -O zoned -d single -m single "${disk[$2]}" ;;
	*) mkfs."$1" "$([ "$1" = ext4 ] && echo -F || echo -f)" -q "${disk[$2]}" ;;
	esac
}
# used DISK TYPE: what it takes to write 64 MiB, in large and in small files, and to read them: requests of writes and reads.
declare -A requests
used() {
	local where=/mnt/fs at_first
	mkdir -p $where
	make "$2" "$1" || return
	mount "${disk[$1]}" $where || return
	at_first=$(counted "$1" 0 4)
	dd if=/dev/zero of=$where/large bs=1M count=48 conv=fsync status=none
	for i in $(seq 64); do head -c 262144 /dev/zero >$where/$i; done
	umount $where && mount "${disk[$1]}" $where || return
	cat $where/large $where/[0-9]* >/dev/null
	umount $where
	requests[$2 $1]=$(($(counted "$1" 0 4) - at_first))
	echo "$2 on $1: ${requests[$2 $1]} requests"
}
# A fifth more than the better of the two others: commits come when they come.
is_no_more() { # TYPE DISK OTHER [OTHER]
	local others=${requests[$1 $3]} fourth=${4:-$3}
	[ "${requests[$1 $fourth]}" -ge "$others" ] || others=${requests[$1 $fourth]}
	echo "# $1: $2 ${requests[$1 $2]} (optimal $(cat "/sys/block/${disk[$2]##*/}/queue/optimal_io_size")), $3 ${requests[$1 $3]}" \
		"${4:+$4 ${requests[$1 $4]}}" | tee -a "$work/table"
	[ "${requests[$1 $2]}" -le $((others * 6 / 5 + 20)) ]
}
for type in ext4 xfs btrfs; do
	modprobe -q $type
	for one in loop null "${all[@]}"; do ok "$type on $one" used $one $type; done
	for one in "${all[@]}"; do ok "$type: $one gets no more requests" is_no_more $type "$one" loop null; done
done
for one in zoned "${zoned[@]}"; do ok "btrfs on $one" used "$one" btrfs; done
for one in "${zoned[@]}"; do ok "btrfs: $one gets no more requests than zones on mem" is_no_more btrfs "$one" zoned; done
cat "$work/table"
stop_daemon
nvmet_down
losetup -D
for i in $(pids qemu-nbd); do kill "$i"; done
finish
