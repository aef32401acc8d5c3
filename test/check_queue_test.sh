#!/bin/bash
# check_queue.sh on made-up programs: what fails or dies is counted, and no lane runs more than its limit. Prints TAP.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
. "$top/test/tap.sh"
tmp=$(mktemp -d /tmp/ublkd-queue.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/check_queue.sh"
tap_watch=$tmp/tap_watch
build_watch "$tap_watch" || exit 1

cat >"$tmp/program" <<'END'
#!/bin/bash
# program LANE HOW: says how many of its lane run
echo "$1 $2" >"$at/$BASHPID"
sleep 0.2
# one that may have company waits for it
for try in {1..200}; do
	cat "$at"/* | grep -c "^$1 " >>"$at.$1"
	if [ "$1" != guest ] || grep -q 2 "$at.$1"; then break; fi
	sleep 0.1
done
echo 1..2
echo 'ok 1 - one'
case $2 in
well) echo 'ok 2 - two' ;;
skips) echo 'ok 2 - two # SKIP no reason' ;;
fails) echo 'not ok 2 - two' ;;
hangs) sleep 30 ;;
crashes) echo 'ok 2 - two'; kill -SEGV $BASHPID ;;
dies) ;;
esac
rm "$at/$BASHPID"
END
cat >"$tmp/waits" <<'END'
#!/bin/bash
until [ -e "$1" ]; do sleep 0.1; done
echo 1..1
echo ok 1 - it is there
END
chmod +x "$tmp/program" "$tmp/waits"

# in_queue COMMAND...: with a queue of its own; what it prints is in $tmp/said
in_queue() {
	(
		export at=$tmp/at logs=$tmp/logs
		rm -rf "$at" "$at".* "$logs"
		mkdir "$at" "$logs"
		. "$top/test/check_queue.sh"
		"$@"
		run_later
		print_times 5
		print_results
	) >"$tmp/said" 2>&1
}
says() { grep -qxE -- "$1" "$tmp/said" || { cat "$tmp/said"; return 1; }; }
sums() { # SUMS COMMAND...
	local wanted=$1
	shift
	in_queue "$@"
	says "$wanted"
}

program() { later host tap_run "$1" "${2:-20}" "$tmp/program" host "$1"; }
all_well() { program well && beside tap_run other 20 "$tmp/program" beside skips; }
ok "what passes and what is skipped" sums '3 passed, 0 failed, 1 skipped' all_well
ok "... is no failure" in_queue all_well
ok "the longest are listed" says ' +[0-9]+ +[0-9]+ +[0-9]+  other'
fails() { ! in_queue program "$1" && says "$2"; }
ok "one that fails" fails fails '1 passed, 1 failed, 0 skipped'
ok "... is named, with how to run it again" says "fails: not ok 2 - two   again: $tmp/program host fails "
ok "one that ends before its plan" fails dies '1 passed, 1 failed, 0 skipped'
ok "one that says that all is well, and crashes" fails crashes '2 passed, 1 failed, 0 skipped'
hang() { later host tap_run "$1" 20 "${@:2}" "$tmp/program" host hangs; }
hangs() { ! in_queue hang "$@" && says '1 passed, 1 failed, 0 skipped'; }
ok "one that hangs" hangs idle -s 1
ok "... is one failure, with its last line and how to run it again" says \
	"idle: not ok 2 - hung: no output for 1 s after \"ok 1 - one\"   again: $tmp/program host hangs "
ok "... and where it waits" says '# .* sleep: S, clock_nanosleep, .*'
ok "one that does not end in time" hangs slow -t 1
ok "... is one failure" says 'slow: not ok 2 - hung: not done after 1 s.*'
vanish() { later host false vanished; }
vanishes() { ! in_queue vanish && says 'vanished: has not run to its end' && says '0 passed, 1 failed, 0 skipped'; }
ok "one that leaves nothing" vanishes
steps() { later host step_run good true && later host step_run bad false; }
ok "steps" sums '1 passed, 1 failed, 0 skipped' steps

many() {
	local number lane
	for number in 1 2 3 4; do
		for lane in guest host compute nice; do later $lane tap_run "$lane-$number" 20 "$tmp/program" $lane well; done
	done
}
most() { [ "$(sort -n "$tmp/at.$1" | tail -n 1)" = "$2" ]; }
ok "four lanes" sums '32 passed, 0 failed, 0 skipped' many
ok "two guests at a time" most guest 2
ok "one test of this machine" most host 1
ok "one that computes" most compute 1
ok "one in the background" most nice 1
one_lane() {
	later host tap_run first 20 "$tmp/program" host well
	later host tap_run second 20 "$tmp/program" host well
	later nice tap_run long 20 "$tmp/waits" "$tmp/go"
	rm -f "$tmp/go"
	run_later host
	[ ! -e "$logs/long.end" ] && [ -e "$logs/second.end" ] && echo "the other lane goes on"
	touch "$tmp/go"
}
ok "a lane is waited for" sums '5 passed, 0 failed, 0 skipped' one_lane
ok "... and no other" says 'the other lane goes on'
echo "1..$n"
exit $bad
