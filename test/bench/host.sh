#!/bin/bash
# ./dev bench --host makes its comparison, and says so when it cannot. Prints TAP.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
tmp=$(mktemp -d /tmp/ublkd-bench.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"

compares() {
	local code=0
	"$top/bench/nbd_host.sh" --rounds 1 --seconds 0.2 --json >"$tmp/json" 2>"$tmp/err" || code=$?
	# 1: on a busy machine a round this short may be anything; whether it was judged is looked at
	[ $code -le 1 ] || { cat "$tmp/err"; return 1; }
	jq -e --argjson code $code 'length == 4
		and all(.[]; .ublkd_cpu_us > 0 and .libnbd_cpu_us > 0 and .floor_cpu_us > 0
			and .ublkd_iops > 0 and .libnbd_iops > 0 and .floor_iops > 0)
		and (any(.[]; .depth == 32 and .ratio > 1) == ($code == 1))' "$tmp/json" >"$tmp/verdict" ||
		{ cat "$tmp/json"; return 1; }
}

refuses() { # WORDS OPTION...
	local words=$1 code=0
	shift
	"$top/bench/nbd_host.sh" "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ $code = 2 ] && grep -q -- "$words" "$tmp/err" || { cat "$tmp/err"; return 1; }
}

ok "compares four cells" compares
ok "an unknown option" refuses 'unknown option: --fast' --fast
ok "a number that is none" refuses '--rounds needs a number' --rounds many
echo "1..$n"
exit $bad
