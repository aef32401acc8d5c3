#!/bin/bash
# In the guest: kills the daemon again and again at random moments, while two devices are under a load
# with verified content: no error, no mismatch, only a pause, and nothing left at the end. Then kills
# it once more with a device of every kind: each mode of recovery, a configuration that changed before
# the next start, files that changed. $UBLKD_KILLS: number of kills. $UBLKD_SEED repeats the moments
# of a run.
# Runs on: uml, 7.2, 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

kills=${UBLKD_KILLS:-6}
[ -z "${UBLKD_SOAK:-}" ] || kills=100
RANDOM=${UBLKD_SEED:=$(od -An -N2 -tu2 /dev/urandom | xargs)}
echo "# seed $UBLKD_SEED, $kills kills"

ram_disk 300 || exit 1
two_devices >"$work/two.yaml"

# A different pause each time, so that kills hit start, recovery and load alike.
nap() {
	local ms=$((RANDOM % 1200))
	sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
}

crash() {
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	return 0
}

start_again() {
	ublkd --config "$work/two.yaml" 2>>"$work/ublkd.log" &
	daemon_pid=$!
}

kill_again_and_again() {
	local i
	for ((i = 0; i < kills; i++)); do
		nap
		crash
		start_again
	done
	wait_for 60 settled
}

nobody_new() { [ "$(find /dev -name 'ublkb*' | wc -l)" = 2 ]; }

ok "two devices start" start_daemon "$work/two.yaml"
before=$(stat -c %i /dev/ublkb* | xargs)
ok "they are both there" nobody_new
load memory
load file
ok "killed $kills times, it serves again" kill_again_and_again
ok "both were busy" were_busy
ok "no write was lost, no request failed" loads_well
ok "they are the same devices" test "$(stat -c %i /dev/ublkb* | xargs)" = "$before"
ok "and no others" nobody_new
ok "no request is stuck" test "$(ublkctl --json inflight | jq '[.. | objects | select(has("tag"))] | length')" = 0
ok "it ends" stop_daemon
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note

# ---- one crash, a device of every kind ----

declare -A at # device by name: nobody can be asked while there is no daemon
modes="hold fail none"
files="changed removed replaced shrunk lost"

# devices DEPTH NAME...: the configuration. One read at 1 MiB of a mode's device never ends.
devices() {
	local depth=$1 name
	shift
	echo "daemon: {reactors: $reactors}"
	echo "devices:"
	for name in "$@"; do
		case " $modes " in
		*" $name "*)
			echo "  - {name: $name, recovery: $name, backend: {type: error, hang: true," \
				"from_sector: 2048, to_sector: 2056, backend: {type: mem, size: 4M}}}"
			;;
		*)
			echo "  - {name: $name, depth: $depth, backend: {type: file, path: /mnt/ram/$name.img}}"
			;;
		esac
	done
}

read_block() { dd if="${at[$1]}" of=/dev/null bs=4k count=1 skip="$2" iflag=direct 2>&1; }

# reader ID NAME BLOCK: reads in the background; its exit code comes to $work/ID.read.
reader() {
	rm -f "$work/$1.read"
	(
		read_block "$2" "$3" >"$work/$1.out"
		echo $? >"$work/$1.read.new"
		mv "$work/$1.read.new" "$work/$1.read"
	) &
}

# ended ID CODE: within ten seconds.
ended() { wait_for 10 test -e "$work/$1.read" && cat "$work/$1.out" && grep -qx "$2" "$work/$1.read"; }

# Waits long enough for a failure to show.
wait_still() {
	local id
	sleep 0.5
	for id in "$@"; do [ ! -e "$work/$id.read" ] || return; done
}

in_flight() { [ "$(ublkctl --json inflight | jq '[.. | objects | select(has("tag"))] | length')" = "$1" ]; }

told() { ublkctl list | tee "$work/list" | grep -F -e "$1" || { cat "$work/list" && return 1; }; }

refused_in_words() {
	told "recovery: fail needs a kernel whose ublk driver has RECOVERY_FAIL_IO (Linux 6.13); set recovery: reissue"
}

depth_is() { [ "$(ublkctl --json show "$1" | jq '.. | .depth? // empty' | head -1)" = "$2" ]; }

is_adopted() { grep -q "adopting a device.*device=$1 " "$work/ublkd.log"; }

