#!/bin/bash
# In the guest: devices that keep metadata (type: integrity). The kernel makes checksums and compares them: what sysfs says,
# fio with content that it verifies, bytes and metadata that change behind the device and are found, what was discarded
# or never written, the death and the upgrade of the daemon meanwhile, a restart.
# Runs on: uml
# By turns: 7.2, 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=30 upgrades=5
ram_disk 600 || exit 1

cat >"$work/integrity.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - name: file
    depth: 64
    block_size: 512
    backend:
      type: integrity
      data: {type: file, path: /mnt/ram/file, size: 64MiB, create: true}
      metadata: {type: file, path: /mnt/ram/file.pi, create: true}
  - name: mem
    depth: 64
    block_size: 4096
    queues: 2
    backend:
      type: integrity
      data: {type: mem, size: 64MiB}
      metadata: {type: mem, size: 128KiB}
  - name: nvme
    depth: 64
    block_size: 4096
    backend:
      type: integrity
      checksum: nvme
      metadata_size: 64
      pi_offset: 48
      data:
        type: stripe
        chunk: 64KiB
        backends: [{type: file, path: /mnt/ram/nvme0, size: 32MiB, create: true}, {type: mem, size: 32MiB}]
      metadata: {type: file, path: /mnt/ram/nvme.pi, create: true}
  - name: ip
    depth: 64
    block_size: 4096
    data_path: user_copy
    batch: on
    backend:
      type: integrity
      checksum: ip
      interval: 512
      reftag: no
      tag_size: 2
      data: {type: file, path: /mnt/ram/ip, size: 64MiB, create: true}
      metadata: {type: mem, size: 1MiB}
  - name: none
    block_size: 4096
    partition_scan: no
    backend:
      type: integrity
      checksum: none
      metadata_size: 24
      capable: no
      data: {type: mem, size: 64MiB}
      metadata: {type: file, path: /mnt/ram/none.md, create: true}
YAML
all='file mem nvme ip none'

if ! driver_has INTEGRITY; then
	ok "doctor says that the driver has none" said '^OK +integrity +no INTEGRITY' ublkctl doctor
	sed -i '/partition_scan/d; /batch: on/d' "$work/integrity.yaml"
	ok "the daemon starts" start_daemon "$work/integrity.yaml"
	ok "a device is refused in words" said 'metadata need a kernel whose ublk driver has INTEGRITY \(Linux 7.0\)' ublkctl show file
	ok "it ends" end_server
	finish
fi

ok "doctor: the driver has it" said '^OK +integrity +devices can keep checksums' ublkctl doctor
ok "five devices start" start_daemon "$work/integrity.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all

# ---- what the block layer says ----

# says NAME FILE VALUE
says() {
	local value=
	read -r value <"/sys/block/$(basename "$(blk "$1")")/integrity/$2"
	[ "$value" = "$3" ] || { echo "$2 is $value" && return 1; }
}
while read -r name format interval tag capable; do
	ok "$name: format" says "$name" format "$format"
	ok "$name: interval" says "$name" protection_interval_bytes "$interval"
	ok "$name: tag size" says "$name" tag_size "$tag"
	ok "$name: capable" says "$name" device_is_integrity_capable "$capable"
done <<EOT
file T10-DIF-TYPE1-CRC 512 0 1
mem T10-DIF-TYPE1-CRC 4096 0 1
nvme EXT-DIF-TYPE1-CRC64 4096 0 1
ip T10-DIF-TYPE3-IP 512 2 1
none nop 4096 0 0
EOT
ok "mem: one queue" test "$(ublkctl --json list | jq '.. | objects | select(.name? == "mem") | .queues')" = 1
path_is() { [ "$(ublkctl --json show "$1" | jq -r .data_path)" = "$2" ] || { ublkctl show "$1" && return 1; }; }
ok "file: its bytes go by zero copy" path_is file zero_copy
ok "mem: its bytes go by user copy" path_is mem user_copy
ok "the file of metadata is as long as needed" test "$(stat -c %s /mnt/ram/file.pi)" = $((64 << 20 >> 9 << 3))
ok "... and empty" test "$(stat -c %b /mnt/ram/file.pi)" -eq 0

# ---- reads and writes ----

read_all() { dd if="$(blk "$1")" of=/dev/null bs=1M iflag=direct status=none; }
# count NAME FIELD: of its metadata
count() { ublkctl --json show "$1" | jq ".integrity.$2"; }
counts() { [ "$(count "$1" "$2")" -gt "$3" ] || { ublkctl show "$1" && return 1; }; }
for name in $all; do
	ok "$name: what was never written can be read" read_all "$name"
	ok "$name: fio" verify_one "$name"
	ok "$name: ... in a small part of it, where requests meet" verify "$(blk "$name")" --iodepth=32 --size=64k --io_size=2M --bs=4k
	ok "$name: ... all of it can be read" read_all "$name"
	ok "$name: ... with metadata" eval "counts $name reads 100 && counts $name writes 100"
