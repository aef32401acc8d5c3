#!/bin/bash
# ublkctl create-image against qemu-img: what it makes QEMU finds without fault, and what cannot be is refused in words.
# Needs no ublk and no root. Prints TAP. Usage: create_image.sh [BIN_FOLDER]
set -u
umask 022

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
bin=$(readlink -f "${1:-$top/build/asan/bin}")
tmp=$(mktemp -d /tmp/ublkd-image.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"
cd "$tmp" || exit 1

# run CODE OPTION...: create-image must end with CODE; output is left in out and err.
run() {
	local want=$1 code=0
	shift
	timeout 60 "$bin/ublkctl" create-image "$@" >out 2>err </dev/null || code=$?
	[ "$code" = "$want" ] || { echo "exit code $code, not $want: $*"; cat out err; return 1; }
}

said() { grep -qF -- "$2" "$1" || { echo "\"$2\" is not in $1:"; cat "$1"; return 1; }; }

# info FILE FILTER VALUE: what qemu-img says of it.
info() {
	local got
	got=$(qemu-img info --output=json "$1" | jq -r "$2") || return
	[ "$got" = "$3" ] || { echo "$1: $2 is $got, not $3"; return 1; }
}

sound() { qemu-img check -q "$1" >check 2>&1 || { cat check; return 1; }; }

# refused WORDS OPTION...: exit code 1, these words, and no file a.qcow2.
refused() {
	local words=$1
	shift
	run 1 "$@" && said err "$words" && [ "$(wc -l <err)" = 1 ] && [ ! -s out ] || return
	[ ! -e a.qcow2 ] || { echo "a.qcow2 is there"; return 1; }
}

plain() {
	run 0 a.qcow2 --size 10GiB && said out 'a.qcow2: a disk of 10GiB, in a file of 256KiB' && [ ! -s err ] && sound a.qcow2 &&
		info a.qcow2 .format qcow2 && info a.qcow2 '."virtual-size"' $((10 << 30)) &&
		info a.qcow2 '."cluster-size"' 65536 && info a.qcow2 '."format-specific".data.compat' 1.1 &&
		info a.qcow2 '."backing-filename"' null
}

options() {
	local data='."format-specific".data'
	run 0 a.qcow2 --size 100M --cluster-size 128K --extended-l2 --refcount-bits 32 --lazy-refcounts &&
		sound a.qcow2 && info a.qcow2 '."cluster-size"' 131072 && info a.qcow2 "$data.\"extended-l2\"" true &&
		info a.qcow2 "$data.\"refcount-bits\"" 32 && info a.qcow2 "$data.\"lazy-refcounts\"" true &&
		run 0 b.qcow2 --size 100M --compat 0.10 && sound b.qcow2 && info b.qcow2 "$data.compat" 0.10
}

# qemu-img reads through both and writes: the image works, it is not only well formed.
used() {
	qemu-img create -q -f qcow2 base.qcow2 64M && qemu-io -c 'write -q -P 7 1M 1M' base.qcow2 &&
		run 0 a.qcow2 --backing base.qcow2 --cluster-size 4K && qemu-io -c 'write -q -P 9 3M 8K' a.qcow2 &&
		qemu-io -r -c 'read -q -P 7 1M 1M' -c 'read -q -P 9 3M 8K' -c 'read -q -P 0 2M 1M' a.qcow2 >io && cat io &&
		! grep -q failed io && sound a.qcow2
}

backing_formats() {
	mkdir -p sub && qemu-img create -q -f qcow2 sub/base.qcow2 3M && truncate -s 5000000 sub/base.img || return
	# the name counts from the image's folder
	run 0 sub/a.qcow2 --backing base.qcow2 && said err 'its format were qcow2' && said err '--backing-format' &&
		info sub/a.qcow2 '."backing-filename"' base.qcow2 && info sub/a.qcow2 '."backing-filename-format"' qcow2 &&
		info sub/a.qcow2 '."virtual-size"' $((3 << 20)) && sound sub/a.qcow2 || return
	run 0 sub/b.qcow2 --backing base.img && said err 'its format were raw' &&
		info sub/b.qcow2 '."backing-filename-format"' raw && info sub/b.qcow2 '."virtual-size"' 5000192 || return
	run 0 sub/c.qcow2 --backing "$PWD/sub/base.img" --backing-format raw --size 1M && [ ! -s err ] &&
		info sub/c.qcow2 '."virtual-size"' $((1 << 20)) && info sub/c.qcow2 '."full-backing-filename"' "$PWD/sub/base.img"
}

# A disk into which a guest has written the beginning of an image.
hole() {
	qemu-img create -q -f qcow2 -u -b /etc/shadow -F raw guest.qcow2 1M && mv guest.qcow2 guest.img &&
		refused 'guest.img begins as a qcow2 image' a.qcow2 --backing guest.img &&
		run 0 a.qcow2 --backing guest.img --backing-format raw &&
		info a.qcow2 '."backing-filename-format"' raw && info a.qcow2 '."virtual-size"' $((($(stat -c %s guest.img) + 511) / 512 * 512)) &&
		rm a.qcow2 && truncate -s 1M named.qcow2 &&
		refused 'named.qcow2 is named as a qcow2 image, and does not begin as one' a.qcow2 --backing named.qcow2
}

bad_backing() {
	printf 'QFI\xfb\0\0\0\x09' >broken.qcow2
	truncate -s 1M base.img
	refused 'the backing file none.img: No such file' a.qcow2 --backing none.img &&
		refused "from the folder of the new image" a.qcow2 --backing none.img &&
		refused 'neither a file nor a block device' a.qcow2 --backing . &&
		refused 'would be taken for a protocol: write ./nbd:x' a.qcow2 --backing nbd:x &&
		refused 'base.img is no qcow2 image' a.qcow2 --backing base.img --backing-format qcow2 &&
		refused 'qcow2 and raw are what ublkd serves' a.qcow2 --backing base.img --backing-format vmdk &&
		refused 'the image ends within its header' a.qcow2 --backing broken.qcow2 &&
		mkfifo pipe && refused 'neither' a.qcow2 --backing pipe
}

data_file() {
	run 0 a.qcow2 --size 10M --data-file a.data --data-file-raw && sound a.qcow2 &&
		info a.qcow2 '."format-specific".data."data-file"' a.data &&
		info a.qcow2 '."format-specific".data."data-file-raw"' true && [ "$(stat -c %s a.data)" = $((10 << 20)) ] || return
	run 1 b.qcow2 --size 10M --data-file a.data && said err 'a.data is there already' && [ ! -e b.qcow2 ] &&
		run 1 c.qcow2 --size 10M --data-file c.qcow2 && said err 'is the image itself' && [ ! -e c.qcow2 ]
}

exists() {
	echo precious >a.qcow2
	run 1 a.qcow2 --size 1M && said err 'a.qcow2 is there already: --force overwrites it' &&
		[ "$(cat a.qcow2)" = precious ] && run 0 a.qcow2 --size 1M --force && sound a.qcow2 &&
		run 1 b.qcow2 --backing a.qcow2 --force --cluster-size 100K && [ ! -e b.qcow2 ] || return
	# nothing of what was there before is left
	head -c 4M /dev/urandom >a.qcow2 && run 0 a.qcow2 --size 1M --force && sound a.qcow2 &&
		[ "$(stat -c %s a.qcow2)" -lt $((1 << 20)) ]
}

over_itself() {
	run 0 a.qcow2 --size 1M && run 0 b.qcow2 --backing a.qcow2 && cp a.qcow2 before &&
		run 1 a.qcow2 --backing b.qcow2 --force && said err 'the new image would stand over it' && cmp a.qcow2 before
}

in_use() {
	local holder
	run 0 a.qcow2 --size 1M && cp a.qcow2 before || return
	coproc qemu-io a.qcow2
	holder=$COPROC_PID
	for _ in $(seq 100); do
		if grep -q ":$(stat -c %i a.qcow2) " /proc/locks; then break; fi
		sleep 0.1
	done
	run 1 a.qcow2 --size 2M --force && said err 'a.qcow2 is in use by another program' && cmp a.qcow2 before
	local code=$?
	kill "$holder" && wait "$holder" 2>/dev/null
	return "$code"
}

bad_options() {
	run 2 && said err 'the name of the image is missing' && run 2 a.qcow2 --size lots && said err 'not lots' &&
		run 2 a.qcow2 --size 0 && run 2 a.qcow2 --size 1M --compat 2.0 && said err '0.10 or 1.1, not 2.0' &&
		run 2 a.qcow2 --size 1M --backing-format raw && run 2 a.qcow2 --size 1M --data-file-raw &&
		run 2 a.qcow2 --size 1M --read-only && said err 'does not apply to create-image' &&
		refused '--size 10GiB' a.qcow2 && refused 'a power of two' a.qcow2 --size 1M --cluster-size 100K &&
		refused 'a power of two from 1 to 64' a.qcow2 --size 1M --refcount-bits 3 &&
		refused 'version 2 not' a.qcow2 --size 1M --compat 0.10 --extended-l2 &&
		refused 'No such file' none/a.qcow2 --size 1M
}

# Names that are too long for a message end at a letter: each of its three bytes is tried as the last one.
letters() {
	local first letters folder name
	printf -v letters '漢%.0s' {1..70}
	for first in '' a aa; do
		folder=$first$letters name=$folder/$letters
		mkdir -p "$folder" && truncate -s 1M "$name" "$folder/image.qcow2" && run 0 "$folder/disk" --size 1M || return
		for what in "--backing $name.none" "--backing $folder:x" "--backing $name --backing-format qcow2" \
			"--backing $folder/disk" "--backing $name --backing-format $folder" "--backing $folder/image.qcow2"; do
			# shellcheck disable=SC2086
			refused 漢 a.qcow2 $what || return
			if grep -F '\x' err; then return 1; fi
		done
	done
}

json() {
	truncate -s 1M base.img
	run 0 a.qcow2 --backing base.img --json && [ "$(jq -c . out)" = '{"path":"a.qcow2","size_bytes":1048576,"file_bytes":'"$(stat -c %s a.qcow2)"',"backing":"base.img","backing_format":"raw","backing_format_detected":true,"data_file":null}' ]
}

# A full file system: nothing is left.
full() { (ulimit -f 1; trap '' XFSZ; refused 'cannot be written' a.qcow2 --size 1T); }

for check in "plain:an image without options is QEMU's default" "options:cluster size, extended L2, reference counts, version" \
	"used:QEMU reads and writes what was made" "backing_formats:the backing file's format and size are its own, and it is told" \
	"hole:a disk that a guest made look like an image is not taken for one" "bad_backing:backing files that cannot be" \
	"data_file:an external data file" "exists:what is there is overwritten with --force alone" \
	"over_itself:an image never stands over itself" "in_use:an image that QEMU has open is not overwritten" \
	"letters:long names are cut between letters" \
	"bad_options:options that cannot be" "json:--json" "full:what cannot be written leaves nothing"; do
	rm -rf ./*
	ok "${check#*:}" "${check%%:*}"
done
echo "1..$n"
exit $bad
