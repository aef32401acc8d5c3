#!/bin/bash
# A node that no product has (halves.c), added by its row alone: the settings and their messages, the
# manual, conformance and the simulator must know it.
#
#   test/made_up/made_up.sh BUILD
set -uo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(dirname "$(dirname "$here")")
# shellcheck source=test/tap.sh
. "$top/test/tap.sh"
programs=$(readlink -f "$1")/test
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# check_config TYPE-AND-OPTIONS
check_config() {
	printf 'devices:\n  - {name: a, backend: {type: %s, backend: {type: mem, size: 1MiB}}}\n' "$1" >"$tmp/a.yaml"
	"$programs/ublkd_made_up" --check-config --config "$tmp/a.yaml" 2>&1
}

# refused TYPE-AND-OPTIONS WORDS
refused() {
	local said
	if said=$(check_config "$1"); then return 1; fi
	echo "$said"
	grep -qF -- "$2" <<<"$said"
}

manual() { "$programs/ublkd_made_up_manual" "$top/docs/man/ublkd.yaml.5.in" >"$tmp/manual"; }
has_page() { grep -qx '.SS type: halves' "$tmp/manual" && grep -q 'left whole' "$tmp/manual"; }
is_a_filter() { grep '^.RB ( ' "$tmp/manual" | grep -q halves; }

conforms() { "$programs/conformance_made_up" --only row-halves >"$tmp/conformance" 2>&1 || { grep '^not ok' "$tmp/conformance" && false; }; }
is_checked() { grep -c '^ok .*row-halves' "$tmp/conformance" && [ "$(grep -c '^ok .*row-halves' "$tmp/conformance")" -ge 10 ]; }

simulates() { "$programs/sim_made_up" --only-runs --runs 24 --ios 1000; }
caught() {
	if UBLKD_HALVES_BREAK=1 simulates >"$tmp/sim" 2>&1; then return 1; fi
	grep -q 'SIM FAILED' "$tmp/sim"
}

ok "a configuration with the node is good" check_config "halves, smallest: 8KiB"
ok "its misspelled name: the right one is suggested" refused halvse 'did you mean "halves"'
ok "a misspelled option of it: the right one is suggested" refused "halves, smalest: 8KiB" 'did you mean "smallest"'
ok "an option that is no power of two is refused" refused "halves, smallest: 3000" smallest
ok "the manual is made" manual
ok "... and describes the node and its options" has_page
ok "... and lists it with the filters" is_a_filter
ok "conformance passes" conforms
ok "... with its checks on the node" is_checked
ok "the simulator passes" simulates
ok "... and finds a defect of the node" caught

echo "1..$n"
exit $bad
