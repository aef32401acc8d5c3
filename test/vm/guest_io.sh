#!/bin/bash
# In the guest: data integrity under fio on mem and file (direct and buffered), one and two queues,
# queue depths 1, 32 and 128, block sizes from 512 bytes to 1 MiB in unaligned mixes.
# Runs on: uml
# With --all: 7.2, 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 700 || exit 1
cat >"$work/io.yaml" <<'EOF'
daemon: {reactors: [0, 1]}
devices:
  - {name: mem1, queues: 1, backend: {type: mem, size: 96MiB}}
  - {name: mem2, queues: 2, backend: {type: mem, size: 96MiB}}
  - {name: direct1, queues: 1, backend: {type: file, path: /mnt/ram/d1, size: 96MiB, create: true, direct: on}}
  - {name: direct2, queues: 2, backend: {type: file, path: /mnt/ram/d2, size: 96MiB, create: true, direct: on}}
  - {name: buffered1, queues: 1, backend: {type: file, path: /mnt/ram/b1, size: 96MiB, create: true, direct: off}}
  - {name: buffered2, queues: 2, block_size: 4096, backend: {type: file, path: /mnt/ram/b2, size: 96MiB, create: true, direct: off}}
EOF
start_daemon "$work/io.yaml"

for name in mem1 mem2 direct1 direct2 buffered1 buffered2; do
	device=$(node $name)
	smallest=512
	if [ $name = buffered2 ]; then smallest=4096; fi
	ok "$name: QD1 4k" verify "$device" --bs=4k --iodepth=1 --size=4M
	ok "$name: QD32 mixed blocks" verify "$device" --iodepth=32 --size=48M --io_size=24M \
		--bsrange=$smallest-1M --blockalign=$smallest --bs_unaligned=0
	ok "$name: QD128 two jobs" verify "$device" --iodepth=64 --numjobs=2 --size=32M --io_size=8M \
		--offset_increment=48M --bsrange=$smallest-64k --blockalign=$smallest
done

same_after_restart() {
	local before after
	before=$(md5sum </mnt/ram/d2)
	after=$(md5sum <"$(node direct2)")
	[ "$before" = "$after" ]
}
ok "the file holds what the device shows" same_after_restart
finish
