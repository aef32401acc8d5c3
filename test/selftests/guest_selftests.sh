#!/bin/bash
# In the guest: runs the selftests in a folder as docs/selftests.md says, or those named.
#   guest_selftests.sh FOLDER [TEST...]
#
. "$(dirname "$(readlink -f "$0")")/../vm/guest_lib.sh"

folder=$1
shift
table=$here/../../docs/selftests.md
export TMPDIR=/mnt/ram UBLKD_SELFTEST_NOTES=$work/notes

# row TEST: sets $verdict and $why; fails when the table has none.
row() {
	local line
	line=$(grep -m 1 -E "^\| $1 \|" "$table") || return
	IFS='|' read -r _ _ verdict why _ <<<"$line"
	verdict=$(echo $verdict) why=$(echo $why)
}

# A test can leave behind what would disturb the next one.
clear_away() {
	local pids device
	pids=$(pidof ublkd fio dd) && kill -KILL $pids
	wait_for 10 no_pid ublkd fio dd
	for device in /dev/ublkc*; do
		[ ! -e "$device" ] || timeout 20 "$folder/kublk.kernel" del -n "${device#/dev/ublkc}"
	done
	# what a fio or dd that came too late has made in place of the device
	find /dev -maxdepth 1 -type f -name 'ublkb*' -print -delete
	rm -rf /run/kublk "${TMPDIR:?}"/[!l]*
}

no_pid() { ! pidof "$@"; }

no_device() { ! find /dev -name 'ublkc*' | grep .; }

# The exit code alone says too little: some exit with 0 when a part of them has failed.
selftest() {
	local code=0
	: >"$UBLKD_SELFTEST_NOTES"
	(cd "$folder" && timeout -k 5 1500 "./test_$1.sh") >"$work/selftest" 2>&1 || code=$?
	cat "$work/selftest"
	echo "exit code $code"
	[ $code = 0 ] && grep -qF '[PASS]' "$work/selftest" && ! grep -qF '[FAIL]' "$work/selftest" && no_device
}

run() {
	ok "$1" selftest "$1"
	sort -u "$UBLKD_SELFTEST_NOTES" | sed 's/^/# /'
	clear_away >"$work/cleared" 2>&1
}

bpftrace_new_enough() {
	local version
	version=$(bpftrace --version 2>/dev/null) && version=${version#*v} &&
		printf '0.18\n%s\n' "$version" | sort -V -C
}

fio_new_enough() { printf 'fio-3.42\n%s\n' "$(fio --version)" | sort -V -C; }

# Why this test cannot run here, or nothing.
obstacle() { # TEST
	case $verdict in
	no) echo "$why" ;;
	*7.2) [ "$UBLKD_VM" != 6.12 ] || echo "Linux 6.12 lacks what it tests" ;;
	esac
	if [[ $verdict = soak* && -z ${UBLKD_SOAK:-} ]]; then echo "takes long: UBLKD_SOAK=1 runs it"; fi
	if [ "$1" = generic_17 ] && [ ! -x "$folder/ublkd.faults" ]; then
		echo "no build/release/faults: cmake --build build/release --target ublkd-faults"
	fi
	if [ "$1" = part_01 ] && ! command -v sfdisk >/dev/null; then echo "no sfdisk: apt-get install fdisk"; fi
	if [ "$1" = integrity_02 ] && ! fio_new_enough; then echo "fio 3.42 is not here: $(fio --version) has no metadata options for io_uring"; fi
	if [ "$1" = generic_02 ] && ! bpftrace_new_enough; then echo "bpftrace 0.18 is not here"; fi
}

consider() { # TEST
	local reason
	if ! row "$1"; then
		ok "$1 is in docs/selftests.md" false
		return
	fi
	reason=$(obstacle "$1" | head -n 1)
	if [ -n "$reason" ]; then skip "$1" "$reason"; else run "$1"; fi
}

all_tests() { find "$folder" -name 'test_[a-z]*_[0-9]*.sh' -printf '%f\n' | sed -E 's/^test_(.*)\.sh/\1/' | sort; }

# UBLKD_THIRD, 0 to 2: of the tests this third alone.
has_turn() { # TEST
	local sum
	sum=$(cksum <<<"$1")
	[ -z "${UBLKD_THIRD:-}" ] || [ $((${sum%% *} % 3)) = "$UBLKD_THIRD" ]
}

no_stale_rows() {
	sed -nE 's/^\| ([a-z]+_[0-9]+) \|.*/\1/p' "$table" | sort | comm -23 - <(all_tests) |
		sed 's/$/ is not among the tests/' | { ! grep .; }
}

ram_disk 1200 || exit 1
if [ $# -gt 0 ]; then
	for test; do run "$test"; done
else
	for test in $(all_tests); do
		if has_turn "$test"; then consider "$test"; fi
	done
	ok "docs/selftests.md names no other tests" no_stale_rows
fi
finish
