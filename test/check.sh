#!/bin/bash
# Builds every flavour and runs every test; ./dev check calls it with everything installed.
#
#   check.sh          what guards most, and a third of the rest by turns
#   check.sh --fast   what needs no root, no ublk and no network; of what takes turns only what HEAD and the working tree change
#   check.sh --all    without turns: every suite on each kernel that it is for
#   check.sh --soak   also the long runs, for a night
#
# Every test program prints TAP; this adds them up and ends with `N passed, N failed, N skipped`.
set -uo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$top" || exit 1

mode=full
unset UBLKD_FAST UBLKD_ALL UBLKD_SOAK
case ${1:-} in
'') ;;
--fast) mode=fast && export UBLKD_FAST=1 ;;
--all) mode=all && export UBLKD_ALL=1 ;;
--soak) mode=soak && export UBLKD_ALL=1 UBLKD_SOAK=1 ;;
*)
	echo "usage: ./dev check [--fast|--all|--soak]" >&2
	exit 2
	;;
esac

# The interpreter itself, not a launcher (of pyenv, say) that looks for it at each start: tests start it a thousand times.
PATH=$(dirname "$(python3 -c 'import sys; print(sys.executable)')"):$PATH

# ASan gives shadow of freed memory back to the kernel from 64 KiB on: a test that often allocates large buffers takes half
# as long again.
export ASAN_OPTIONS=clear_shadow_mmap_threshold=$((1 << 30))

logs=build/check
rm -rf "$logs"
mkdir -p "$logs" build/out
. test/check_queue.sh
. test/check_turns.sh
tap_watch=$top/$logs/tap_watch
build_watch "$tap_watch" || exit 1

# What tap_watch must know of a guest: its suites wait for deadlines, QEMU uses CPU time for a guest that
# waits (on the instruction clock all of it), and who runs the guest is asked for its state, which takes a while.
guest_limits() { echo "-s 30 -c 30 -b $1 -q 25"; }
guest_seconds=2700

# guest NAME KERNEL SUITE SECONDS BUILD [FLAG...]: one guest suite with the programs of a build. Flags go to
# vm.sh: -i for suites that compare times, -s for those that trace, -c for those that want more CPUs.
# UBLKD_SOAK: the long form.
# Between two lines none has used more than 50 s of CPU time.
# shellcheck disable=SC2046 # words
guest() {
	TSAN_OPTIONS="suppressions=$top/test/tsan.supp" UBLKD_VM_ENV="TSAN_OPTIONS UBLKD_SOAK" \
		UBLKD_BIN_DIR=$top/build/$5/bin UBLKD_VM_DMESG=$top/$logs/$1.dmesg \
		tap_run "$1" $(($4 + 60)) $(guest_limits 200) test/vm/vm.sh -k "$2" -t "$4" "${@:6}" -- "$top/test/vm/guest_$3.sh"
}

# guest_script NAME SECONDS SCRIPT...: one that runs guests itself
# shellcheck disable=SC2046 # words
guest_script() { tap_run "$1" "$2" $(guest_limits "$2") "${@:3}"; }

# build PRESET [TARGET...]; what is built can be put into the package. LTO costs a second compilation of the data path,
# for speed that no test measures: --soak has it, as users do. `./dev build` and `./dev bench` turn it on again, and all
# that a debugger wants to know.
build() {
	local lto=OFF
	if [ "$mode" = soak ] && [ "$1" = release ]; then lto=ON; fi
	cmake --preset "$1" -D CMAKE_INSTALL_PREFIX=/usr -D UBLKD_LTO=$lto -D UBLKD_LINES_ONLY=ON && cmake --build "build/$1" ${2:+--target "${@:2}"}
}

# build_niced PRESET [TARGET...]: beside tests
build_niced() {
	nice -n 10 cmake --preset "$1" && nice -n 10 cmake --build "build/$1" -j 2 ${2:+--target "${@:2}"}
}

# host NAME SECONDS COMMAND...: a TAP program of this machine, in the lane of those, or of what $lane says
lane=host
host() { later "$lane" tap_run "$@"; }

# computes NAME SECONDS COMMAND...: one that has no more to say for as long as it works
computes() { host "$1" "$2" -b "$2" "${@:3}"; }

units() {
	local preset=$1 program
	for program in build/"$preset"/test/test_*; do
		if [ -x "$program" ]; then host "$preset-$(basename "$program")" 600 "$program"; fi
	done
}

. test/check_list.sh

printf '\n'
print_times 25
print_left_out
print_results
