#!/bin/bash
# In the guest: devices on real NBD servers (nbdkit with its filters, qemu-nbd, nbd-server), over unix
# and TCP, with TLS: data under fio, a file system, servers that die, stop, lose their export or shrink.
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

kills=10
if [ -n "${UBLKD_SOAK:-}" ]; then kills=100; fi

for program in nbdkit qemu-nbd nbd-server; do
	if ! command -v $program >/dev/null; then
		skip "devices on NBD servers" "no $program: ./dev check installs it"
		finish
	fi
done
ram_disk 700 || exit 1
ip link set lo up
disks=/mnt/ram
run=$work/nbd
mkdir -p $run

# ---- servers ----

declare -A server_pid

# serve NAME COMMAND...: a server that stays in the foreground, on the socket $run/NAME or on TCP.
serve() {
	local name=$1
	shift
	rm -f "$run/$name"
	"$@" >>"$run/$name.log" 2>&1 &
	server_pid[$name]=$!
}

# A server that was killed has no time to tell those that it forked.
unserve() {
	[ -n "${server_pid[$1]:-}" ] || return 0
	kill -9 "${server_pid[$1]}" 2>/dev/null
	pkill -9 -P "${server_pid[$1]}" 2>/dev/null
	{ wait "${server_pid[$1]}"; } 2>/dev/null
	unset "server_pid[$1]"
}

listens() { [ -S "$run/$1" ] && grep -q "$run/$1\$" /proc/net/unix; }
unix() { echo "nbd+unix:///${2:-}?socket=$run/$1"; }

disk() { [ -e "$disks/$1" ] || truncate -s "${2:-48M}" "$disks/$1"; }
for name in file fs kill qemu qemutcp one server servertcp faults; do disk $name; done

file_server() { serve file nbdkit -f -U "$run/file" file "$disks/file"; }
fs_server() { serve fs nbdkit -f -U "$run/fs" file "$disks/fs"; }
kill_server() { serve kill nbdkit -f -U "$run/kill" file "$disks/kill"; }
qemu_server() { serve qemu qemu-nbd -t -e 8 -x "${1:-data}" -f raw --discard=unmap -k "$run/qemu" "$disks/qemu"; }
memory_server() { serve memory nbdkit -f -U "$run/memory" memory "${1:-48M}"; }

memory_server
serve memorytcp nbdkit -f -i 127.0.0.1 -p 10901 memory 48M
file_server
fs_server
kill_server
qemu_server
serve qemutcp qemu-nbd -t -e 8 -f raw -b 127.0.0.1 -p 10902 "$disks/qemutcp"
serve one qemu-nbd -t -f raw -k "$run/one" "$disks/one"
# multi-conn is the outermost: below delay it ends nbdkit 1.32 (an assertion) with the first client.
serve faults nbdkit -f -U "$run/faults" --filter=multi-conn --filter=error --filter=pause --filter=delay \
	--filter=blocksize-policy file "$disks/faults" error=ENOSPC error-rate=100% "error-file=$run/fail" \
	"pause-control=$run/pause" delay-read=1ms wdelay=1ms multi-conn-mode=disable \
	blocksize-minimum=4096 blocksize-preferred=16384 blocksize-maximum=64k blocksize-error-policy=error

# One process per connection, all of them children of the one that listens.
nbd_server() {
	printf '[generic]\n%s\nallowlist = true\n[disk]\nexportname = %s\nflush = true\nfua = true\ntrim = true\n' \
		"$2" "$disks/$1" >"$run/$1.conf"
	nbd-server -C "$run/$1.conf" -p "$run/$1.pid" >>"$run/$1.log" 2>&1
}
nbd_server server "unixsock = $run/server"
nbd_server servertcp $'listenaddr = 127.0.0.1\nport = 10903'

# listening PORT
listening() { grep -q "$(printf '0100007F:%04X 00000000:0000 0A' "$1")" /proc/net/tcp; }
for name in memory file fs kill qemu one faults server; do
	ok "server $name is there" wait_for 20 listens $name
done
for port in 10901 10902 10903; do ok "server at port $port is there" wait_for 20 listening $port; done

# ---- devices ----