# Another device may already have its number.
is_gone() {
	grep -q "device is gone.*device=$1\$" "$work/ublkd.log" && [ ! -e "/run/ublkd/control.sock.state/$1.json" ] &&
		[ "$(find /dev -name 'ublkc*' | wc -l)" = "$(grep -c name: "$work/kinds.yaml")" ]
}

# Sets $at.
where_are_they() {
	local name id
	while read -r name id; do at[$name]=/dev/ublkb$id; done < <(
		ublkctl --json list | jq -r '.. | objects | select(has("name") and has("id")) | "\(.name) \(.id)"'
	)
}

content_is() { [ "$(head -c 4096 "${at[$1]}" | tr -d '\0')" = "this is $1" ]; }

make_files() {
	local name
	for name in $files; do
		truncate -s 4M "/mnt/ram/$name.img" && printf 'this is %s' "$name" |
			dd of="/mnt/ram/$name.img" conv=notrunc status=none || return
	done
}

# The other file has the same name and the same content.
replace() {
	cp "/mnt/ram/$1.img" "/mnt/ram/$1.other" && mv "/mnt/ram/$1.img" "/mnt/ram/$1.away" &&
		mv "/mnt/ram/$1.other" "/mnt/ram/$1.img"
}

put_back() {
	mv "/mnt/ram/replaced.away" /mnt/ram/replaced.img && truncate -s 4M /mnt/ram/shrunk.img &&
		kill -HUP "$daemon_pid"
}

ok "files are made" make_files
# shellcheck disable=SC2086 # lists of words
devices 32 $modes $files >"$work/kinds.yaml"
ok "a device of every kind starts" start_daemon "$work/kinds.yaml"
has_fail=true
told "fail: " >"$work/fail.words" && has_fail=false
if $has_fail; then
	skip "recovery: fail is refused in words" "this driver has it"
else
	ok "recovery: fail is refused in words" refused_in_words
	modes="hold none"
fi
where_are_they
for name in $modes; do reader "$name" "$name" 256; done
ok "a request of each mode is in flight" wait_for 10 in_flight "$(wc -w <<<"$modes")"
crash
for name in $modes; do ok "$name: what was in flight fails" ended "$name" 1; done
reader again hold 0
ok "hold: what comes then waits" wait_still again
if $has_fail; then
	ok "fail: what comes then fails" eval '! read_block fail 0'
else
	skip "fail: what comes then fails" "this driver has no RECOVERY_FAIL_IO (Linux 6.13)"
fi
ok "none: the device is dead" eval '! read_block none 0'

ok "a file is replaced, one is too short, one is another" eval 'replace replaced && truncate -s 2M /mnt/ram/shrunk.img && replace lost'
for name in replaced shrunk lost; do reader "$name" "$name" 0; done
# shellcheck disable=SC2086
devices 16 $modes changed replaced shrunk lost >"$work/kinds.yaml"
ok "it starts again" start_daemon "$work/kinds.yaml"
ok "hold: what waited is served" ended again 0
if $has_fail; then
	ok "fail: it serves again" read_block fail 0
else
	skip "fail: it serves again" "this driver has no RECOVERY_FAIL_IO (Linux 6.13)"
fi
where_are_they
ok "none: it is another device, and serves" eval 'read_block none 0 && ! is_adopted none'
ok "what is configured otherwise was adopted, and started anew" \
	wait_for 10 eval 'is_adopted changed && depth_is changed 16 && content_is changed'
ok "what is configured no more was adopted, and removed" wait_for 10 eval 'is_adopted removed && is_gone removed'
ok "the other file is refused in words" told "replaced: the backend is not the one that was served: it is file "
ok "the short file is refused in words" told "shrunk: the backend has shrunk from 4194304 to 2097152 bytes"
ok "their clients wait" wait_still replaced shrunk lost
ok "the files are brought back" put_back
for name in replaced shrunk; do ok "$name: its client is served" ended "$name" 0; done
ok "with its content" content_is replaced
ok "lost: is still refused" told "lost: the backend is not the one that was served: it is file "
ok "lost: who has it open is named when it is given up politely" eval '! ublkctl del lost 2>"$work/del" && grep "in use: open by dd" "$work/del"'
ok "lost: its client still waits" wait_still lost
ok "lost: given up by force" ublkctl del lost --force
ok "lost: its client gets an error" eval 'ended lost 1 && grep "Input/output error" "$work/lost.out"'
ok "lost: nothing is left of it" eval '! stat "${at[lost]}" && ! stat /run/ublkd/control.sock.state/lost.json'
ok "it stops" stop_daemon
ok "no note is left of any" no_note
finish
