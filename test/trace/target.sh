#!/bin/bash
# `ublktrace record` and what it is told to trace: names, odd ends, files that cannot be written,
# signals. Needs root and a kernel that takes BPF programs; else it is skipped. Prints TAP.
# Usage: target.sh [BUILD_FOLDER]
set -u

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
build=$(readlink -f "${1:-$here/../../build/release}")
tmp=$(mktemp -d /tmp/ublktrace-target.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$here/../tap.sh"

# known of test/trace names itself; as a program it is called so.
known="$build/test/known"

what="ublktrace record and its target"
. "$here/needs.sh"

record() { timeout -k 5 300 "$build/bin/ublktrace" record "$@"; }
record -c true 2>"$tmp/err" || leave "$(head -n 1 "$tmp/err")"

# ends CODE COMMAND...: with this code; what it said is in $tmp/err.
ends() {
	local code=0 wanted=$1
	shift
	"$@" 2>"$tmp/err" || code=$?
	cat "$tmp/err"
	[ $code = "$wanted" ] || { echo "exit code $code"; return 1; }
}
says() { grep -q "$1" "$tmp/err"; }

named() {
	ends 0 record -o "$tmp/t.pftrace" -o "$tmp/t.fxt" -c env sh -c 'sleep 0.1; exec sleep 0.1' || return
	for reader in "perfetto_read.py $tmp/t.pftrace" "fxt_read.py $tmp/t.fxt"; do
		# shellcheck disable=SC2086
		"$here"/$reader --dump >"$tmp/dump" || return
		jq -e '[.processes[]] | (map(select(startswith("sleep ("))) | length == 2) and
			(map(select(test("^(ublktrace|env|sh) \\("))) == [])' "$tmp/dump" &&
			jq -e '[.tracks[][1]] | map(select(test("^(ublktrace|env|sh) "))) == []' "$tmp/dump" || return
	done
}

# One thread of it ends early, and is not off its CPU from then on, for the 0.3 s until the end. (What loses its
# CPU in the middle of its own end may be so when the recording ends.)
ended() {
	ends 0 record -o "$tmp/e.pftrace" -c python3 -S -c '
import threading, time
t = threading.Thread(target=time.sleep, args=(0.1,))
t.start()
t.join()
time.sleep(0.3)' || return
	"$here/perfetto_read.py" "$tmp/e.pftrace" --dump >"$tmp/dump" || return
	jq -e '[.slices[] | select(.[3] == "off CPU")] | length > 2 and
		all(.[4].end == null or .[2] - .[1] < 250000000)' "$tmp/dump"
}

within_a_minute() { # COMMAND...
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	return 1
}
# It has its handler of SIGINT then. Until its exec the process is a bash, which has one, too.
records() {
	[ "$(cat "/proc/$1/comm")" = ublktrace ] && grep -qs 'SigCgt:.*[2367abef]$' "/proc/$1/status"
}
await() { within_a_minute records "$1"; }

# ^C ends tee too, and then nobody reads what ublktrace says.
no_reader() {
	(record -o "$tmp/p.pftrace" -c "$known" -o "$tmp/known.json"; echo $? >"$tmp/code") 2>&1 | true
	[ "$(cat "$tmp/code")" = 0 ] && "$here/perfetto_read.py" "$tmp/p.pftrace"
}

hangup() {
	local pid
	"$build/bin/ublktrace" record --all -o "$tmp/h.csv" 2>"$tmp/err" &
	pid=$!
	await $pid || return
	kill -HUP $pid
	wait $pid && says '^lost: '
}

# Two ^C in turn: the first ends the recording, the second the command, which ignores signals from its file on.
stubborn() {
	local pid
	setsid "$build/bin/ublktrace" record -o "$tmp/s.csv" -c sh -c \
		'trap "" TERM INT; >"$1"; while :; do sleep 0.1; done' sh "$tmp/ignores" 2>"$tmp/err" &
	pid=$!
	await $pid && within_a_minute [ -e "$tmp/ignores" ] || return
	kill -INT $pid
	within_a_minute says 'has not exited after SIGTERM'
	cat "$tmp/err"
	says '^lost: ' && [ -s "$tmp/s.csv" ] || return
	kill -INT $pid
	wait $pid
	[ $? = 137 ]
}

of_thread() {
	python3 -c '
import threading, time
t = threading.Thread(target=time.sleep, args=(20,), daemon=True)
t.start()
print(t.native_id, flush=True)
input()' >"$tmp/tid" < <(sleep 20) &
	local pid=$!
	for _ in $(seq 100); do
		[ -s "$tmp/tid" ] && break
		sleep 0.1
	done
	ends 2 record -p "$(cat "$tmp/tid")" --duration 1
	local ret=$?
	kill $pid
	[ $ret = 0 ] && says "is a thread of process $pid"
}

# A ring of another process at the address of one that is gone. The kernel frees rings later.
reused() {
	local pid tracer
	mkfifo "$tmp/go"
	python3 -c '
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
open(sys.argv[1]).read()
fds = [libc.syscall(425, 8, (ctypes.c_uint8 * 120)()) for _ in range(100)]
for fd in fds:
    os.close(fd)
time.sleep(300)' "$tmp/go" &
	pid=$!
	"$build/bin/ublktrace" record -p $pid -o "$tmp/r.csv" 2>"$tmp/err" &
	tracer=$!
	await $tracer && echo >"$tmp/go"
	sleep 3
	"$known" --repeat 20 -o "$tmp/known.json"
	kill $pid
	wait $tracer
	cat "$tmp/err"
	says ' 100 RING' && says ' 0 unmatched' && ! grep -vE "^Timestamp|,$pid,$pid," "$tmp/r.csv"
}

many() {
	ends 0 record -c python3 -S -c '
import os
for _ in range(17000):
    if not os.fork():
        os._exit(0)
    os.wait()' && says ' 0 map full'
}

full() {
	ln -sf /dev/full "$tmp/full.$1"
	ends 1 record -o "$tmp/full.$1" -c "$known" -o "$tmp/known.json" && says "full.$1 is incomplete: No space"
}

# What the other commands print goes to stdout, or to a file of theirs.
full_stdout() {
	"$build/bin/ublktrace" "$@" 2>"$tmp/err" >/dev/full
	[ $? = 1 ] || { echo "ublktrace $* ends well"; return 1; }
	cat "$tmp/err"
	says 'No space left on device'
}
# Without a sample stacks prints nothing, and a picture nonetheless.
full_others() {
	full_stdout probes && full_stdout latency --all --duration 0.2 &&
		full_stdout stacks --duration 0.2 --svg && full_stdout stacks --duration 0.2 --svg -o /dev/full
}

broken_pipe() {
	mkfifo "$tmp/pipe.csv"
	head -c 10 "$tmp/pipe.csv" >"$tmp/head" &
	ends 1 record -o "$tmp/pipe.csv" -c "$known" --repeat 50 -o "$tmp/known.json" && says 'pipe.csv is incomplete: Broken pipe'
}

private() {
	(umask 022; ends 0 record -o "$tmp/m.csv" -o "$tmp/m.pftrace" -o "$tmp/m.fxt" -c true) || return
	[ "$(stat -c %a "$tmp"/m.* | sort -u)" = 600 ]
}

container() {
	ends 2 unshare -pf --mount-proc timeout 60 "$build/bin/ublktrace" record -c true && says 'PID namespace'
}

no_rights() {
	cp "$build/bin/ublktrace" "$tmp/ublktrace" && chmod 755 "$tmp" "$tmp/ublktrace"
	echo precious >"$tmp/there.csv" && chown 65534 "$tmp/there.csv" || return
	ends 1 setpriv --reuid 65534 --clear-groups "$tmp/ublktrace" record -o "$tmp/there.csv" -c true &&
		says 'CAP_BPF and CAP_PERFMON' && grep -q precious "$tmp/there.csv"
}

ok "programs and threads have their last name" named
ok "a thread that has ended is nowhere" ended
ok "the file is whole when nobody reads stderr" no_reader
ok "SIGHUP ends it as ^C does" hangup
ok "a command that does not end: the files are written, ^C kills it" stubborn
ok "-p of a thread is refused" of_thread
ok "a command that is not there" ends 127 record -c /nonexistent
ok "a process that is not there" ends 2 record -p 2147483647
ok "... nor for control" ends 2 timeout 20 "$build/bin/ublktrace" control -p 2147483647 --duration 9
ok "nothing of a ring that has the place of a closed one" reused
if [ -n "${UBLKD_SOAK:-}" ]; then
	ok "many thousands of processes, one after the other" many
else
	skip "many thousands of processes, one after the other" "takes half a minute; with UBLKD_SOAK=1"
fi
for format in csv pftrace fxt; do
	ok "a full disk is told ($format)" full $format
done
ok "... by the other commands, too" full_others
ok "a broken pipe is told" broken_pipe
ok "one file twice is refused" ends 2 record -o "$tmp/d.csv" -o "$tmp/d.csv" -c true
ok "the files are for their owner" private
if unshare -pf --mount-proc true 2>"$tmp/err"; then
	ok "in a PID namespace it says why it cannot" container
else
	skip "in a PID namespace it says why it cannot" "no such namespace can be made"
fi
ok "without rights it says which" no_rights
echo "1..$n"
exit $bad