# device NAME QUEUES URI [CONNECTIONS [MORE BACKEND OPTIONS [MORE DEVICE OPTIONS]]]
device() {
	echo "  - {name: $1, queues: $2, ${6:-}backend: {type: nbd, uri: \"$3\", connections: ${4:-1}, ${5:-timeout: 30s, on_disconnect: {queue: 60s\}, cache: kept}}}"
}
{
	echo "daemon: {reactors: $reactors, stop_timeout: 3s}"
	echo "devices:"
	device memory 2 "$(unix memory)" 2
	device memorytcp 2 nbd://127.0.0.1:10901 2
	device file 2 "$(unix file)"
	device fs 2 "$(unix fs)"
	device kill 2 "$(unix kill)" 2
	device qemu 2 "$(unix qemu data)" 2
	device qemutcp 2 nbd://localhost:10902
	device one 1 "$(unix one)"
	device server 2 "$(unix server disk)"
	device servertcp 2 nbd://127.0.0.1:10903/disk
	device faults 1 "$(unix faults)" 1 "" "block_size: 4096, "
} >"$work/nbd.yaml"
start_daemon "$work/nbd.yaml"

is_live() {
	ublkctl --json show "$1" | jq '{state, error}'
	[ "$(ublkctl --json show "$1" | jq -r .state)" = live ]
}
# blk NAME: its block device, or a path that nobody can write to.
blk() {
	local device
	device=$(node "$1" 2>/dev/null)
	if [ -b "$device" ]; then echo "$device"; else echo "/proc/no-device-$1"; fi
}
for name in memory memorytcp file fs kill qemu qemutcp one server servertcp faults; do
	ok "$name: live" wait_for 20 is_live $name
done

limit_is() { [ "$(cat "/sys/block/$(basename "$(blk "$1")")/queue/$2")" = "$3" ]; }
ok "faults: the server's smallest block is the device's" limit_is faults logical_block_size 4096
ok "faults: the server's largest request is the device's" limit_is faults max_hw_sectors_kb 64
ok "server: flush is offered, so the device has a write cache" limit_is server write_cache 'write back'

for name in memory memorytcp file qemu qemutcp server servertcp; do
	ok "$name: fio verify, two queues at QD32" verify "$(blk $name)" --iodepth=32 --numjobs=2 --size=16M \
		--io_size=2M --offset_increment=24M --bsrange=4k-256k --blockalign=4k
done
for name in one faults; do
	ok "$name: fio verify, QD32" verify "$(blk $name)" --iodepth=32 --size=16M --io_size=2M --bsrange=4k-64k \
		--blockalign=4k
done

same_bytes() { cmp "$disks/$1" "$(blk "${2:-$1}")"; }
for name in file qemu server; do ok "$name: the file holds what the device shows" same_bytes $name; done

file_system() {
	local device
	device=$(blk fs)
	mkfs.ext4 -q "$device" && mkdir -p /mnt/fs && mount "$device" /mnt/fs || return
	cp -r /etc "$here" /mnt/fs 2>/dev/null
	sync && fstrim /mnt/fs && echo 3 >/proc/sys/vm/drop_caches
	diff -r "$here" "/mnt/fs/$(basename "$here")" && umount /mnt/fs && fsck.ext4 -fn "$device"
}
ok "mkfs, mount, copy, trim, fsck" file_system

# ---- filters of nbdkit ----

fails_with() { said "$1" dd if=/dev/zero of="$(blk faults)" bs=4k count=1 seek="$2" oflag=direct,sync; }
writes() { dd if=/dev/zero of="$(blk faults)" bs=4k count=1 oflag=direct status=none; }
touch "$run/fail"
ok "error filter: ENOSPC arrives as such" fails_with 'No space left' 7
rm "$run/fail"
ok "error filter: and is over" writes
pause() { printf '%s' "$1" | socat -t 10 - "UNIX:$run/pause" | grep -qi "$1"; }
ok "pause filter: paused" pause p
writes &
paused=$!
sleep 1
ok "pause filter: a write waits" kill -0 $paused
ok "pause filter: resumed" pause r
ok "pause filter: the write is done" wait $paused

# ---- servers that die under load ----

