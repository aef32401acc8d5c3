#!/bin/bash
# Builds every flavour and runs every test; ./dev check calls it with everything installed.
#
#   check.sh          all of it
#   check.sh --fast   what needs no root, no ublk and no network
#   check.sh --soak   also the long runs
#
# Every test program prints TAP; this adds them up and ends with `N passed, N failed, N skipped`.
set -uo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$top" || exit 1

mode=full
case ${1:-} in
'') ;;
--fast) mode=fast ;;
--soak) mode=soak ;;
*)
	echo "usage: ./dev check [--fast|--soak]" >&2
	exit 2
	;;
esac

passed=0 failed=0 skipped=0 failures=()
logs=build/check
rm -rf "$logs"
mkdir -p "$logs" build/out

if [ -t 1 ]; then red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'; else red='' green='' plain=''; fi

# One result that is not a TAP line of its own: result NAME ok|fail [HOW TO REPEAT]
result() {
	if [ "$2" = ok ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		failures+=("$1: $3")
	fi
}

# Counts the TAP lines of a log, and names the failures; how to run it again goes with them.
count_tap() {
	local name=$1 log=$2 again=$3 line
	passed=$((passed + $(grep -cE '^ok [0-9]+' "$log") - $(grep -cE '^ok [0-9]+.*# SKIP' "$log")))
	skipped=$((skipped + $(grep -cE '^ok [0-9]+.*# SKIP' "$log")))
	failed=$((failed + $(grep -cE '^not ok [0-9]+' "$log")))
	while read -r line; do failures+=("$name: $line   again: $again"); done \
		< <(grep -E '^not ok [0-9]+' "$log")
}

# A run must keep its plan: a program that dies half way has not passed.
plan_kept() {
	local planned ran
	planned=$(grep -oE '^1\.\.[0-9]+' "$1" | head -1)
	ran=$(grep -cE '^(not )?ok [0-9]+' "$1")
	[ -n "$planned" ] && [ "${planned#1..}" = "$ran" ]
}

# Runs a TAP program under a time limit; its exit code and duration go beside its log.
tap_run() {
	local name=$1 limit=$2 start=$SECONDS code=0
	shift 2
	printf '%s ' "$*" >"$logs/$name.again"
	timeout -k 10 "$limit" "$@" >"$logs/$name.tap" 2>"$logs/$name.err" </dev/null || code=$?
	echo "$code $((SECONDS - start))" >"$logs/$name.ends"
	mv "$logs/$name.ends" "$logs/$name.end" # whole when it is there
}

# Adds up what tap_run left.
tap_count() {
	local name=$1 log=$logs/$1.tap before=$failed code seconds again
	read -r code seconds <"$logs/$name.end"
	again=$(cat "$logs/$name.again")
	count_tap "$name" "$log" "$again"
	if ! plan_kept "$log" || { [ "$code" -ne 0 ] && [ "$failed" = "$before" ]; }; then
		failed=$((failed + 1))
		failures+=("$name: ended early or with exit code $code   again: $again")
	fi
	if [ "$failed" = "$before" ]; then
		printf '%sok%s   %-28s %3ds\n' "$green" "$plain" "$name" "$seconds"
	else
		printf '%sFAIL%s %-28s %3ds  (%s)\n' "$red" "$plain" "$name" "$seconds" "$log"
		grep -hE '^(not ok|# )' "$log" | head -40
		tail -n 20 "$logs/$name.err"
	fi
}

# tap NAME SECONDS COMMAND...: runs a TAP program under a time limit and adds its counts.
tap() {
	tap_run "$@"
	tap_count "$1"
}

# guest NAME KERNEL SUITE SECONDS BUILD [FLAG...]: one guest suite with the programs of a build. Flags go to
# vm.sh: -i for suites that compare times, -s for those that trace, -c for those that want more CPUs.
# UBLKD_SOAK: the long form.
guest() {
	TSAN_OPTIONS="suppressions=$top/test/tsan.supp" UBLKD_VM_ENV="TSAN_OPTIONS UBLKD_SOAK" \
		UBLKD_BIN_DIR=$top/build/$5/bin UBLKD_VM_DMESG=$top/$logs/$1.dmesg \
		tap_run "$1" $(($4 + 60)) test/vm/vm.sh -k "$2" -t "$4" "${@:6}" -- "$top/test/vm/guest_$3.sh"
}

# What run_later runs, two at a time and in this order: words of guest or tap_run, the second is its name.
queue=()
later() { queue+=("$*"); }

# guests KERNELS SECONDS FLAGS SUITE...: each suite on each kernel, later
guests() {
	local kernels=$1 seconds=$2 flags=$3 suite kernel
	shift 3
	for suite in "$@"; do
		for kernel in $kernels; do
			later guest "guest-$kernel-$suite" "$kernel" "$suite" "$seconds" release "$flags"
		done
	done
}

# What has ended is added up.
count_ended() {
	local i name
	for i in "${!queue[@]}"; do
		read -r _ name _ <<<"${queue[i]}"
		if [ -e "$logs/$name.end" ]; then
			tap_count "$name"
			unset "queue[i]"
		fi
	done
}

run_later() {
	local entry running=0
	for entry in "${queue[@]}"; do
		if [ $running -ge 2 ]; then wait -n; else running=$((running + 1)); fi
		count_ended
		$entry &
	done
	wait
	count_ended
	for entry in "${queue[@]}"; do result "$entry" fail "has not run"; done
}

# step NAME COMMAND...: one result, the exit code of a command that prints nothing when well.
step() {
	local name=$1 log=$logs/$1.log start=$SECONDS
	shift
	if "$@" >"$log" 2>&1 </dev/null; then
		result "$name" ok
		printf '%sok%s   %-28s %3ds\n' "$green" "$plain" "$name" $((SECONDS - start))
	else
		result "$name" fail "again: $*"
		printf '%sFAIL%s %-28s %3ds\n' "$red" "$plain" "$name" $((SECONDS - start))
		tail -n 40 "$log"
	fi
}

# build PRESET [TARGET...]
build() {
	cmake --preset "$1" && cmake --build "build/$1" ${2:+--target "${@:2}"}
}

units() {
	local preset=$1 program
	export CMOCKA_MESSAGE_OUTPUT=TAP
	for program in build/"$preset"/test/test_*; do
		if [ -x "$program" ]; then tap "$preset-$(basename "$program")" 600 "$program"; fi
	done
}

. test/check_list.sh

printf '\n'
for line in "${failures[@]}"; do printf '%s%s%s\n' "$red" "$line" "$plain"; done
for log in "$logs"/*.tap; do
	sed -nE "s|^ok [0-9]+ (.*) # SKIP(.*)|skipped: \1:\2|p" "$log"
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
