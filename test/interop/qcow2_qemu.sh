#!/bin/bash
# Images of QEMU and ours: made by qemu-img with each option, filled by qemu-io, read by us; written by us, they
# are clean for qemu-img check and for our oracle, and read the same by QEMU, snapshots too; written by QEMU
# once more, and read by us. The same for those that we made. Prints TAP; no root.
# Usage: qcow2_qemu.sh [BUILD_FOLDER [FOLDER_OF_QEMU]]; UBLKD_SEED=N; UBLKD_SOAK=1: longer; UBLKD_ONLY=TEXT: some cases
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
build=$(readlink -f "${1:-$top/build/asan}")/test
seed=${UBLKD_SEED:-1}
request_nr=250
if [ "${UBLKD_SOAK:-}" ]; then request_nr=2000; fi
tmp=$(mktemp -d /tmp/ublkd-qemu.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"
. "$top/test/interop/qcow2_fill.sh"

# test/vm/qemu_nbd.sh puts another version there, or why it has none.
if [ "${2:-}" ]; then
	if [ ! -x "$2/qemu-nbd" ]; then
		skip "qcow2 images of a newer QEMU and ours" "$(cat "$2/why" 2>/dev/null || echo "test/vm/qemu_nbd.sh gets one")"
		echo "1..$n"
		exit 0
	fi
	PATH=$(readlink -f "$2"):$PATH
fi
if ! command -v qemu-img >/dev/null || ! command -v qemu-io >/dev/null; then
	skip "qcow2 images of QEMU and ours" "needs qemu-img and qemu-io"
	echo "1..$n"
	exit 0
fi
cd "$tmp" || exit 1
echo "# seed $seed: UBLKD_SEED=$seed test/interop/qcow2_qemu.sh ${1:-}"
echo "# $(qemu-img --version | head -1)"

# --- QEMU ---------------------------------------------------------------------------------------

# Encrypted images need more.
image_words() {
	words=(-f qcow2 "$1")
	if [ "$1" = luks.qcow2 ]; then words=("${luks_words[@]}" "driver=qcow2,encrypt.key-secret=key,file.filename=$1"); fi
}
luks_words=(--object "secret,id=key,data=geheim" --image-opts)

# What QEMU reads, as a file: flatten IMAGE FILE [SNAPSHOT]
flatten() {
	image_words "$1"
	timeout 60 qemu-img convert ${3:+-l "snapshot.name=$3"} "${words[@]}" -O raw "$2"
}

# Both programs call it clean; `leaks`: clusters that nothing uses may be left.
clean() {
	local image=$1 qemu=0 oracle=0
	image_words "$image"
	timeout 60 qemu-img check -q "${words[@]}" || qemu=$?
	timeout 60 "$build/qcow2_check" check "$image" || oracle=$?
	if [ $qemu != "$oracle" ] || { [ $qemu != 0 ] && [ "$qemu ${2:-}" != "3 leaks" ]; }; then
		echo "$image: qemu-img check: $qemu, oracle: $oracle"
		timeout 60 qemu-img check "${words[@]}"
		return 1
	fi
}

# --- ours ---------------------------------------------------------------------------------------

# The image's place in a tree: tree IMAGE. What else an image has is in IMAGE.tree.
tree() {
	echo "type: qcow2"
	echo "data: {type: file, path: $1, create: true}"
	if [ -e "$1.tree" ]; then cat "$1.tree"; fi
}

# ours IMAGE [OPTIONS] -- COMMAND...: queues, their depth and the cache are as it comes.
ours() {
	local image=$1 options=(--queues $((RANDOM % 2 + 1)) --depth $((1 << (RANDOM % 6))))
	shift
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	tree "$image" >ours.yaml
	if ((RANDOM % 2)); then echo "cache: 64KiB" >>ours.yaml; fi
	printf '%s\n' "$@" >ours.script
	echo "# node_io ${options[*]}" | tee ours.options
	timeout 120 "$build/node_io" "${options[@]}" ours.script ours.yaml
}

# written IMAGE [leaks]: after a writer of ours. QEMU reads what we read.
written() {
	clean "$@" || return
	flatten "$1" qemu.raw && cmp qemu.raw ours.raw
}

# keep IMAGE SNAPSHOT..., and later kept IMAGE SNAPSHOT...: snapshots must stay as they are
keep() {
	local image=$1 snapshot
	shift
	for snapshot in "$@"; do flatten "$image" "kept.$snapshot" "$snapshot" || return; done
}

kept() {
	local image=$1 snapshot
	shift
	for snapshot in "$@"; do
		flatten "$image" now.raw "$snapshot" && cmp now.raw "kept.$snapshot" || return
	done
}

# Read by us, written by us, by QEMU, read by us: both IMAGE BYTES [leaks]
both() {
	local image=$1 bytes=$2
	shift 2
	flatten "$image" want.raw &&
		ours "$image" --read-only -- "load want.raw" verify &&
		ours "$image" -- "load want.raw" verify "random $RANDOM $request_nr" flush "random $RANDOM $request_nr" \
			close open verify "dump ours.raw" &&
		written "$image" "$@" &&
		ours "$image" -- "load ours.raw" "random $RANDOM $request_nr" "dump ours.raw" &&
		written "$image" "$@" &&
		fill "$image" "$bytes" && flatten "$image" want.raw &&
		ours "$image" --read-only -- "load want.raw" verify
}

# --- made by QEMU -------------------------------------------------------------------------------

# made OPTIONS BYTES
made() {
	rm -f image ./*.tree
	create "$1" image "$2" && fill image "$2" && both image "$2"
}

# Entries of compressed clusters, with a writer and snapshots beside them.
compressed() {
	local i
	rm -f image ./*.tree
	for ((i = 0; i < 400; i++)); do printf '%*d' $((RANDOM % 20000)) $i; done >source.raw
	truncate -s 6M source.raw
	timeout 60 qemu-img convert -f raw -O qcow2 -c -o "compression_type=$1,cluster_size=$2" source.raw image &&
		ours image --read-only -- "load source.raw" verify && qemu-img snapshot -c a image && keep image a &&
		both image 4M && kept image a
}

# Clusters that QEMU compresses beside plain ones.
compressed_mixed() {
	rm -f image ./*.tree
	create cluster_size=64k image 4M && fill image 2M 'write -c -P 9 2M 64k' 'write -c -P 8 3M 64k' &&
		both image 4M
}

# snapshots OPTIONS
snapshots() {
	rm -f image ./*.tree
	create "$1" image 4M && fill image 4M && qemu-img snapshot -c a image && fill image 4M &&
		qemu-img snapshot -c b image && keep image a b && ours_reads image a b && both image 4M && kept image a b &&
		qemu-img snapshot -d a image && both image 4M && kept image b &&
		qemu-img snapshot -a b image && both image 4M && kept image b && clean image
}

# Those that we read: ours_reads IMAGE SNAPSHOT... of which keep has what QEMU reads
ours_reads() {
	local image=$1 snapshot
	shift
	for snapshot in "$@"; do
		echo "snapshot: $snapshot" >image.tree
		ours "$image" -- "load kept.$snapshot" verify || return
	done
	rm image.tree
}

# Snapshots that we make and delete while requests are under way: snapshots_of_ours OPTIONS
snapshots_of_ours() {
	rm -f image ./*.tree
	create "$1" image 4M && fill image 4M && flatten image want.raw || return
	ours image -- "load want.raw" "dump kept.a" "snapshot create a $RANDOM 200" "random $RANDOM $request_nr" \
		"dump kept.b" "snapshot create b $RANDOM 200" verify "random $RANDOM $request_nr" "dump ours.raw" || return
	# the second half was written meanwhile
	written image && kept_half a && kept_half b || return
	keep image a b && ours_reads image a b || return
	ours image -- "load ours.raw" "snapshot delete a $RANDOM 100" "random $RANDOM $request_nr" "dump ours.raw" &&
		written image && kept image b && ours_reads image b || return
	ours image -- "load ours.raw" "snapshot apply b" "load kept.b" verify "random $RANDOM $request_nr" close open verify \
		"dump ours.raw" && written image && kept image b && fill image 4M && qemu-img snapshot -a b image &&
		flatten image now.raw && cmp now.raw kept.b && qemu-img snapshot -d b image && clean image && both image 4M
}

kept_half() {
	flatten image now.raw "$1" && cmp -n $((2 << 20)) now.raw "kept.$1"
}

# data_file OPTIONS
data_file() {
	rm -f image image.data ./*.tree
	create "data_file=image.data,$1" image 4M && echo "data_file: {type: file, path: image.data}" >image.tree &&
		fill image 4M && both image 4M || return
	if [[ $1 == *raw=on* ]]; then cmp image.data want.raw; fi
}

# A chain of that depth, from raw up; each of another shape, some shorter than what they stand over.
chain() {
	local depth=$1 i below=base options
	rm -f image ./*.tree base over*
	head -c 3333k /dev/urandom >base
	echo "{type: file, path: base}" >base.spec
	for ((i = 1; i <= depth; i++)); do
		case $i in
		1 | 4) options=cluster_size=64k,extended_l2=on ;;
		2) options=cluster_size=4k ;;
		3) options=cluster_size=2M ;;
		*) options=compat=0.10 ;;
		esac
		create "$options" -b $below -F "$(if [ $i = 1 ]; then echo raw; else echo qcow2; fi)" over$i \
			$((i % 2 ? 5 : 3))M && echo "backing: $(cat $below.spec)" >over$i.tree &&
			fill over$i 3M && echo "{type: qcow2, data: {type: file, path: over$i}, backing: $(cat $below.spec)}" \
			>over$i.spec || return
		below=over$i
	done
	cp -r "$tmp" "$tmp.copy"
	flatten $below want.raw
	mv $below.tree chain
	echo "backing: auto" >$below.tree
	ours $below --read-only -- "load want.raw" verify && mv chain $below.tree && both $below 3M
	local code=$?
	# below it nothing has changed
	for ((i = 1; i < depth; i++)); do cmp over$i "$tmp.copy/over$i" || code=1; done
	rm -rf "$tmp.copy"
	return $code
}

# What was never written reads as zeroes, whatever the image stands over.
without_backing() {
	rm -f image ./*.tree base over* want.raw
	head -c 2M /dev/urandom >base
	truncate -s 2M want.raw
	create cluster_size=4k -b base -F raw over 2M && echo "backing: none" >over.tree &&
		ours over --read-only -- "load want.raw" verify
}

luks() {
	rm -f image ./*.tree
	"$build/luks_maker" . "$1" && echo "key_file: luks.key" >luks.qcow2.tree || return
	image_words luks.qcow2
	# counts of the header that was put into it
	qemu-img check -q -r all "${words[@]}" >/dev/null
	fill luks.qcow2 4M && both luks.qcow2 4M
}

# Below an overlay: what is found has no key of its own, what is written by hand has.
luks_below() {
	rm -f image over ./*.tree
	"$build/luks_maker" . 64 && image_words luks.qcow2 || return
	qemu-img check -q -r all "${words[@]}" >/dev/null
	echo "key_file: luks.key" >luks.qcow2.tree && fill luks.qcow2 4M && flatten luks.qcow2 want.raw &&
		create cluster_size=4k -u -b luks.qcow2 -F qcow2 over 4M && echo "backing: auto" >over.tree || return
	if ours over -- "load want.raw" verify >refused; then return 1; fi
	cat refused
	grep -q 'backing: auto has no key_file for it: write {type: qcow2, key_file: FILE' refused &&
		echo "backing: {type: qcow2, key_file: luks.key, data: {type: file, path: luks.qcow2}}" >over.tree &&
		ours over -- "load want.raw" verify
}

# We do not keep them up: they count as leaks from then on, and qemu-img repairs that.
bitmaps() {
	rm -f image ./*.tree
	create cluster_size=4k image 4M && qemu-img bitmap --add -g 512 image one && fill image 4M &&
		qemu-img bitmap --add -g 64k image two && fill image 4M && both image 4M leaks &&
		qemu-img check -q -r leaks image >/dev/null && clean image
}

resized() {
	rm -f image ./*.tree
	create cluster_size=4k image 1M && fill image 1M && qemu-img resize -q image 3M && fill image 3M &&
		both image 3M && qemu-img resize -q --shrink image 700416 && both image 680k
}

# A writer of QEMU that is killed: we open it, or say what to do.
killed() {
	rm -f image ./*.tree
	create lazy_refcounts=on,cluster_size=4k image 4M && fill image 4M
	fill image 4M flush 'write -P 9 1M 100k' flush 'sigraise 9'
	flatten image want.raw && ours image --read-only -- "load want.raw" verify || return
	if ! ours image -- "load want.raw" verify >refused; then
		cat refused
		grep -q 'repair it with qemu-img check -r all' refused && qemu-img check -q -r all image >/dev/null || return
	fi
	both image 4M
}

# --- made by us ---------------------------------------------------------------------------------

# own OPTIONS BYTES: options as lines of YAML
own() {
	rm -f image ./*.tree
	printf '%s\n' "$1" "create: true" "size: $2" >image.tree
	ours image -- zeroes verify "random $RANDOM $request_nr" close open verify "dump ours.raw" && written image && both image "${3:-$2}"
}

# Over a backing image: QEMU is told of it apart, as the header does not name it.
own_over() {
	rm -f image base ./*.tree
	create cluster_size=64k base 4M && fill base 4M && flatten base want.raw || return
	printf '%s\n' "$1" "create: true" "backing: {type: qcow2, data: {type: file, path: base}}" >image.tree
	ours image -- "load want.raw" verify "random $RANDOM $request_nr" close open verify "dump ours.raw" && clean image &&
		qemu-img rebase -u -b base -F qcow2 image && written image && both image 4M
}

# --- all ----------------------------------------------------------------------------------------

# check NAME COMMAND...: its seed is its own, so that it can run alone.
check() {
	local name=$1
	if [[ $name != *"${UBLKD_ONLY:-}"* ]]; then return; fi
	RANDOM=$((seed + $(cksum <<<"$name" | cut -d' ' -f1) % 30000))
	ok "$@"
}

# What is between others that always run.
rare() { if [ "${UBLKD_SOAK:-}" ]; then check "$@"; fi; }

for size in 512 4k 64k 2M; do
	bytes=4M
	if [ $size = 2M ]; then bytes=24M; fi
	check "QEMU's: clusters of $size" made cluster_size=$size $bytes
	check "ours: clusters of $size" own "cluster_size: ${size/k/KiB}" ${bytes}iB $bytes
done
for size in 16k 64k 2M; do
	bytes=4M
	if [ $size = 2M ]; then bytes=24M; fi
	check "QEMU's: subclusters of $size" made cluster_size=$size,extended_l2=on $bytes
	check "ours: subclusters of $size" own "cluster_size: ${size/k/KiB}"$'\n'"extended_l2: true" ${bytes}iB $bytes
done
for bits in 1 2 8 32 64; do
	check "QEMU's: reference counts of $bits bits" made cluster_size=4k,refcount_bits=$bits 4M
done
check "QEMU's: version 2" made compat=0.10,cluster_size=4k 4M
check "QEMU's: lazy reference counts" made lazy_refcounts=on,cluster_size=4k 4M
check "QEMU's: a writer that is killed" killed
for mode in metadata full; do
	check "QEMU's: preallocation $mode" made preallocation=$mode,cluster_size=4k 4M
done
rare "QEMU's: preallocation falloc" made preallocation=falloc,cluster_size=4k 4M
check "QEMU's: preallocated, subclusters" made preallocation=metadata,extended_l2=on 4M
check "QEMU's: a disk that ends in a cluster" made cluster_size=64k 3333k
check "ours: a disk that ends in a cluster" own "cluster_size: 64KiB" 3412992 3333k
for size in 512 2M; do check "QEMU's: compressed by zlib, clusters of $size" compressed zlib $size; done
check "QEMU's: compressed by zstd, clusters of 64k" compressed zstd 64k
rare "QEMU's: compressed by zlib, clusters of 64k" compressed zlib 64k
for size in 512 2M; do rare "QEMU's: compressed by zstd, clusters of $size" compressed zstd $size; done
check "QEMU's: compressed clusters among others" compressed_mixed
check "QEMU's: snapshots" snapshots cluster_size=4k
check "QEMU's: snapshots, subclusters" snapshots cluster_size=16k,extended_l2=on
check "QEMU's: snapshots, version 2" snapshots compat=0.10,cluster_size=4k
check "QEMU's: snapshots, reference counts of 4 bits" snapshots cluster_size=512,refcount_bits=4
check "our snapshots" snapshots_of_ours cluster_size=4k
check "our snapshots, subclusters" snapshots_of_ours cluster_size=16k,extended_l2=on
check "our snapshots, clusters of 1k" snapshots_of_ours cluster_size=1k
check "our snapshots, version 2" snapshots_of_ours compat=0.10,cluster_size=64k
check "QEMU's: data file" data_file cluster_size=64k
check "QEMU's: raw data file" data_file cluster_size=64k,data_file_raw=on
check "QEMU's: raw data file, subclusters" data_file cluster_size=64k,extended_l2=on,data_file_raw=on
for depth in 2 4; do rare "QEMU's: $depth over each other" chain $depth; done
for depth in 1 3 5; do check "QEMU's: $depth over each other" chain $depth; done
check "ours: over a backing image" own_over "cluster_size: 4KiB"
check "ours: subclusters over a backing image" own_over "extended_l2: true"
check "QEMU's: over a backing image, opened without" without_backing
for bytes in 32 64; do check "QEMU's: LUKS, a key of $bytes bytes" luks $bytes; done
check "QEMU's: LUKS below an overlay" luks_below
check "QEMU's: bitmaps" bitmaps
check "QEMU's: resized" resized

echo "1..$n"
exit $bad
