#!/bin/bash
# qcow2 images that somebody has made to harm: each is refused in words, or only the requests that meet what is
# wrong fail; no crash, no hang, no more memory than its tables may have. Then images of qemu-img with bytes of
# their metadata changed, by a seed. Prints TAP; no root.
# Usage: qcow2_hostile.sh [BUILD_FOLDER]; UBLKD_SEED=N; UBLKD_SOAK=1: more bytes
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
node_io=$(readlink -f "${1:-$top/build/asan}")/test/node_io
seed=${UBLKD_SEED:-1}
flip_nr=200 rounds=1
if [ "${UBLKD_SOAK:-}" ]; then rounds=20; fi
# MiB: the tables may have 32 of L1, 8 of reference counts and 32 of cache, and asan doubles some
rss=300
tmp=$(mktemp -d /tmp/ublkd-hostile.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"
cd "$tmp" || exit 1
echo "# seed $seed: UBLKD_SEED=$seed test/interop/qcow2_hostile.sh ${1:-}"

# opens NAME rw|ro SCRIPT: refused by the words that are wanted, or the script runs.
opens() {
	local name=$1 how=$2 script=$3 words code=0 options=(--seconds 10)
	words=$(sed -n "s/^$how //p" "$name.want")
	if [ "$how" = ro ]; then options+=(--read-only); fi
	timeout 60 "$node_io" "${options[@]}" --rss $rss "$script" "$name.tree" >out 2>&1 || code=$?
	cat out
	if [ $code != 0 ]; then return 1; fi
	case $words in
	'') grep -q ': well, code 0,' out ;;
	*'|') grep -qE ': well, code (0|3),' out ;;
	*) grep -q ': well, code 3,' out && grep -qE "refused: qcow2: .*($words)" out ;;
	esac
}

named() {
	local name=$1
	opens "$name" ro "$name.script" || return
	opens "$name" rw "$name.script" || return
	# What can be opened is written too; then it may be refused.
	if ! grep -q 'code 0' out; then return; fi
	timeout 60 "$node_io" --seconds 10 --rss $rss writes.script "$name.tree" && timeout 60 "$node_io" --seconds 10 \
		--queues 1 --rss $rss writes.script "$name.tree"
}

printf '%s\n' 'scribble 7 150' flush probe 'scribble 8 50' close open probe >writes.script
"$top/test/interop/qcow2_hostile.py" named . || exit 1
for name in *${UBLKD_ONLY:-}*.want; do ok "hostile: ${name%.want}" named "${name%.want}"; done
rm -f ./*.qcow2

# --- any byte -----------------------------------------------------------------------------------

# Small ones of all kinds: snapshots, compressed, subclusters, version 2, bitmaps, a backing name.
bases() {
	head -c 300k /dev/zero | tr '\0' 'x' >source.raw
	timeout 60 qemu-img convert -f raw -O qcow2 -c -o cluster_size=512 source.raw base1 && qemu-img snapshot -c a base1 &&
		qemu-io -f qcow2 -c 'write -P 1 1k 30k' base1 >/dev/null &&
		qemu-img create -q -f qcow2 -o cluster_size=16k,extended_l2=on base2 4M &&
		qemu-io -f qcow2 -c 'write -P 1 1k 300k' -c 'write -z 20k 40k' base2 >/dev/null &&
		qemu-img create -q -f qcow2 -o compat=0.10,cluster_size=4k base3 8M &&
		qemu-io -f qcow2 -c 'write -P 1 1k 300k' -c 'write 3M 10k' base3 >/dev/null && qemu-img snapshot -c a base3 &&
		qemu-img create -q -f qcow2 -o cluster_size=4k,refcount_bits=1 -b base2 -F qcow2 base4 4M &&
		qemu-img bitmap --add -g 4k base4 one && qemu-io -f qcow2 -c 'write 1k 300k' base4 >/dev/null &&
		timeout 60 qemu-img convert -f raw -O qcow2 -c -o compression_type=zstd source.raw base5
}

flips() {
	rm -f ./flip*
	"$top/test/interop/qcow2_hostile.py" flips . "$1" $flip_nr base[1-5] || return
	# NOT WELL is what it says of an image then
	if ! timeout 3000 "$node_io" --seconds 10 --rss $rss bytes.script flip*.tree >out 2>&1; then
		grep -B30 'NOT WELL' out | head -150
		return 1
	fi
	# most of them can be opened: else this would be a test of the header alone
	[ "$(grep -c 'code 0' out)" -gt $((flip_nr / 4)) ] && [ "$(grep -c 'code 3' out)" -gt $((flip_nr / 50)) ]
}

printf '%s\n' probe 'scribble 3 40' flush probe close open probe >bytes.script
if ! command -v qemu-img >/dev/null || ! command -v qemu-io >/dev/null; then
	skip "bytes changed" "needs qemu-img and qemu-io"
elif ok "images to change" bases && [ $bad = 0 ]; then
	for ((round = 0; round < rounds; round++)); do
		ok "bytes changed, $flip_nr images of seed $((seed + round))" flips $((seed + round))
	done
fi

echo "1..$n"
exit $bad
