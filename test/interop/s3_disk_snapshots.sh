#!/bin/bash
# Snapshots of a disk of objects, in a store that is well and in one where answers get lost. Prints TAP; no root, no
# ublk. Usage: s3_disk_snapshots.sh [TEST_FOLDER], where node_io is.
set -u

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=${here%/*/*}
tests=$(readlink -f "${1:-$top/build/asan/test}")
tmp=$(mktemp -d /tmp/ublkd-s3-disk.XXXXXX)
store=
end_all() {
	[ -z "$store" ] || kill "$store" 2>/dev/null
	rm -rf "$tmp"
}
trap end_all EXIT
. "$top/test/tap.sh"

start_store() { # SETTING...
	local setting args=()
	[ -z "$store" ] || kill "$store"
	for setting; do args+=(--set "$setting"); done
	rm -f "$tmp/port"
	"$here/s3_store.py" --port-file "$tmp/port" "${args[@]}" >"$tmp/store.log" 2>&1 &
	store=$!
	disown
	until [ -s "$tmp/port" ]; do
		kill -0 $store || return
		sleep .02
	done
}
# tree FILE [LINE]...
tree() {
	printf '%s\n' 'type: delay' 'all: 1us' 'backend:' '  type: s3-disk' '  bucket: disks' '  prefix: vm' '  lease: 1s' \
		"  endpoint: \"http://127.0.0.1:$(cat "$tmp/port")\"" >"$tmp/$1"
	shift
	printf '  %s\n' "$@" >>"$tmp/$tree"
}
# does LINE...: node_io does what the lines say
does() {
	printf '%s\n' "$@" >"$tmp/script"
	timeout 30 "$tests/node_io" --queues 1 "${options[@]}" "$tmp/script" "$tmp/$tree"
}
# refused WORDS LINE...
refused() {
	local words=$1
	shift
	does "$@" >"$tmp/words" 2>&1 && return 1
	cat "$tmp/words"
	grep -q -- "$words" "$tmp/words"
}

all_of_it() {
	local seed=$1
	options=() tree=disk
	tree disk 'create: true' 'size: 4MiB' 'object_size: 64KiB' 'buffers: 3'
	ok "$2written, kept as two snapshots while it is written" does zeroes "random $seed 200" "dump $tmp/a" \
		'snapshot create a' "random $((seed + 1)) 200" flush "dump $tmp/b" "snapshot create b $seed 100" \
		"random $((seed + 2)) 200" "dump $tmp/c" verify
	tree disk
	ok "$2opened again" does "load $tmp/c" verify "random $((seed + 3)) 100" verify
	ok "$2the first is applied, and written to" does 'snapshot apply a' "load $tmp/a" verify "random $((seed + 4)) 100" \
		"dump $tmp/d" verify
	ok "$2that is kept, too, after a crash" does "load $tmp/d" verify crash open verify close open verify
	ok "$2the second is applied, the first deleted" does 'snapshot apply b' "load $tmp/b" verify 'snapshot delete a' verify \
		close open verify "random $((seed + 5)) 100" verify
	options=(--read-only) tree=view
	tree view 'snapshot: b'
	ok "$2a snapshot is read beside" does "load $tmp/b" verify
	tree view 'snapshot: a'
	ok "$2one that is deleted is not" refused 'has no snapshot "a"' verify
	options=() tree=disk
}

tree=disk options=()
ok "a store" start_store page=7
all_of_it 1 ""
ok "a name that is taken" refused 'there is a snapshot of that name' 'snapshot create b'
ok "a name that is none" refused 'a name has letters' 'snapshot create a/b'
ok "one that is not there" refused 'no such snapshot' 'snapshot apply nobody'
seed=$RANDOM
echo "# seed $seed"
ok "a store that loses answers" start_store page=7 chaos=25 seed=$seed
all_of_it $seed "lost answers: "
echo "1..$n"
exit $bad