done
# Reads beside writes on the same blocks, which nobody orders: data and metadata are of the same write.
race() { # NAME
	fio --name=race --filename="$(blk "$1")" --ioengine=io_uring --direct=1 --rw=randrw --bsrange=4k-32k --blockalign=4k --size=128k \
		--io_size=8M --iodepth=32 --norandommap --randrepeat=0 --minimal >"$work/race.log" 2>&1 || { cat "$work/race.log"; return 1; }
}
for name in file mem nvme ip; do ok "$name: reads and writes race" race $name; done
ok "... and some of them waited" counts file held 0
ok "file: a file system" file_system file
ok "ip: a file system" file_system ip

# ---- what changes behind the device ----

# put NAME BLOCK: a block of random bytes, of 4 KiB
put() { dd if=/dev/urandom of="$(blk "$1")" bs=4k seek="$2" count=1 oflag=direct conv=notrunc status=none; }
get() { dd if="$(blk "$1")" bs=4k skip="$2" count="${3:-1}" iflag=direct status=none; }
reads() { get "$@" >/dev/null; }
# The kernel's own words for EILSEQ.
finds() { answers 'Invalid or incomplete multibyte' eval "! reads $1 $2"; }
# flip FILE OFFSET: one bit of a byte, on the file and not in somebody's page cache
flip() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1") &&
		printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc,fsync status=none
}
puts() { put file 10 && put file 11 && put file 12; }
ok "file: blocks are written" puts
ok "file: ... and read" reads file 10 3
ok "a bit of the data changes" flip /mnt/ram/file $((11 * 4096 + 1234))
ok "file: the kernel finds it" finds file 11
ok "file: ... in a longer read, too" answers 'Invalid or incomplete multibyte' eval '! reads file 8 8'
ok "file: ... and says so in its log" eval "dmesg | grep -E 'guard tag error'"
ok "file: blocks beside it are read" eval 'reads file 10 && reads file 12'
ok "it changes back" flip /mnt/ram/file $((11 * 4096 + 1234))
ok "file: ... it is read" reads file 11
ok "a bit of the metadata changes" flip /mnt/ram/file.pi $((11 * 64 + 9))
ok "file: the kernel finds it" finds file 11
ok "it changes back" flip /mnt/ram/file.pi $((11 * 64 + 9))
ok "file: ... it is read" reads file 11
# Data and metadata of one block in the place of another one: only the reference tag tells.
misplace() {
	dd if=/mnt/ram/file of=/mnt/ram/file bs=4k skip=10 seek=12 count=1 conv=notrunc,fsync status=none &&
		dd if=/mnt/ram/file.pi of=/mnt/ram/file.pi bs=64 skip=10 seek=12 count=1 conv=notrunc,fsync status=none
}
ok "a block is put in the place of another one" misplace
ok "file: the kernel finds it" finds file 12
ok "file: ... and says so in its log" eval "dmesg | grep -E 'ref tag error'"
ok "file: written again, it is read" eval 'put file 12 && reads file 12'
ok "nvme: a block is written" put nvme 3
ok "a bit of the data changes" flip /mnt/ram/nvme0 $((3 * 4096 + 5))
ok "nvme: the kernel finds it" finds nvme 3
ok "it changes back" flip /mnt/ram/nvme0 $((3 * 4096 + 5))
ok "nvme: ... it is read" reads nvme 3

# ---- what leaves no metadata behind ----

zeroes() { get "$@" | cmp - <(head -c $((4096 * $3)) /dev/zero); }
pi_is() { od -An -tx8 -v -w8 -j $(($1 * 64)) -N 64 /mnt/ram/file.pi | sort -u | tr -d ' ' | grep -x "$2"; }
forgotten=$(count file forgotten)
ok "file: a block is discarded" blkdiscard -o $((10 * 4096)) -l 4096 "$(blk file)"
ok "file: ... it is read" reads file 10
ok "file: ... there is nothing of its metadata" pi_is 10 0000000000000000
ok "file: ... its neighbours are as they were" eval 'reads file 9 && reads file 11'
ok "file: another one is zeroed" blkdiscard -z -o $((11 * 4096)) -l 4096 "$(blk file)"
ok "file: ... it reads zeroes" zeroes file 11 1
ok "file: ... which was counted" counts file forgotten "$((forgotten + 1))"
ok "file: written again" eval 'put file 10 && put file 11 && reads file 10 2'
ok "... and changed, it is found" eval 'flip /mnt/ram/file $((11 * 4096)) && finds file 11'
ok "file: written once more" put file 11
for name in mem nvme ip; do ok "$name: all of it is discarded" blkdiscard "$(blk "$name")" && ok "$name: ... and read" read_all "$name"; done
# Who switches the checksums off writes without: such blocks are not checked.
switch() { echo "$2" >"/sys/block/$(basename "$(blk file)")/integrity/$1"; }
unchecked() { switch write_generate 0 && put file 11 && switch write_generate 1 && reads file 11; }
ok "file: written while checksums are switched off, it is read" unchecked
ok "file: ... there is nothing of its metadata" pi_is 11 0000000000000000
unread() { flip /mnt/ram/file $((10 * 4096)) && finds file 10 && switch read_verify 0 && reads file 10 && switch read_verify 1 && finds file 10; }
ok "file: what is found when read, is not while that is switched off" unread
ok "file: it is written again" put file 10