load() { # NAME
	(while [ ! -e "$run/enough" ]; do
		verify "$(blk "$1")" --iodepth=32 --numjobs=2 --size=8M --io_size=2M --offset_increment=24M \
			--bsrange=4k-64k --blockalign=4k || { cp "$work/fio.log" "$run/$1.fio"; exit 1; }
	done) &
	load_pid=$!
}
load_ends() {
	touch "$run/enough"
	wait $load_pid || { cat "$run"/*.fio; return 1; }
	rm -f "$run/enough"
}
# Requests that a device has completed.
completed() { awk '{ print $1 + $5 }' "/sys/block/$(basename "$(blk "$1")")/stat"; }
more_completed() { [ "$(completed "$1")" -gt $(($2 + 100)) ]; }
# Each time in the middle of its work.
kill_again_and_again() { # NAME TIMES START
	local i
	for ((i = 0; i < $2; i++)); do
		unserve "$1"
		sleep "0.$((i % 4))"
		$3
		wait_for 10 listens "$1" && wait_for 30 more_completed "$1" "$(completed "$1")" || return
		kill -0 $load_pid || return
	done
}
no_io_error() { ! dmesg | grep -E 'I/O error, dev ublkb'; }

# What went before failed on purpose.
dmesg -C
load kill
ok "nbdkit: killed and started $kills times under load" kill_again_and_again kill "$kills" kill_server
ok "... no error, no mismatch" load_ends
ok "... the file holds what the device shows" same_bytes kill
load qemu
ok "qemu-nbd: killed and started 5 times under load" kill_again_and_again qemu 5 qemu_server
ok "... no error, no mismatch" load_ends

ok "no error has reached the block layer" no_io_error

# ---- servers that hang ----

add() { ublkctl add -f - >/dev/null; }
add_device() { device "$@" | sed 's/^ *- //' | add; }

in_flight() { awk '{ exit !($1 + $2 > 0) }' "/sys/block/$(basename "$(blk "$1")")/inflight"; }
# The load is many runs of fio: between two of them nobody waits for an answer.
stopped_server() {
	kill -STOP "${server_pid[hang]}"
	wait_for 20 in_flight hang || { kill -CONT "${server_pid[hang]}"; return 1; }
	sleep 4
	kill -0 $load_pid || return
	kill -CONT "${server_pid[hang]}"
}
# Not nbdkit: 1.32 can die of an assertion (raw_send_socket, sock >= 0) when clients leave in the middle of requests.
disk hang
serve hang qemu-nbd -t -e 8 -f raw -k "$run/hang" "$disks/hang"
wait_for 10 listens hang
ok "hang: a device with a timeout of 2s" \
	add_device hang 2 "$(unix hang)" 1 "timeout: 2s, on_disconnect: {queue: 60s}, cache: kept"
load hang
ok "... under load" wait_for 30 more_completed hang "$(completed hang)"
ok "a server that is stopped for longer than the timeout" stopped_server
ok "... no error, no mismatch" load_ends
ok "... the log says why it was given up" said 'hang' grep -iE 'no answer|timeout|does not answer|overdue|in time' \
	"$work/ublkd.log"

gone() { ! ublkctl show "$1" >/dev/null; }
# delete NAME LIMIT: within so many seconds.
delete() {
	local start
	real_time
	start=$real_seconds
	# It says when that takes longer than it should.
	ublkctl del "$1" "${@:3}"
	wait_for "$2" gone "$1" || return
	real_time
	echo "took $((real_seconds - start)) s"
	[ $((real_seconds - start)) -le "$2" ]
}
disk dead
serve dead nbdkit -f -U "$run/dead" file "$disks/dead"
wait_for 10 listens dead
ok "dead: a device that waits for ever" add_device dead 1 "$(unix dead)" 1 "on_disconnect: forever, cache: kept"
unserve dead
dd if=/dev/zero of="$(blk dead)" bs=64k count=16 oflag=direct status=none 2>/dev/null &
writer=$!
sleep 1
ok "... a write waits for the dead server" kill -0 $writer
ok "... it is seen what it waits for" said 'nbd' ublkctl inflight dead
ok "... stops within its deadline (3s)" delete dead 8 --force
wait $writer

# ---- servers that come back as others ----

small_write() { dd if=/dev/urandom of="$(blk "$1")" bs=4k count=1 oflag=direct status=none; }
unserve qemu
qemu_server other
wait_for 10 listens qemu
small_write qemu &
writer=$!
sleep 2
ok "an export that vanished: its requests wait" kill -0 $writer
ok "... the log says why" wait_for 20 said 'export' grep -E 'device=qemu ' "$work/ublkd.log"
unserve qemu
qemu_server data
ok "... it is there again: they are done" wait $writer

unserve memory
memory_server 24M
wait_for 10 listens memory
ok "an export that shrank: requests fail" said 'Input/output error|error' small_write memory
ok "... the log says so" said 'size was [0-9]+MiB, is 24MiB' grep 'device=memory ' "$work/ublkd.log"
ok "... ublkctl show says so" said 'error .*not what it was: size was [0-9]+MiB, is 24MiB' ublkctl show memory
ok "... it can be removed" delete memory 8

# ---- TLS ----

# tls WHAT NAME URI [OPTIONS]: a device over TLS, or why there is none.
refused_tls() { grep -qE 'TLS (is )?(not|un)|not supported|no TLS' "$work/tls.out"; }
tls_works() { # NAME
	verify "$(blk "$1")" --iodepth=32 --numjobs=2 --size=8M --io_size=2M --offset_increment=24M \
		--bsrange=4k-128k --blockalign=4k && ublkctl del "$1"
}
tls() {
	if ! add_device "$2" 2 "$3" 1 "${4:-}" >"$work/tls.out" 2>&1 && refused_tls; then
		skip "$1" "this build has no TLS"
		return
	fi
	ok "$1: live" is_live "$2"
	ok "$1: fio verify" tls_works "$2"
}
# no_tls WHAT URI WORDS: refused, in words.
no_tls() {
	add_device refused 1 "$2" >"$work/tls.out" 2>&1
	if refused_tls; then skip "$1" "this build has no TLS"; else ok "$1" said "$3" cat "$work/tls.out"; fi
}

make_keys() {
	local keys=$run/keys
	mkdir -p "$keys" && cd "$keys" || return
	psktool -u alice -p keys.psk >/dev/null 2>&1 && cp keys.psk ok.psk && psktool -u alice -p wrong.psk >/dev/null 2>&1
	for who in ca server client; do certtool --generate-privkey --key-type=ecdsa --outfile $who-key.pem 2>/dev/null; done
	printf 'cn = test\nca\ncert_signing_key\n' >ca.info
	certtool --generate-self-signed --load-privkey ca-key.pem --template ca.info --outfile ca-cert.pem 2>/dev/null
	printf 'cn = localhost\ndns_name = localhost\nip_address = 127.0.0.1\ntls_www_server\nsigning_key\n' >server.info
	printf 'cn = client\ntls_www_client\nsigning_key\n' >client.info
	for who in server client; do
		certtool --generate-certificate --load-ca-certificate ca-cert.pem --load-ca-privkey ca-key.pem \
			--load-privkey $who-key.pem --template $who.info --outfile $who-cert.pem 2>/dev/null || return
	done
}
if command -v psktool >/dev/null && command -v certtool >/dev/null; then
	ok "keys and certificates" make_keys
	keys=$run/keys
	disk tls
	serve psk nbdkit -f -U "$run/psk" --tls=require --tls-psk="$keys/keys.psk" memory 48M
	serve x509 nbdkit -f -i 127.0.0.1 -p 10911 --tls=require --tls-certificates="$keys" memory 48M
	serve qpsk qemu-nbd -t -e 8 -f raw -k "$run/qpsk" --object \
		"tls-creds-psk,id=tls0,endpoint=server,dir=$keys" --tls-creds tls0 "$disks/tls"
	serve qx509 qemu-nbd -t -e 8 -f raw -b 127.0.0.1 -p 10912 --object \
		"tls-creds-x509,id=tls0,endpoint=server,dir=$keys,verify-peer=yes" --tls-creds tls0 "$disks/tls"
	wait_for 20 listens psk
	wait_for 20 listens qpsk
	wait_for 20 listening 10911
	wait_for 20 listening 10912
	with_psk() { echo "nbds+unix:///?socket=$run/$1&tls-username=alice&tls-psk-file=$keys/$2.psk"; }
	tls "nbdkit, TLS with a key (PSK)" psk "$(with_psk psk ok)"
	tls "nbdkit, TLS with certificates, said by the map tls" x509 nbds://localhost:10911/ \
		"tls: {certificates: $keys, hostname: localhost}"
	unserve psk
	tls "qemu-nbd, TLS with a key (PSK), said by the map tls" qpsk "nbds+unix:///?socket=$run/qpsk" \
		"tls: {psk_file: $keys/ok.psk, username: alice}"
	unserve qpsk
	tls "qemu-nbd, TLS with certificates, of the client too" qx509 "nbds://127.0.0.1:10912/?tls-certificates=$keys"
	unserve qx509
	serve psk nbdkit -f -U "$run/psk" --tls=require --tls-psk="$keys/keys.psk" memory 48M
	wait_for 20 listens psk
	no_tls "a wrong key is refused" "$(with_psk psk wrong)" 'TLS|handshake|key'
	no_tls "a certificate of another host is refused" \
		"nbds://127.0.0.1:10911/?tls-certificates=$keys&tls-hostname=example.org" 'certificate|host'
	no_tls "a server without TLS is refused" "nbds+unix:///?socket=$run/file&tls-username=alice&tls-psk-file=$keys/ok.psk" TLS
	ok "a server that wants TLS is not talked to in clear text" \
		said 'TLS' add_device refused 1 "$(unix psk)"
else
	skip "TLS" "no gnutls-bin (psktool, certtool): ./dev check installs it"
fi

daemon_lives() { kill -0 "$daemon_pid"; }
ok "the daemon lives" daemon_lives
if [ "$bad" -gt 0 ]; then
	grep -h 'level=fatal' "$work/ublkd.log" | sed 's/^/# ublkd: /'
	for name in "$run"/*.log; do tail -n 3 "$name" | sed "s|^|# $(basename "$name"): |"; done
fi
for name in "${!server_pid[@]}"; do unserve "$name"; done
pkill -9 -x nbd-server
finish
