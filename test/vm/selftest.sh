#!/bin/bash
# Tests the runner of the guest itself (vm.sh); prints TAP. How the end of a command and of a guest is told, by the kind of
# guest that vm.sh takes by itself; with UBLKD_ALL=1 by the stock kernels too, with UBLKD_SOAK=1 also what each suite
# relies on anyway, which takes 100 seconds on a quiet machine.
# shellcheck disable=SC2317 # check calls the functions that it thinks nobody calls
set -uo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(dirname "$(dirname "$here")")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$top/build/out/selftest.$$"' EXIT
export UBLKD_VM_DMESG=$tmp/dmesg
number=0
failed=0
kind=() # arguments of vm.sh that say which guest

# Runs vm.sh; leaves its exit code in $code, its seconds in $took, its output in $tmp/out and $tmp/err.
vm() {
	local begin=$SECONDS
	code=0
	"$here/vm.sh" "${kind[@]}" "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
	took=$((SECONDS - begin))
}

check() { # NAME COMMAND...: one test, which passes when COMMAND does
	local name=$1 result=ok
	shift
	number=$((number + 1))
	if ! "$@"; then
		result='not ok'
		failed=$((failed + 1))
		printf '# exit code %s; the last lines of stdout and stderr:\n' "$code"
		tail -n 5 "$tmp/out" "$tmp/err" | sed 's/^/# /'
	fi
	printf '%s %d - %s\n' "$result" "$number" "$name"
}

code_is() { [ "$code" = "$1" ]; }
out_is() { [ "$(cat "$tmp/out")" = "$1" ]; }
err_is() { [ "$(cat "$tmp/err")" = "$1" ]; }
out_has() { grep -qF -- "$1" "$tmp/out"; }
err_has() { grep -qF -- "$1" "$tmp/err"; }

test_kernels() {
	local series
	for series in 7.2 6.12; do
		vm -k "$series" -- sh -c 'uname -r; test -c /dev/ublk-control && echo ublk; nproc'
		check "$series: exit code 0" code_is 0
		check "$series: that kernel runs" grep -q "^${series/./\\.}\." "$tmp/out"
		check "$series: the ublk driver is there" out_has ublk
		check "$series: two CPUs" grep -qx 2 "$tmp/out"
		check "$series: dmesg is kept" grep -q 'Linux version' "$tmp/dmesg"
	done
}

test_streams() {
	vm -- sh -c 'echo to stdout; echo to stderr | tee /dev/stderr >/dev/null; exit 7'
	check "exit code 7" code_is 7
	check "stdout alone on stdout" out_is "to stdout"
	check "stderr alone on stderr" err_is "to stderr"
	vm -- sh -c 'head -c 3000000 /dev/zero | tr "\0" x; kill -9 $$'
	check "3 MB of output arrive" test "$(wc -c <"$tmp/out")" = 3000000
	check "killed by a signal: 128 + 9" code_is 137
	vm -- no-such-program
	check "no such program: 127" code_is 127
	boot_s=$took
}

test_live_output() {
	local first=0 last=0 line
	code=0
	while read -r line; do
		if [ "$line" = first ]; then first=$EPOCHSECONDS; else last=$EPOCHSECONDS; fi
	done < <("$here/vm.sh" -- sh -c 'echo first; sleep 3; echo last')
	check "output comes while the command runs" test $((last - first)) -ge 2
}

test_arguments() {
	local args=('a  b' "it's" '"q"' $'two\nlines' 'ünï → 漢' '' "\$HOME \`x\` \\n" -- -t '*')
	# shellcheck disable=SC2016
	UBLKD_VM_ENV="SELFTEST NOT_SET" SELFTEST=$'a "b"\n c' vm -- bash -c 'printenv SELFTEST >&2; printf "<%s>\n" "$@"' bash "${args[@]}"
	check "arguments arrive as they are" out_is "$(printf '<%s>\n' "${args[@]}")"
	check "UBLKD_VM_ENV passes variables" err_is $'a "b"\n c'
}

test_files() {
	local file=selftest.$$
	mkdir "$tmp/bin"
	printf '#!/bin/sh\necho found\n' >"$tmp/bin/selftest-program"
	chmod +x "$tmp/bin/selftest-program"
	UBLKD_BIN_DIR=$tmp/bin vm -s -c 3 -- sh -c \
		"selftest-program; nproc; cat '$here/init.c' | cksum; pwd; echo made >/out/$file; touch '$here/x'"
	check "UBLKD_BIN_DIR is on PATH" out_has found
	check "-s -c 3: three CPUs in one host thread" grep -qx 3 "$tmp/out"
	check "the tree is visible" out_has "$(cksum <"$here/init.c")"
	check "the current folder is the caller's" out_has "$PWD"
	check "/out is build/out" test "$(cat "$top/build/out/$file")" = made
	check "the tree is read-only" err_has "Read-only file system"
}

