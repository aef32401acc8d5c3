#!/bin/bash
# tap_watch (test/watch) on made-up programs: which of them hang, what it says of them, and that nothing is left. Prints TAP.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
. "$top/test/tap.sh"
tmp=$(mktemp -d /tmp/ublkd-watch.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
cc -O2 -Wall -Wextra -o "$tmp/tap_watch" "$top"/test/watch/*.c || exit 1

# Names of their own, so that nobody else's are looked for.
export sleeper=wsleep$$ looper=wloop$$
cp "$(command -v sleep)" "$tmp/$sleeper"
PATH=$tmp:$PATH
export TAP_WATCH_GDB=false # it takes longer than all else

cat >"$tmp/loop.c" <<'END'
#include <time.h>
#include <unistd.h>

volatile int done;
int main(int argc, char **argv)
{
	char how = argc > 1 ? argv[1][0] : 'l';

	if (how == 'd' && vfork() == 0) { /* its parent is in D meanwhile */
		sleep(2);
		_exit(0);
	}
	while (!done && how != 'd') {
		clock_t until = how == 't' ? clock() + CLOCKS_PER_SEC / 1000 : 0;

		while (until && clock() < until)
			;
		if (how != 'l')
			usleep(20000);
	}
}
END
cc -O0 -w -o "$tmp/$looper" "$tmp/loop.c" || exit 1

# watch CODE [OPTION...] COMMANDS: runs them in a shell; what is said is in $tmp/said
watch() {
	local wanted=$1 code=0 options=("${@:2:$#-2}")
	tap_watch -s 1 "${options[@]}" -- bash -c "${!#}" >"$tmp/said" 2>&1 </dev/null || code=$?
	cat "$tmp/said"
	[ "$code" = "$wanted" ] && nothing_left
}
in_gdb() { TAP_WATCH_GDB=gdb "$@"; }
says() { grep -qE -- "$1" "$tmp/said" || { cat "$tmp/said"; return 1; }; }
says_no() { ! says "$1" >/dev/null || { cat "$tmp/said"; return 1; }; }
nothing_left() { ! pgrep -x "$sleeper|$looper"; }

ok "one that ends well" watch 0 'echo 1..1; echo ok 1 - one'
ok "... is carried as it is" test "$(cat "$tmp/said")" = $'1..1\nok 1 - one'
ok "one that fails" watch 3 'echo not ok 1 - one; exit 3'
ok "one that dies by a signal" watch 139 'echo ok 1; kill -SEGV $$'
ok "one that does not exist" watch 127 'exec /nonexistent/program'
ok "a last line without a newline" watch 0 'echo ok 1 - one; printf "ok 2 - two"'
ok "... is carried" says '^ok 2 - two$'
pieces() {
	watch 0 'printf "ok "; sleep 0.1; printf "1 - one\nok 2 - t"; sleep 0.1; echo wo' &&
		says '^ok 1 - one$' && says '^ok 2 - two$'
}
ok "a line that comes in pieces" pieces
ok "a line longer than any buffer" watch 0 'head -c 200000 /dev/zero | tr "\0" x; echo; echo ok 1'
ok "... is whole" test "$(tr -d '\n' <"$tmp/said" | wc -c)" = 200004

ok "one that sleeps for ever" watch 124 'echo ok 6 - six; $sleeper 100; echo ok 7'
ok "... fails as the next case, with its last line" says '^not ok 7 - hung: no output for 1 s after "ok 6 - six"$'
ok "... and its system call" says "^#   thread [0-9]+ $sleeper: S, clock_nanosleep, system call 230 .*"
ok "... and who waits for it" says '^#   thread [0-9]+ bash: S, wait4, system call 61 .*'
opens() { mkfifo "$tmp/fifo" && watch 124 'exec 5<>'"$tmp/fifo"'; echo ok 1; read -r -u 5 line'; }
ok "one that reads what never comes" opens
ok "... and from where" says "^#   thread [0-9]+ bash: S, read of $tmp/fifo, system call 0 0x5 .*"
if command -v gdb >/dev/null; then
	ok "one whose child hangs in user space" in_gdb watch 124 -b 0.3 'echo ok 1; $looper; :'
	ok "... and in which function" says '^#     #0 .* main '
else
	skip "one whose child hangs in user space" "no gdb"
fi
ok "one that loops" watch 124 -b 0.5 'echo ok 1; while :; do :; done'
ok "... is said to work" says '^not ok 2 - hung: no output for 0.5 s of CPU time after "ok 1"$'
ok "one that polls, and what is polled for never comes" watch 124 'echo ok 1; $looper polls; :'
ok "one whose grandchild hangs in a session of its own" watch 124 \
	'(setsid bash -c "trap : TERM; $sleeper 100; $sleeper 100" &); echo ok 1; tail -f /dev/null'
ok "... which is seen" says "^# process [0-9]+ $sleeper, "
ok "one that uses a twentieth of a CPU" watch 0 -c 2 'echo ok 1; timeout 5 $looper twentieth; echo ok 2'
ok "... hangs where one that only waits may use more" watch 124 -c 50 -t 60 'echo ok 1; $looper twentieth; :'
ok "... and not for its time" says '^not ok 2 - hung: no output for 1 s '
ok "one that waits for a slow disk" watch 0 -s 0.5 'echo ok 1; $looper disk; echo ok 2'
ok "one that prints slowly but steadily" watch 0 'for n in 1 2 3 4 5; do echo "ok $n"; sleep 0.5; done'
ok "... and only comments" watch 0 'for n in 1 2 3 4 5; do echo "# waits"; sleep 0.5; done'
works() { watch 0 'echo ok 1; end=$((SECONDS + 3)); while ((SECONDS < end)); do :; done; echo ok 2'; }
ok "one that works for long" works
ok "a limit for all of it" watch 124 -t 1 'while :; do echo "# here"; sleep 0.2; done'
ok "... is said" says '^not ok 1 - hung: not done after 1 s; .* after "# here"$'
ok "one that leaves something running" watch 0 '(setsid $sleeper 100 >/dev/null &); echo ok 1'
ok "... is told so" says "^# left running, and killed: [0-9]+ $sleeper\$"

asks='trap "echo \# the guest says; exit 3" TERM; echo ok 1; $sleeper 100 & wait'
ok "one that is asked before it is killed" watch 124 -q 3 "$asks"
ok "... and what it says" says '^# the guest says$'
ok "one that does not answer" watch 124 -q 0.5 'trap : TERM; echo ok 1; $sleeper 100 & wait; wait'

stopped() { # SIGNAL CODE
	local pid code=0 tries
	tap_watch -- bash -c 'echo ok 1; (setsid $sleeper 100 &); $sleeper 100' >"$tmp/said" &
	pid=$!
	for ((tries = 0; tries < 100; tries++)); do
		if [ "$(pgrep -cx "$sleeper")" = 2 ]; then break; fi
		sleep 0.05
	done
	kill "-$1" $pid
	wait $pid || code=$?
	[ "$code" = "$2" ] && [ "$tries" -lt 100 ] && nothing_left
}
ok "TERM to tap_watch kills all" stopped TERM 143
ok "INT as well" stopped INT 130
gaps() {
	tap_watch -g "$tmp/gap" -- bash -c 'echo ok 1; sleep 1.5; echo ok 2' &&
		grep -qE "^idle [0-9.]+ s after: ok 1\$" "$tmp/gap" && grep -qE "^silent [1-9][0-9.]+ s after: ok 1\$" "$tmp/gap"
}
ok "how near it came" gaps
echo "1..$n"
exit $bad
