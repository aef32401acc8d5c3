#!/bin/bash
# In the guest: NBD servers that are killed, stop, lose their export or shrink, under load.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_nbd_lib.sh"

kills=2 kills_once=1
if [ -n "${UBLKD_SOAK:-}" ]; then kills=100 kills_once=100; fi
exec 3>&1 # for what is said while a check runs

for name in kill qemu server hang dead fast; do disk $name; done
kill_server() { serve kill nbdkit -f -U "$run/kill" file "$disks/kill"; }
qemu_server() { serve qemu qemu-nbd -t -e 8 -x "${1:-data}" -f raw --discard=unmap -k "$run/qemu" "$disks/qemu"; }
memory_server() { serve memory nbdkit -f -U "$run/memory" memory "${1:-24M}"; }
server_server() { nbd_server server "unixsock = $run/server"; }
dead_server() { serve dead nbdkit -f -U "$run/dead" file "$disks/dead"; }
fast_server() { serve fast nbdkit -f -U "$run/fast" file "$disks/fast"; }
memory_server
fast_server
kill_server
qemu_server
server_server
dead_server
# Not nbdkit: 1.32 can die of an assertion (raw_send_socket, sock >= 0) when clients leave in the middle of requests.
serve hang qemu-nbd -t -e 8 -f raw -k "$run/hang" "$disks/hang"
ok "the servers listen" all_listen memory kill qemu server dead fast hang

configure memory 2 "$(unix memory)" 2
configure kill 2 "$(unix kill)" 2
configure qemu 2 "$(unix qemu data)" 2 "timeout: 60s, on_disconnect: {queue: 60s}, cache: kept, replies: structured"
# It looks for a prime number (Diffie-Hellman) before it serves, with the socket listening: seconds, at times a minute.
configure server 2 "$(unix server disk)" 2 "timeout: 60s, on_disconnect: {queue: 900s}, cache: kept"
configure hang 2 "$(unix hang)" 1 "timeout: 2s, on_disconnect: {queue: 60s}, cache: kept"
configure dead 1 "$(unix dead)" 1 "on_disconnect: forever, cache: kept"
configure fast 1 "$(unix fast)" 1 "on_disconnect: forever, failfast: yes"
ok "the devices are live" start_nbd memory kill qemu server hang dead fast

# ---- servers that die under load ----

# Each time in the middle of its work.
kill_again_and_again() { # NAME TIMES START
	local i
	for ((i = 1; i <= $2; i++)); do
		if [ $((i % 20)) = 0 ]; then echo "# round $i of $2" >&3; fi
		works "$1" || { echo "round $i: nothing is done"; return 1; }
		unserve "$1"
		sleep "0.$((i % 4))"
		"$3"
		wait_for 60 listens "$1" || { echo "round $i: the server does not listen"; return 1; }
		kill -0 $load_pid || return
	done
	works "$1"
}

# killed SERVER NAME TIMES START
killed() {
	load "$2"
	ok "$1: killed and started $3 times under load" kill_again_and_again "$2" "$3" "$4"
	ok "... no error, no mismatch" load_ends
	ok "... the file holds what the device shows" same_bytes "$2"
}
killed nbdkit kill $kills kill_server
killed qemu-nbd qemu $kills_once qemu_server
killed nbd-server server $(((kills + 3) / 4)) server_server
ok "no error has reached the block layer" no_io_error

# ---- servers that hang ----

given_up() { grep -E 'device=hang ' "$work/ublkd.log" | grep -iE 'no answer|timeout|does not answer|overdue|in time'; }
stopped_server() {
	kill -STOP "${server_pid[hang]}"
	wait_for 30 given_up || return
	sleep 1
	kill -0 $load_pid || return
	kill -CONT "${server_pid[hang]}"
}
load hang
ok "a device with a timeout of 2s, under load" works hang
ok "a server that is stopped for longer than that is given up, the log says why" stopped_server
ok "... no error, no mismatch" load_ends

unserve dead
dd if=/dev/zero of="$(blk dead)" bs=64k count=16 oflag=direct status=none 2>/dev/null &
writer=$!
sleep 1
ok "a dead server, a device that waits for ever: a write waits" kill -0 $writer
ok "... it is seen what it waits for" said 'nbd' ublkctl inflight dead
ok "... stops within its deadline (3s)" delete dead 8 --force
wait $writer

# ---- requests that are not to wait ----

unserve fast
dd if="$(blk fast)" of="$work/read" bs=64k count=1 status=none &
reader=$!
ok "a dead server, failfast: read-ahead fails at once" wait_for 20 said 'ENOLINK' ublkctl --json stats fast
ok "... the read itself waits" kill -0 $reader
fast_server
ok "... until the server is back" wait $reader
ok "... with the right bytes" cmp -n 65536 "$work/read" "$disks/fast"

# ---- servers that come back as others ----

small_write() { dd if=/dev/urandom of="$(blk "$1")" bs=4k count=1 oflag=direct status=none; }
unserve qemu
qemu_server other
wait_for 60 listens qemu
small_write qemu &
writer=$!
dd if="$(blk qemu)" of=/dev/null bs=64k skip=100 count=1 status=none &
reader=$!
sleep 2
ok "an export that vanished: its requests wait" kill -0 $writer
ok "... read-ahead too, without failfast" eval 'kill -0 $reader && ! ublkctl --json stats qemu | grep ENOLINK'
ok "... the log says why" wait_for 20 said 'export' grep -E 'device=qemu ' "$work/ublkd.log"
unserve qemu
qemu_server data
ok "... it is there again: they are done" eval 'wait $writer && wait $reader'

unserve memory
memory_server 12M
wait_for 60 listens memory
ok "an export that shrank: requests fail" said 'Input/output error|error' small_write memory
ok "... the log says so" said 'size was [0-9]+MiB, is 12MiB' grep 'device=memory ' "$work/ublkd.log"
ok "... ublkctl show says so" said 'error .*not what it was: size was [0-9]+MiB, is 12MiB' ublkctl show memory
ok "... it is not stopped: what was written to it is lost" said 'a FLUSH failed.*--force' eval '! ublkctl del memory'
ok "... by force it can be removed" delete memory 8 --force

finish_nbd
