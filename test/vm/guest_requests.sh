#!/bin/bash
# In the guest: no limit that a device says costs its users requests. What a file system writes and reads for the same files
# is counted on a device of ours, on a loop device and on null_blk of the same size. A backend without an optimal size was
# once told as one of 4 KiB: btrfs wrote a hundred times as many requests.
# Runs on: uml
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 1700 || exit 1
size=512
cat >"$work/one.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: mem, backend: {type: mem, size: ${size}MiB}}
  - {name: file, backend: {type: file, path: /mnt/ram/file, size: ${size}MiB, create: true}}
YAML
ok "a daemon starts" start_daemon "$work/one.yaml"
modprobe loop && modprobe null_blk nr_devices=1 gb=1 memory_backed=1 bs=512
truncate -s ${size}M /mnt/ram/loop
declare -A disk=([mem]=$(node mem) [file]=$(node file) [loop]=$(losetup -f --show --direct-io=on /mnt/ram/loop) [null]=/dev/nullb0)

# From the driver's counters: requests, and sectors.
counted() { # DISK FIELD...
	local all
	read -r -a all <"/sys/block/${disk[$1]##*/}/stat"
	echo $((all[$2] + ${3:+all[$3]} + 0))
}
# used DISK TYPE: what it takes to write 64 MiB, in large and in small files, and to read them: requests of writes and reads.
declare -A requests
used() {
	local where=/mnt/fs at_first
	mkdir -p $where
	mkfs."$2" "$([ "$2" = ext4 ] && echo -F || echo -f)" -q "${disk[$1]}" || return
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
is_no_more() { # TYPE DISK
	local others=${requests[$1 loop]}
	[ "${requests[$1 null]}" -ge "$others" ] || others=${requests[$1 null]}
	echo "# $1: $2 ${requests[$1 $2]}, loop ${requests[$1 loop]}, null_blk ${requests[$1 null]}" | tee -a "$work/table"
	[ "${requests[$1 $2]}" -le $((others * 6 / 5 + 20)) ]
}
for type in ext4 xfs btrfs; do
	modprobe -q $type
	for one in loop null mem file; do ok "$type on $one" used $one $type; done
	for one in mem file; do ok "$type: $one gets no more requests" is_no_more $type $one; done
done
cat "$work/table"
losetup -d "${disk[loop]}"
finish
