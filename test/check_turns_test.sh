#!/bin/bash
# Tests check_turns.sh: what one check leaves to others; prints TAP.
set -uo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$top" || exit 1
. test/tap.sh
mode=full
. test/check_turns.sh

names='one two three four five six seven eight nine'
changes=docs/some.md

# runs TREE_NUMBER [PATH...]: the names that a check of that tree runs
runs() {
	local name
	tree_number=$1
	for name in $names; do
		if turn "$name" "${@:2}"; then echo "$name"; fi
	done
}

three_checks_run_each_once() {
	diff <(for number in 70 71 72; do runs $number; done | sort) <(tr ' ' '\n' <<<"$names" | sort)
}
same_tree_same_runs() { diff <(runs 70) <(runs 70); }
all_runs_all() { [ "$(mode=all && runs 70 | wc -l)" = 9 ]; }
# As add_guest asks: what has failed before is not what turn says.
all_runs_all_after_failure() ( mode=all; false || turn one )
fast_has_no_turns() { [ "$(mode=fast && for number in 70 71 72; do runs $number net; done | wc -l)" = 0 ]; }
fast_runs_changed() { [ "$(mode=fast && changes=net/tls.c && runs 70 net | wc -l)" = 9 ]; }
changed_runs_all() { [ "$(changes=backends/nbd/nbd.c && runs 70 net backends/nbd | wc -l)" = 9 ]; }
other_changes_do_not() { [ "$(changes=backends/nbdkit/x.c && runs 70 backends/nbd)" = "$(runs 70)" ]; }
unknown_changes_run_all() { [ "$(changes='' && runs 70 net | wc -l)" = 9 ]; }
left_out_is_told() {
	left_out=()
	runs 70 >"$tmp/ran"
	[ $(($(wc -l <"$tmp/ran") + ${#left_out[@]})) = 9 ] && print_left_out | grep -q "${left_out[0]}"
}

ok "three checks one after the other run each once" three_checks_run_each_once
ok "the same tree runs the same" same_tree_same_runs
ok "--all runs all" all_runs_all
ok "... also after a command that failed" all_runs_all_after_failure
ok "--fast has no turns" fast_has_no_turns
ok "... and runs what has changed" fast_runs_changed
ok "what has changed runs" changed_runs_all
ok "a folder with a longer name is another" other_changes_do_not
ok "when nobody knows what has changed, all run" unknown_changes_run_all
ok "what is left out is told" left_out_is_told

# ---- heads of suites, of a made-up folder ----

mkdir -p "$tmp/test/vm"
cd "$tmp" || exit 1
cat >test/vm/guest_one.sh <<'EOF2'
#!/bin/bash
# In the guest: a test.
# Runs on: uml, 7.2 asan -m 800M, 6.12, 6.12 tsan
# By turns: 7.2 -i
# When these change: net storage
echo no head
# Runs on: 6.12 tsan
EOF2
printf '#!/bin/bash\n# In the guest: another.\n# By turns: uml\n' >test/vm/guest_two.sh
guest_seconds=9
later() { echo "$*"; }
adds() { # HEADING [ALWAYS]: what is added, sorted
	added=()
	add_guests "$@" | sort
}
always_in() {
	diff <(adds 'Runs on' always) <(printf '%s\n' 'guest guest guest-6.12-one 6.12 one 9 release' \
		'guest guest guest-7.2-one-asan 7.2 one 9 asan -m 800M' 'guest guest guest-uml-one uml one 9 release')
}
# What the quick guest has anyway: by its number, which part is its turn.
sixth() {
	local number
	changes=docs/some.md
	for number in 70 71 72 73 74 75; do
		tree_number=$number
		adds 'By turns'
	done | sort | uniq -c | sed 's/^ *//'
}
seldom_where_the_quick_guest_has_it() {
	diff <(sixth) <(printf '%s\n' '1 guest guest guest-7.2-one 7.2 one 9 release -i' '2 guest guest guest-uml-two uml two 9 release')
}
by_turns() {
	changes=net/stream.c
	adds 'By turns' | grep -qx 'guest guest guest-7.2-one 7.2 one 9 release -i'
}
without_uml() {
	no_uml=1
	adds 'Runs on' always | grep -qx 'guest guest guest-7.2-one 7.2 one 9 release' && ! adds 'Runs on' always | grep uml
}
where_tsan_is_built() {
	with_tsan=1
	adds 'Runs on' always | grep -qx 'guest guest guest-6.12-one-tsan 6.12 one 9 tsan'
}
what_is_left_out() {
	left_out=()
	leave_out_guests 'By turns'
	print_left_out | grep -q 'guest one on 7.2 -i, guest two on uml,'
}
ok "a suite runs where its head says" always_in
ok "... and where it never does is told" what_is_left_out
ok "... on the stock 7.2 seldom where the quick guest runs it" seldom_where_the_quick_guest_has_it
ok "... by turns also when something has changed" by_turns
ok "... with TSan where that is built" where_tsan_is_built
ok "... without the quick guest on the emulated one" without_uml
echo "1..$n"
exit $bad
