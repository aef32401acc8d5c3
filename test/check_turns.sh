# shellcheck shell=bash
# What one check runs of what need not run in each: a third by turns, and what lately changed. Sourced by check.sh,
# which sets $mode.
#
# A turn comes by the hash of the tree: each change runs another third, and who checks a change again runs the same.
# A name is in the same third for all suites that have it, so a run of a guest is named by its kernel too. What each check
# runs on the quick guest, which is 7.2, runs on the stock 7.2 in each sixth.

. test/changed.sh

tree=$(git rev-parse 'HEAD^{tree}' 2>/dev/null | cut -c -14)
tree_number=$((16#${tree:-1}))
# What was committed before had its check with those commits.
changes=$(changed 12) || changes=
left_out=()

# part NAME OF: from 0 on: in which of so many parts of the checks it is run, counted from this tree's
part() {
	local sum
	sum=$(cksum <<<"$1")
	echo $(((${sum%% *} + tree_number) % $2))
}

# has_changed PATH...: one of these files, or something in one of these folders. Also when nobody can say.
has_changed() {
	local path
	[ -n "$changes" ] || return 0
	for path; do
		if grep -qE "^$path(/|\$)" <<<"$changes"; then return; fi
	done
	return 1
}

# turn NAME [PATH...]: whether this check runs it: because all do, or one of these has changed, or it has its turn, which
# is each third, or $parts. With --fast nothing has turns.
turn() {
	case $mode in all | soak) return 0 ;; esac # a bare return is what the command before it was
	if [ $# -gt 1 ] && has_changed "${@:2}"; then return; fi
	if [ "$mode" != fast ] && [ "$(part "$1" "${parts:-3}")" = 0 ]; then return; fi
	left_out+=("$1")
	return 1
}

print_left_out() {
	if [ ${#left_out[@]} -gt 0 ]; then
		printf '\nleft out, as other changes have their turn, or only --all runs them: %s\n' "${left_out[*]}"
	fi
}

# ---- guest suites: where each runs is in its head ----

# said_in SUITE HEADING: the entries after "# HEADING: ", a line each
said_in() {
	sed -nE "2,/^[^#]/s/^# $2: //p" "test/vm/guest_$1.sh" | sed 's/, */\n/g'
}

guest_suites() {
	local file
	for file in test/vm/guest_*.sh; do
		file=${file#test/vm/guest_}
		echo "${file%.sh}"
	done
}

# add_guest SUITE ENTRY ALWAYS: an entry is KERNEL [BUILD] [FLAG OF vm.sh...]. Without the quick guest its suites run
# on the emulated 7.2. What is for the build with TSan runs where check_list.sh has made it.
declare -A added=()
add_guest() {
	local suite=$1 always=$3 kernel build=release name words changes_of parts=3
	read -ra words <<<"$2"
	kernel=${words[0]}
	if [ "$kernel" = uml ] && [ -n "${no_uml:-}" ]; then kernel=7.2; fi
	words=("${words[@]:1}")
	if [[ ${words[0]:-} == [a-z]* ]]; then
		build=${words[0]}
		words=("${words[@]:1}")
	fi
	if [ "$build" = tsan ] && [ -z "${with_tsan:-}" ]; then return; fi
	name=guest-$kernel-$suite
	if [ "$build" != release ]; then name+=-$build; fi
	if [ -n "${added[$name]:-}" ]; then return; fi
	read -ra changes_of < <(said_in "$suite" 'When these change')
	if [ "$kernel" = 7.2 ] && said_in "$suite" 'Runs on' | grep -q '^uml'; then parts=6; fi
	if [ -n "$always" ] || turn "$name" "${changes_of[@]}"; then
		added[$name]=1
		later guest guest "$name" "$kernel" "$suite" "$guest_seconds" "$build" "${words[@]}"
	fi
}

# add_guests HEADING [ALWAYS]: of each suite what its head says there
add_guests() {
	local suite entry
	for suite in $(guest_suites); do
		while read -r entry; do add_guest "$suite" "$entry" "${2:-}"; done < <(said_in "$suite" "$1")
	done
}

# leave_out_guests HEADING: told, and not run
leave_out_guests() {
	local suite entry
	for suite in $(guest_suites); do
		while read -r entry; do left_out+=("guest $suite on $entry,"); done < <(said_in "$suite" "$1")
	done
}