# ---- what is said of it ----

ok "file: show has a line for its metadata" said '^ *crc +8B +512B +yes +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+$' ublkctl show file
ok "ip: ... without reference tags" said '^ *ip +8B +512B +no ' ublkctl show ip
ok "file: cannot have another size" answers 'cannot (change its size|resize)' eval '! ublkctl resize file 128MiB'

# ---- the daemon dies, or is upgraded, under loads ----

load_pi() { # NAME
	mkdir -p "$work/load/$1"
	(
		work=$work/load/$1
		renice -n 19 -p $BASHPID >/dev/null
		while [ ! -e "$work/../enough" ]; do verify_one "$1" --offset=16M --size=20M --io_size=6M >/dev/null || exit 1; done
	) &
	loads[$1]=$!
}
# What the daemon's memory has of the metadata of mem, block 7.
mem_pi() {
	local fd
	for fd in "/proc/$(server)/fd"/*; do
		[[ $(readlink "$fd") == /memfd:ublkd-mem* && $(stat -Lc %s "$fd") = 131072 ]] && od -An -tx8 -j 56 -N 8 "$fd" && return
	done
	return 1
}
ok "mem: a block is written" put mem 7
before=$(mem_pi)
bytes=$(get mem 7 | md5sum)
ok "mem: ... it has metadata" eval '[[ $before =~ [1-9a-f] ]]'
for name in file mem nvme ip; do load_pi $name; done
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/integrity.yaml" $all
ok "upgraded under load" upgrade $upgrades
ok "no error, no mismatch" load_ends
for name in $all; do ok "$name: all of it can be read" read_all "$name"; done
ok "mem: the same metadata" test "$(mem_pi)" = "$before"
ok "mem: ... and bytes" test "$(get mem 7 | md5sum)" = "$bytes"

# ---- over a restart ----

ok "file: a block is written" put file 20
bytes=$(get file 20 | md5sum)
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "a bit of another one changes meanwhile" flip /mnt/ram/file $((10 * 4096 + 4095))
ok "it starts again" start_daemon "$work/integrity.yaml"
# shellcheck disable=SC2086 # words
ok "... and serves" are_live $all
ok "file: the same bytes" test "$(get file 20 | md5sum)" = "$bytes"
ok "file: what has changed is found" finds file 10

# ---- refused ----

# wrong NAME SED WORDS
wrong() {
	sed -E "$2" "$work/integrity.yaml" >"$work/wrong.yaml"
	ok "$1" said "$3" ublkd --check-config --config "$work/wrong.yaml"
}
wrong "metadata in a backend of blocks" 's/metadata: \{type: mem, size: 128KiB\}/metadata: {type: null, size: 1GiB}/' \
	'metadata: null keeps nothing that is smaller than a block: use file, or mem'
wrong "below another node" 's/^devices:/devices:\n  - {name: z, backend: {type: delay, backend: {type: integrity, data: {type: mem, size: 1MiB}, metadata: {type: mem, size: 1MiB}}}}/' \
	'backend: integrity stands at the top of its device'
wrong "a data path that the driver does not have for it" 's/user_copy/copy/' 'data_path: copy is impossible with integrity'
wrong "a reference tag without a checksum" 's/capable: no/reftag: yes/' 'reftag: stands beside a checksum'
ok "it ends at last" end_server
sed -E 's/metadata: \{type: mem, size: 128KiB\}/metadata: {type: mem, size: 64KiB}/; s/path: \/mnt\/ram\/nvme.pi, create: true/path: \/dev\/ram0/' \
	"$work/integrity.yaml" >"$work/wrong.yaml"
ok "too little room for metadata is refused in words" eval 'start_daemon "$work/wrong.yaml"; logs "metadata: has 64KiB, and 128KiB are needed"'
finish
