#!/bin/bash
# In the guest: file systems on the devices; the effects of discard and write zeroes.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 900 || exit 1
cat >"$work/fs.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: mem, queues: 2, backend: {type: mem, size: 400MiB}}
  - {name: file, queues: 2, backend: {type: file, path: /mnt/ram/f, size: 400MiB, create: true}}
EOF
start_daemon "$work/fs.yaml"
tree=$(dirname "$(dirname "$here")")

copy_tree() {
	local device=$1 type=$2 where=/mnt/fs
	mkdir -p $where
	mkfs."$type" "$([ "$type" = ext4 ] && echo -F || echo -f)" -q "$device" || return
	mount "$device" $where || return
	cp -r "$tree"/{base,reactor,ublk,backends,config} /usr/bin/fio $where/ && sync
	umount $where || return
	case $type in
	ext4) fsck.ext4 -fn "$device" || return ;;
	xfs) xfs_repair -n "$device" || return ;;
	esac
	mount "$device" $where || return
	for d in base reactor ublk backends config; do diff -r "$tree/$d" $where/$d || return; done
	cmp /usr/bin/fio $where/fio
	local code=$?
	umount $where
	return $code
}

ok "mem: ext4, a tree copied, checked, compared" copy_tree "$(node mem)" ext4
ok "file: xfs, a tree copied, checked, compared" copy_tree "$(node file)" xfs
if [ -n "${UBLKD_SOAK:-}" ]; then
	ok "mem: xfs, a tree copied, checked, compared" copy_tree "$(node mem)" xfs
	ok "file: ext4, a tree copied, checked, compared" copy_tree "$(node file)" ext4
fi

# zeroed DEVICE OFFSET BYTES
zeroed() {
	cmp -n "$3" <(dd if="$1" bs=4096 iflag=direct,skip_bytes,count_bytes skip="$2" count="$3" \
		status=none) /dev/zero
}

fill() { dd if=/dev/urandom of="$1" bs=1M count=32 oflag=direct status=none; }

discard_reads_zero() {
	local device=$1 option=$2
	fill "$device" || return
	# shellcheck disable=SC2086
	blkdiscard -f $option -o 1048576 -l 20971520 "$device" || return
	! zeroed "$device" 0 1048576 && zeroed "$device" 1048576 20971520 &&
		! zeroed "$device" 22020096 1048576
}

unaligned_zeroes() {
	local device=$1
	fill "$device" || return
	blkdiscard -f -z -o 512 -l 1050112 "$device" || return
	zeroed "$device" 4096 1044480
}

used_kib() { du -k "$1" | cut -f1; }

for name in mem file; do
	device=$(node $name)
	ok "$name: blkdiscard reads back zeroes" discard_reads_zero "$device" ""
	ok "$name: blkdiscard -z reads back zeroes" discard_reads_zero "$device" -z
	ok "$name: zeroes from sector 1 on" unaligned_zeroes "$device"
done

file_gives_space_back() {
	local device before
	device=$(node file)
	fill "$device" && before=$(used_kib /mnt/ram/f)
	blkdiscard -f "$device" && [ "$(used_kib /mnt/ram/f)" -lt $((before / 4)) ]
}
memory_of() { awk '/^Shmem:/ { print $2 }' /proc/meminfo; }
mem_gives_memory_back() {
	local device before
	device=$(node mem)
	fill "$device" && before=$(memory_of)
	blkdiscard -f "$device" && [ "$(memory_of)" -lt $((before - 24000)) ]
}
ok "discard frees the file's space" file_gives_space_back
ok "discard frees the memory" mem_gives_memory_back
finish
