#!/bin/bash
# In the guest: clients of the control socket and of the metrics that try to occupy the daemon; ids
# that are already in use; an upgrade of devices that depend on each other through an NBD server.
# Runs on: uml
# By turns: uml asan, 6.12 asan
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

if ! command -v python3 >/dev/null; then
	skip "hostile clients" "no python3"
	finish
fi
ip link set lo up
socket=/run/ublkd/control.sock
config=$work/clients.yaml
configure() { # LINE...: devices besides three
	{
		printf 'daemon: {reactors: %s, metrics: "127.0.0.1:9740"}\ndevices:\n' "$reactors"
		printf '  - {name: %s, id: %s, queues: 2, backend: {type: mem, size: 32M}}\n' bottom 0 other 1 third 2
		[ $# = 0 ] || printf '  - %s\n' "$@"
	} >"$config"
}
configure
ok "three devices start" start_daemon "$config"

# ---- clients ----

hostile=
be_hostile() { # WHAT...
	rm -f "$work/there"
	"$here/hostile_clients.py" "$@" >"$work/there" 2>"$work/hostile.err" &
	hostile=$!
	wait_for 60 grep -q there "$work/there"
}
make_peace() {
	kill -0 "$hostile" && kill "$hostile" && { wait "$hostile" || :; }
	[ ! -s "$work/hostile.err" ] || { cat "$work/hostile.err" && return 1; }
}
# at_once SECONDS COMMAND...: five times, each within so long. Starting a program is part of it.
at_once() {
	local limit=$1 i
	shift
	for ((i = 0; i < 5; i++)); do timeout "$limit" "$@" >"$work/answer" || { echo "no answer to the $i. try" && return 1; }; done
}
scrape() { curl -sf --max-time 10 http://127.0.0.1:9740/metrics | grep -q '^# EOF'; }
scrapes() { local i; for ((i = 0; i < 5; i++)); do scrape || { echo "the $i. scrape fails" && return 1; }; done; }

if command -v curl >/dev/null; then
	ok "40 that send a byte now and then are there" be_hostile drip 9740 40
	ok "... and keep nobody from the metrics" scrapes
	ok "... and are still there" make_peace
	ok "200 that send nothing are there" be_hostile stall 9740 200
	ok "... and keep nobody from the metrics" scrapes
	ok "... and are still there" make_peace
else
	skip "metrics" "no curl"
fi
ok "50 that pipeline stats are there" be_hostile pipeline $socket 50
ok "... and let another have its turn" at_once 10 ublkctl list
ok "... and are still there" make_peace

# ---- ids ----

says_of() { ublkctl --json list | jq -r ".[] | select(.name == \"$1\").error" | tee "$work/says" | grep "$2"; }
reload() { kill -HUP "$daemon_pid"; }
live() { [ "$(ublkctl --json list | jq -r ".[] | select(.name == \"$1\").state")" = live ]; }
ok "a device is added by hand" eval 'echo "{name: hand, id: 5, backend: {type: mem, size: 16M}}" | ublkctl add -f -'
configure "{name: wants, id: 5, backend: {type: mem, size: 16M}}"
ok "its id is asked for by a reload" reload
ok "... which says whose it is, and the cure" wait_for 10 says_of wants 'device "hand" of this daemon.*ublkctl del hand'
ok "... that helps" eval 'ublkctl del hand && reload && wait_for 10 live wants'
mkdir -p "$work/second"
cat >"$work/second.yaml" <<END
daemon: {reactors: [0], control: $work/second/control.sock}
devices:
  - {name: far, id: 6, backend: {type: "null", size: 16M}}
END
ublkd --config "$work/second.yaml" 2>"$work/second.log" &
second=$!
ok "another daemon has an id" wait_for 20 ublkctl --socket "$work/second/control.sock" show far
configure "{name: wants, id: 6, backend: {type: mem, size: 16M}}"
ok "... that is asked for by a reload" reload
ok "... which says who has it" wait_for 10 says_of wants "another ublk server, ublkd.$second."
kill -KILL $second && { wait $second || :; } 2>/dev/null
dead() { [ -z "$(ublkctl --json gc | jq -r '.. | objects | select(.id? == 6) | .holder // empty')" ] && ublkctl gc 6; }
ok "it is killed" wait_for 20 dead
ok "... a reload" reload
ok "... which says that nobody serves it, and the cure" wait_for 10 says_of wants 'no process serves.*ublkctl gc 6 --remove'
ok "... that helps" eval 'wait_for 30 cleared 6 && reload && wait_for 10 live wants'
configure
ok "a reload without it" eval 'reload && wait_for 10 eval "! ublkctl show wants"'

# ---- a device on an NBD server on a device ----

upgrades() {
	local i
	for ((i = 0; i < 3; i++)); do
		ublkctl upgrade || return 1
		wait_for 10 ublkctl list
	done
}
if ! driver_has QUIESCE; then
	skip "an upgrade of devices above devices" "needs a ublk driver of Linux 6.16"
elif ! command -v nbdkit >/dev/null; then
	skip "an upgrade of devices above devices" "no nbdkit: ./dev check installs it"
else
	nbdkit -f -U "$work/loop" file /dev/ublkb0 &
	nbdkit=$!
	wait_for 20 test -S "$work/loop"
	top() { echo "{name: top, id: 3, queues: 2, backend: {type: nbd, uri: \"nbd+unix:///?socket=$work/loop\"}}" | ublkctl add -f -; }
	ok "a device on an NBD server on another device" wait_for 20 top
	load top --size=8M --offset_increment=16M
	load other
	ok "three upgrades under load" upgrades
	ok "both were busy" were_busy
	ok "no write was lost, no request failed" loads_well
	ok "the upper one is removed" ublkctl del top
	kill $nbdkit
	{ wait $nbdkit || :; } 2>/dev/null
fi
daemon_pid=$(server)
ok "it ends" end_server
ok "no note is left" no_note
finish
