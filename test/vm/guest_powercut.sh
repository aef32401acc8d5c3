#!/bin/bash
# In the guest, until the host cuts the power (powercut.sh): a device in a new, sparse file on the
# ext4 of /dev/vda, records written to it, and notes of what was promised to last in a folder of the
# host. On a block device the kernel has a flush follow every write with RWF_DSYNC; on a file that needs
# no change of metadata it sends FUA alone. So for fua the records go to a file on the device.
#
#   guest_powercut.sh POWERCUT_PROGRAM NOTES SEED flush|fua|both DIRECT(on|off)
# Run by: test/vm/powercut.sh
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

program=$1 notes=$2 seed=$3 sync=$4 direct=$5
modprobe virtio_blk
wait_for 5 test -b /dev/vda || { echo "no /dev/vda" >&2; exit 1; }
mkdir -p /mnt/disk
# A periodic commit of the journal would hide a missing flush.
mount -t ext4 -o commit=300 /dev/vda /mnt/disk || exit 1
cat >"$work/cut.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - name: cut
    queues: 2
    backend: {type: file, path: /mnt/disk/file, size: 32MiB, create: true, direct: $direct}
YAML
start_daemon "$work/cut.yaml"
if ! ublkctl --json show cut | jq -e '.state == "live"' >/dev/null; then
	cat "$work/ublkd.log" >&2
	exit 1
fi

file_on_device() {
	mkdir -p /mnt/inner
	mkfs.ext4 -q -O ^has_journal "$target" && mount "$target" /mnt/inner || return
	target=/mnt/inner/file
	dd if=/dev/zero of=$target bs=1M count=8 conv=fsync status=none && sync
}

target=$(node cut)
if [ "$sync" = fua ]; then file_on_device || exit 1; fi
"$program" write "$target" "$notes" "$seed" "$sync"
