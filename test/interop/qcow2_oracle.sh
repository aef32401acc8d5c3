#!/bin/bash
# The oracle of qcow2 images (test/rig/qcow2) against qemu-img: images of all kinds, filled by qemu-io, are
# clean for both and read the same; of images with one broken field both think alike (qcow2_corrupt.py has
# the reasons where not). Prints TAP; no root. Usage: qcow2_oracle.sh [BUILD_FOLDER]; UBLKD_SEED=N
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
program=$(readlink -f "${1:-$top/build/asan}")/test/qcow2_check
seed=${UBLKD_SEED:-1}
tmp=$(mktemp -d /tmp/ublkd-qcow2.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"
. "$top/test/interop/qcow2_fill.sh"

if ! command -v qemu-img >/dev/null || ! command -v qemu-io >/dev/null; then
	skip "the oracle of qcow2 images" "needs qemu-img and qemu-io"
	echo "1..$n"
	exit 0
fi
cd "$tmp" || exit 1
echo "# seed $seed: UBLKD_SEED=$seed test/interop/qcow2_oracle.sh ${1:-}"

# --- images -------------------------------------------------------------------------------------

# same IMAGE [EXIT_CODE [SNAPSHOT...]]: both programs end with the code, both read the same.
same() {
	local image=$1 want=${2:-0} qemu=0 oracle=0 snapshot i=0
	shift $(($# < 2 ? 1 : 2))
	qemu-img check -f qcow2 "$image" || qemu=$?
	"$program" check "$image" || oracle=$?
	if [ $qemu != "$want" ] || [ $oracle != "$want" ]; then
		echo "$image: not $want: qemu-img $qemu, oracle $oracle"
		return 1
	fi
	"$program" read "$image" oracle.raw && qemu-img convert -f qcow2 -O raw "$image" qemu.raw &&
		cmp oracle.raw qemu.raw || return
	for snapshot in "$@"; do
		# qemu-img gives a snapshot the size that the disk has now
		"$program" read "$image" oracle.raw "$i" &&
			qemu-img convert -f qcow2 -l "snapshot.name=$snapshot" -O raw "$image" qemu.raw &&
			truncate -s ">$(stat -c %s qemu.raw)" oracle.raw && cmp oracle.raw qemu.raw || return
		i=$((i + 1))
	done
}

# --- kinds --------------------------------------------------------------------------------------

# widths CLUSTER_BYTES BYTES OPTION...: each width of reference counts.
widths() {
	local cluster=$1 bytes=$2 bits
	shift 2
	for bits in 1 2 8 16 64; do
		create "cluster_size=$cluster,refcount_bits=$bits$*" "w$cluster-$bits$*" "$bytes" &&
			fill "w$cluster-$bits$*" "$bytes" && same "w$cluster-$bits$*" || return
	done
}

version_2() {
	create compat=0.10,cluster_size=4k v2 4M && fill v2 4M && qemu-img snapshot -c a v2 && fill v2 4M &&
		same v2 0 a
}

# What a killed writer leaves is repaired by the next one.
lazy() {
	create lazy_refcounts=on,cluster_size=4k lazy 4M && fill lazy 4M && same lazy &&
		{ fill lazy 4M 'flush' 'write -P 9 1M 100k' 'flush' 'sigraise 9' || true; } && same lazy 2 &&
		"$program" check lazy | grep -q 'corruptions 0 repairable [1-9].* dirty 1' &&
		qemu-img check -q -r all lazy && same lazy
}

# At most clusters are lost.
killed() {
	local code=0
	create cluster_size=512 killed 4M && { fill killed 4M 'flush' 'write -P 9 1M 100k' 'sigraise 9' || true; }
	qemu-img check -q -f qcow2 killed || code=$?
	{ [ $code = 0 ] || [ $code = 3 ]; } && same killed $code
}

# compressed TYPE CLUSTER_BYTES
compressed() {
	local name=compressed-$1-$2 i
	for ((i = 0; i < 400; i++)); do printf '%*d' $((RANDOM % 20000)) $i; done >source.raw &&
		truncate -s 6M source.raw &&
		qemu-img convert -f raw -O qcow2 -c -o "compression_type=$1,cluster_size=$2" source.raw "$name" &&
		same "$name" && "$program" check "$name" | grep -q 'compressed [1-9]' && fill "$name" 4M && same "$name"
}

compressed_snapshot() {
	compressed zlib 4k && mv compressed-zlib-4k packed && qemu-img snapshot -c a packed && fill packed 6M &&
		same packed 0 a
}

# snapshots OPTIONS: several, the first of which goes.
snapshots() {
	local name=snapshots-$1
	create "$1" "$name" 4M && fill "$name" 4M && qemu-img snapshot -c a "$name" && fill "$name" 4M &&
		qemu-img snapshot -c b "$name" && fill "$name" 4M && same "$name" 0 a b &&
		qemu-img snapshot -c c "$name" && qemu-img snapshot -d a "$name" && fill "$name" 4M &&
		same "$name" 0 b c && qemu-img snapshot -a b "$name" && same "$name" 0 b c
}

# data_file NAME OPTIONS
data_file() {
	create "data_file=$1.data,$2" "$1" 4M && fill "$1" 4M && same "$1"
}

luks_options=(--object "secret,id=key,data=pw" --image-opts
	"driver=qcow2,encrypt.format=luks,encrypt.key-secret=key,file.filename={}")

# qemu-img first measures how fast it hashes, and gives up where the clock of its CPU time stands still
# meanwhile: on a busy guest. That is not what is tried here.
luks_create() {
	local i
	for ((i = 0; i < 10; i++)); do
		qemu-img create -q -f qcow2 --object secret,id=key,data=pw \
			-o encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10,cluster_size=4k luks 1M 2>words && return
		cat words
		grep -q 'Unable to get accurate CPU usage' words || return 1
	done
	return 1
}

luks() {
	luks_create && qemu-io "${luks_options[@]//\{\}/luks}" -c 'write -P 4 0 100k' >/dev/null &&
		qemu-img check "${luks_options[@]//\{\}/luks}" && "$program" check luks
}

bitmaps() {
	create cluster_size=4k bitmaps 4M && qemu-img bitmap --add -g 512 bitmaps one && fill bitmaps 4M &&
		qemu-img bitmap --add -g 64k bitmaps two && fill bitmaps 4M && qemu-img bitmap --disable bitmaps one &&
		fill bitmaps 4M && same bitmaps && qemu-img bitmap --remove bitmaps one && same bitmaps &&
		qemu-img bitmap --add -g 512 bitmaps three && qemu-img snapshot -c a bitmaps && fill bitmaps 4M &&
		same bitmaps 0 a
}

preallocated() {
	local mode
	for mode in metadata falloc full; do
		create "preallocation=$mode,cluster_size=4k" pre 4M && same pre && fill pre 4M && same pre &&
			create "preallocation=$mode,cluster_size=64k,extended_l2=on" pre 4M && fill pre 4M && same pre || return
	done
}

# A chain of three with gaps, the middle one shorter than its backing file and than the top.
backed() {
	create cluster_size=64k base 5M && fill base 5M && create cluster_size=4k -b base -F qcow2 middle 3M &&
		fill middle 3M && create cluster_size=64k,extended_l2=on -b middle -F qcow2 top 6M && fill top 6M &&
		same top && same middle && qemu-img convert -O raw top flat.raw && truncate -s 3333k flat.raw &&
		create cluster_size=512,refcount_bits=2 -b flat.raw -F raw over 4M && fill over 4M && same over &&
		qemu-img snapshot -c a over && fill over 4M && same over 0 a
}

resized() {
	create cluster_size=512 sized 1M && fill sized 1M && qemu-img resize -q sized 3M && fill sized 3M && same sized &&
		qemu-img resize -q --shrink sized 700416 && same sized && qemu-img snapshot -c a sized &&
		qemu-img resize -q sized 2M && fill sized 2M && same sized 0 a &&
		create cluster_size=64k tail 1M && qemu-io -f qcow2 -c 'write -P 5 0 1M' tail >/dev/null &&
		qemu-img resize -q --shrink tail 700416 && same tail
}

# A snapshot's L1 table may be shorter than its disk: what is behind it is not allocated, here clusters leak.
short_snapshot() {
	local at
	create cluster_size=4k short 4M && qemu-io -f qcow2 -c 'write -P 5 0 4M' short >/dev/null &&
		qemu-img snapshot -c a short && at=$(od -An -tu8 --endian=big -j64 -N8 short) &&
		printf '\0\0\0\1' | dd of=short bs=1 seek=$((at + 8)) conv=notrunc status=none && same short 3 a
}

# --- broken ones --------------------------------------------------------------------------------

# corrupt NUMBER IMAGE [QEMU_IMG_OPTIONS...]
corrupt() {
	local number=$1
	shift
	"$top/test/interop/qcow2_corrupt.py" "$program" "$seed" "$number" "$@"
}

# What the oracle sees and qemu-img check does not look for.
stricter() {
	local image
	for image in w4k-16 v2 w64k-16,extended_l2=on away snapshots-cluster_size=4k bitmaps; do
		"$top/test/interop/qcow2_corrupt.py" "$program" strict $image >>seen || { cat seen && return 1; }
	done
	cat seen
	# each rule was tried on one of them at least
	[ "$(cut -d: -f2 seen | sort -u | wc -l)" = 9 ]
}

# kind NAME COMMAND...: what it does depends on nothing before it.
kind() {
	RANDOM=$seed
	ok "$@"
}

kind "clusters of 512" widths 512 2M
kind "clusters of 4k" widths 4k 4M
kind "clusters of 64k" widths 64k 4M
kind "clusters of 2M" widths 2M 16M
kind "subclusters of 64k" widths 64k 4M ,extended_l2=on
kind "subclusters of 2M" widths 2M 16M ,extended_l2=on
kind "version 2" version_2
kind "lazy reference counts, a writer that is killed, a repair" lazy
kind "a writer that is killed" killed
for type in zlib zstd; do
	for size in 512 64k 2M; do kind "compressed by $type, clusters of $size" compressed $type $size; done
done
kind "compressed, with a snapshot" compressed_snapshot
kind "snapshots" snapshots cluster_size=4k
kind "snapshots, subclusters" snapshots cluster_size=16k,extended_l2=on
kind "snapshots, reference counts of 4 bits" snapshots cluster_size=512,refcount_bits=4
kind "data file" data_file away cluster_size=64k
kind "raw data file, subclusters" data_file raw cluster_size=64k,extended_l2=on,data_file_raw=on
kind "LUKS" luks
kind "bitmaps" bitmaps
kind "preallocated" preallocated
kind "backing files" backed
kind "resized" resized
kind "a snapshot with a short L1 table" short_snapshot

for image in w64k-16 w512-1 w4k-64 w64k-8,extended_l2=on v2 packed compressed-zstd-64k snapshots-cluster_size=4k \
	snapshots-cluster_size=16k,extended_l2=on away bitmaps over; do
	ok "one field broken: $image" corrupt 40 $image
done
kind "what qemu-img check does not look for" stricter
kind "one field broken: LUKS" corrupt 30 luks "${luks_options[@]}"

echo "1..$n"
exit $bad
