#!/bin/bash
# In the guest: ./dev bench --metal with tiny rounds, so that its numbers say nothing: each system that there is starts, is
# measured and leaves nothing behind. kublk is measured where ./dev bench has built it.
# With --soak: 7.2, 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 400 || exit 1
ip link set lo up
mkdir -p /mnt/ram/metal
top=$(dirname "$(dirname "$here")")
kublk=$top/build/bench/kublk
[ -x "$kublk" ] || kublk=none

bin=$(dirname "$(command -v ublkd)")
metal() { # OPTION...
	"$top/bench/metal/metal.py" --dir /mnt/ram/metal --out "$work/metal" --bin "$bin" --kublk "$kublk" \
		--size 32MiB --seconds 1 "$@" >"$work/table" 2>"$work/metal.err" || { cat "$work/metal.err"; return 1; }
}
ok "two rounds of all, with one job" metal --only ' randread 4k 32 ' --rounds 2 --jobs 1
result() { jq -r "$1" "$work/metal/metal.json" | tee "$work/said"; }
# holds JQ: it is true of the result.
holds() { [ "$(result "$1")" = true ] || { jq -c . "$work/metal/metal.json" && cat "$work/metal.err" && return 1; }; }
# file has a rival everywhere
systems='ublkd-null ublkd-mem ublkd-file ublkd-nbd loop' judged=1
if command -v nbd-client >/dev/null; then
	systems+=' nbd-ko' judged=$((judged + 1))
else
	skip "nbd-ko was measured" "no nbd-client"
fi
for system in $systems; do
	ok "$system was measured" holds "[.cells[] | select(.system == \"$system\" and .rounds == 2 and .iops > 0
		and .p50_us > 0 and .p999_us >= .p50_us and .cpu_s_per_mio > 0 and .switches_per_io > 0)] | length == 1"
done
if [ "$kublk" = none ]; then
	skip "kublk was measured" "no build/bench/kublk: ./dev bench makes it"
else
	judged=$((judged + 1))
	ok "kublk was measured" holds '[.cells[] | select(.system == "kublk-null" or .system == "kublk-loop")] | length == 2'
fi
ok "what is not there is told" holds '.refused["rublk-null"] == "rublk is not installed"'
ok "two rounds are too few for a verdict" holds ".verdicts | length == $judged and all(.[]; .verdict == \"too few rounds\")"
ok "a row for each round" test "$(grep -c '^file,ublkd-file,1,randread,4k,32,' "$work/metal/metal.csv")" = 2
ok "a table and a plot" eval "grep -q '| ublkd-file |' '$work/table' && grep -q '</svg>' '$work/metal/metal.svg'"
ok "three rounds of one, with two jobs" metal --only '^(ublkd-null|kublk-null|null_blk) randwrite 4k 32' --rounds 3 --jobs 2
ok "... by two reactors" holds '[.cells[] | select(.system == "ublkd-null" and .jobs == 2 and .rounds == 3)] | length == 1'
nothing_left() {
	ls /dev/ublkc* /mnt/ram/metal/* 2>/dev/null && return 1
	[ -z "$(losetup -a)$(pidof ublkd nbdkit nbd-client)" ]
}
ok "nothing is left" nothing_left
broken() { ! metal --bin /nowhere --only ublkd-null && grep -q "no /nowhere/ublkd: ./dev build makes it" "$work/metal.err"; }
ok "without a daemon it says so" broken
finish
