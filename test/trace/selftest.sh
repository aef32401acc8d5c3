#!/bin/bash
# `ublktrace probes`, `selftest` and `control` on this machine, whatever it has: io_uring is seen where
# BPF is, and where it is not one line says why. Prints TAP. Usage: selftest.sh [BIN_FOLDER]
set -u

top=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
bin=$(readlink -f "${1:-$top/build/release/bin}")
tmp=$(mktemp -d /tmp/ublktrace-selftest.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
export PATH=$bin:$PATH
. "$top/test/tap.sh"

# exits CODE COMMAND...: with that code; what it prints is in $tmp/out and $tmp/err
exits() {
	local want=$1 code=0
	shift
	timeout 300 "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ $code = "$want" ] || { echo "exit code $code of: $*"; cat "$tmp/out" "$tmp/err"; return 1; }
}
prints() { exits "$1" "${@:3}" && { grep -qE "$2" "$tmp/out" "$tmp/err" || { cat "$tmp/out" "$tmp/err"; return 1; }; }; }
seen() {
	jq -e --arg p "$1" '.layers[] | select(.point == $p) | .result == "seen" and .seen >= 1' "$tmp/selftest.json" \
		>/dev/null || { cat "$tmp/selftest.json"; return 1; }
}

if ! command -v ublktrace >/dev/null; then
	skip "ublktrace" "it is not built here"
	echo "1..$n"
	exit 0
fi

for command in probes selftest control; do
	ok "$command --help" prints 0 "^usage: ublktrace $command" ublktrace $command --help
	ok "$command: a wrong option is exit code 2" prints 2 "^ublktrace $command: " ublktrace $command --nonsense
	ok "$command: a word too many as well" prints 2 "unexpected argument 'more'" ublktrace $command more
done
ok "control: a pid is a number" prints 2 "needs a process id, not 'abc'" ublktrace control -p abc
ok "control: so is a time" prints 2 "needs a number of seconds, not '-1'" ublktrace control --duration -1
ok "main --help lists them" prints 0 "selftest" ublktrace --help

if ublktrace selftest 2>&1 | grep -q '^ublktrace selftest: missing: CAP_'; then
	ok "without rights: one line" prints 1 "missing: CAP_" ublktrace selftest
	skip "what is seen" "no rights: run it as root"
	echo "1..$n"
	exit $bad
fi
ok "selftest" exits 0 ublktrace selftest --json
cp "$tmp/out" "$tmp/selftest.json"
for point in sys_enter sched_switch io_uring_submit_req io_uring_complete io_uring_queue_async_work; do
	ok "selftest: $point" seen $point
done
ok "selftest: no colours in a file" eval '! grep -q "\[3" "$tmp/selftest.json"'
ok "probes finds what a trace needs" exits 0 ublktrace probes --json
ok "... in JSON" jq -e '.required_missing == 0 and (.points | length > 50)' "$tmp/out"
ok "... io_uring_complete" jq -e '.points[] | select(.point == "io_uring_complete") | .attached and .how == "tp_btf"' "$tmp/out"
ok "control runs, and tells its losses" prints 0 "^lost: 0 ring buffer full, 0 map full, 0 missed" \
	ublktrace control --duration 0.3
if setpriv --bounding-set -bpf,-perfmon,-sys_admin --inh-caps -bpf,-perfmon,-sys_admin true 2>/dev/null; then
	for command in selftest control; do
		ok "$command without rights: one line with the cure" prints 1 \
			"^ublktrace $command: missing: CAP_BPF and CAP_PERFMON; run it as root" \
			setpriv --bounding-set -bpf,-perfmon,-sys_admin --inh-caps -bpf,-perfmon,-sys_admin \
			ublktrace $command
		ok "... and no more" test "$(cat "$tmp/out" "$tmp/err" | wc -l)" = 1
	done
else
	skip "without rights" "setpriv cannot drop them here"
fi
echo "1..$n"
exit $bad