# A tree below a place that the guest has for its own.
test_tree_in_tmp() {
	local tree="$tmp/a tree"
	mkdir -p "$tree/test"
	cp -r "$here" "$tree/test/"
	code=0
	(cd "$tree/test" && exec vm/vm.sh -- sh -c 'pwd; cat vm/init.c | cksum') \
		>"$tmp/out" 2>"$tmp/err" || code=$?
	check "a tree in /tmp works" out_is "$tree/test"$'\n'"$(cksum <"$here/init.c")"
}

test_ends() {
	# A boot takes several times as long on a busy machine.
	local limit=$((8 + 3 * boot_s))
	vm -t $limit -- sh -c 'echo before; sleep 1000'
	check "time is up: 124" code_is 124
	check "time is up: said so" err_has "the time limit of $limit s (-t) is up"
	check "time is up: earlier output is kept" out_is before
	vm -- sh -c 'echo before; echo c >/proc/sysrq-trigger'
	check "panic: 125" code_is 125
	check "panic: the console is shown" err_has "Kernel panic - not syncing: sysrq triggered crash"
	vm -- sh -c 'echo o >/proc/sysrq-trigger; sleep 100'
	check "the guest vanishes: 125" code_is 125
	code=0
	"$here/vm.sh" "${kind[@]}" -- yes 2>"$tmp/err" | head -n 1 >"$tmp/out"
	code=${PIPESTATUS[0]}
	check "nobody reads the output: 141" code_is 141
	vm -k 1.0 -- true
	check "unknown kernel: 125" code_is 125
}

# Whoever ends a run that hangs gets to know where.
test_told_to_end() {
	local pid
	"$here/vm.sh" "${kind[@]}" -- sh -c 'echo before; sleep 1000' >"$tmp/out" 2>"$tmp/err" &
	pid=$!
	for _ in {1..600}; do
		if out_is before; then break; fi
		sleep 0.1
	done
	kill -TERM "$pid"
	code=0
	wait "$pid" || code=$?
	check "told to end: 143" code_is 143
	check "told to end: the guest says which tasks are blocked" grep -q 'sysrq: Show Blocked State' "$tmp/dmesg"
}

no_guest() { ! pgrep -f "mem,size=$1,share=on" >/dev/null; }

test_interrupted() { # its odd memory size tells this guest's QEMU from others
	local pid size=1789M
	"$here/vm.sh" -m "$size" -- sleep 1000 >"$tmp/out" 2>"$tmp/err" &
	pid=$!
	sleep 4
	if no_guest "$size"; then echo "# the guest had not started yet"; fi
	kill -TERM "$pid"
	code=0
	wait "$pid" || code=$?
	check "interrupted: exit code" code_is 143
	sleep 0.5
	check "interrupted: nothing is left" no_guest "$size"
}

test_parallel() {
	local pid code_1=0
	"$here/vm.sh" -k 6.12 -m 1G -- sh -c 'sleep 2; echo one' >"$tmp/out1" 2>&1 &
	pid=$!
	vm -m 1G -- sh -c 'sleep 2; echo two'
	wait "$pid" || code_1=$?
	check "two at once: the first" test "$code_1,$(cat "$tmp/out1")" = 0,one
	check "two at once: the second" test "$code,$(cat "$tmp/out")" = 0,two
}

# Microseconds of guest time for a fixed number of instructions: the median of nine tries, as after its boot the kernel
# has work now and then.
busy_loop() {
	# shellcheck disable=SC2016
	vm -i -- bash -c 'for n in {1..9}; do
			a=${EPOCHREALTIME/./}; for ((i = 0; i < 50000; i++)); do :; done
			echo $((${EPOCHREALTIME/./} - a))
		done | sort -n | sed -n 5p'
	cat "$tmp/out"
	return "$code"
}

test_instruction_clock() {
	local quiet loaded loads=() difference failure=0
	quiet=$(busy_loop) || failure=$?
	for _ in $(seq "$(nproc)"); do # on a loaded host, guest time must not change
		(while :; do :; done) &
		loads+=($!)
	done
	loaded=$(busy_loop) || failure=$?
	kill "${loads[@]}"
	wait "${loads[@]}" 2>/dev/null
	difference=$((quiet > loaded ? quiet - loaded : loaded - quiet))
	code=$failure
	echo "# $quiet us on a quiet host, $loaded us on a loaded one"
	check "-i: the same time within 1%" test $((difference * 100)) -lt "${quiet:-0}"
}

test_streams
test_ends
test_told_to_end
if [ -n "${UBLKD_ALL:-}" ]; then
	for series in 7.2 6.12; do
		kind=(-k "$series")
		test_streams
		test_ends
		test_told_to_end
	done
	kind=()
fi
if [ "${UBLKD_SOAK:-}" = 1 ]; then
	test_kernels
	test_live_output
	test_arguments
	test_files
	test_tree_in_tmp
	test_interrupted
	test_parallel
	test_instruction_clock
fi
printf '1..%d\n' "$number"
exit $((failed > 0))
