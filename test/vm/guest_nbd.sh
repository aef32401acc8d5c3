#!/bin/bash
# In the guest: devices on real NBD servers (nbdkit with its filters, qemu-nbd old and new,
# nbd-server), over unix, TCP and vsock, with TLS: data under fio, a file system, the effects of
# filters. guest_nbd_outage.sh tests servers that fail.
# Runs on: uml
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_nbd_lib.sh"

# ---- servers ----

disk fs 48M
for name in file qemu qemutcp one server servertcp faults emulated; do disk $name; done

serve memory nbdkit -f -U "$run/memory" memory 24M
serve memorytcp nbdkit -f -i 127.0.0.1 -p 10901 memory 24M
serve file nbdkit -f -U "$run/file" file "$disks/file"
serve fs nbdkit -f -U "$run/fs" file "$disks/fs"
serve qemu qemu-nbd -t -e 8 -x data -f raw --discard=unmap -k "$run/qemu" "$disks/qemu"
serve qemutcp qemu-nbd -t -e 8 -f raw -b 127.0.0.1 -p 10902 "$disks/qemutcp"
serve one qemu-nbd -t -f raw -k "$run/one" "$disks/one"
# multi-conn is the outermost: below delay it ends nbdkit 1.32 (an assertion) with the first client.
serve faults nbdkit -f -U "$run/faults" --filter=multi-conn --filter=error --filter=pause --filter=delay \
	--filter=blocksize-policy file "$disks/faults" error=ENOSPC error-rate=100% "error-file=$run/fail" \
	"pause-control=$run/pause" delay-read=1ms wdelay=1ms multi-conn-mode=disable \
	blocksize-minimum=4096 blocksize-preferred=16384 blocksize-maximum=64k blocksize-error-policy=error
serve emulated nbdkit -f -U "$run/emulated" --filter=multi-conn file "$disks/emulated" multi-conn-mode=emulate
serve slow nbdkit -f -U "$run/slow" --filter=delay memory 1M rdelay=300ms
nbd_server server "unixsock = $run/server"
nbd_server servertcp $'listenaddr = 127.0.0.1\nport = 10903'

ok "the servers listen" all_listen memory file fs qemu one faults emulated slow server 10901 10902 10903

# ---- devices ----

configure memory 2 "$(unix memory)" 2
configure memorytcp 2 nbd://127.0.0.1:10901 2
# On one machine simple replies are what is asked for by itself.
structured="timeout: 60s, on_disconnect: {queue: 60s}, cache: kept, replies: structured"
configure file 2 "$(unix file)" 1 "$structured"
configure fs 2 "$(unix fs)"
configure qemu 2 "$(unix qemu data)" 2 "$structured"
configure qemutcp 2 nbd://localhost:10902
configure one 1 "$(unix one)"
configure server 2 "$(unix server disk)"
configure servertcp 2 nbd://127.0.0.1:10903/disk
configure faults 2 "$(unix faults)" 2 "$structured" "block_size: 4096, "
configure emulated 2 "$(unix emulated)" 2
ok "the devices are live" start_nbd memory memorytcp file fs qemu qemutcp one server servertcp faults emulated

ok "server: flush is offered, so the device has a write cache" limit_is server write_cache 'write back'

for name in memory memorytcp file qemu qemutcp server servertcp emulated; do
	ok "$name: fio verify, two queues at QD32" verify_two $name
done
ok "one: fio verify, QD32" verify_one one
for name in file qemu server; do ok "$name: the file holds what the device shows" same_bytes $name; done

ok "mkfs, mount, copy, trim, fsck" file_system fs

# ---- filters of nbdkit ----

# connections NAME NUMBER: so many are on its socket now
connections() {
	local line number=0
	while read -r line; do
		[[ $line != *" 03 "*" $run/$1" ]] || number=$((number + 1))
	done </proc/net/unix
	echo "$number connections"
	[ $number = "$2" ]
}
queues() { [ "$(find "/sys/block/$(basename "$(blk "$1")")/mq" -mindepth 1 -maxdepth 1 | wc -l)" = "$2" ]; }
ok "multi-conn filter: two connections of each of two queues where several may be" connections emulated 4
ok "multi-conn filter: one where they may not, whatever was asked for" connections faults 1
ok "multi-conn filter: and one queue" queues faults 1
ok "multi-conn filter: the log says so" grep -E 'allows one connection at a time.*device=faults' "$work/ublkd.log"

ok "blocksize-policy filter: the smallest block is the device's" limit_is faults logical_block_size 4096
ok "blocksize-policy filter: the largest request is the device's" limit_is faults max_hw_sectors_kb 64
ok "all filters: fio verify, QD32, no request that the policy refuses" verify_one faults

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

# 64 reads of 0.3 s each: 19 s one by one, 1.2 s by 16 at a time, which is what nbdkit does.
slow_reads() {
	local start=${EPOCHREALTIME/./} us
	fio --name=slow --filename="$(blk slow)" --ioengine=io_uring --direct=1 --rw=randread --bs=4k --size=1M \
		--iodepth=32 --number_ios=64 --minimal || return
	us=$((${EPOCHREALTIME/./} - start))
	echo "took $us us"
	[ $us -gt 900000 ] && [ $us -lt 15000000 ]
}
ok "delay filter: a device" add_device slow 1 "$(unix slow)"
ok "delay filter: what is slow is slow at the same time" slow_reads

# ---- extended headers ----

# The image is qcow2: zeroes that are to be allocated take no room in it.
extended() { ublkctl --json nbd-info "$(unix extended)" | jq -e '.exports[0].replies == "extended"'; }
mark() { # BYTE_OFFSET...: data at these places
	local at
	for at; do
		tr '\0' M </dev/zero | dd of="$(blk extended)" bs=64k count=1 iflag=fullblock seek=$((at / 65536)) \
			oflag=direct status=none || return
	done
}
marked() { # BYTE_OFFSET...
	local at
	for at; do
		[ "$(dd if="$(blk extended)" bs=64k count=1 skip=$((at / 65536)) iflag=direct status=none | tr -d M | wc -c)" = 0 ] ||
			return
	done
}
zero() { # BYTE_OFFSET...
	local at
	for at; do cmp -n 65536 -i "$at:0" "$(blk extended)" /dev/zero || { echo "at $at"; return 1; }; done
}
# done_of FIELD: of the device's stat; 5 writes and zeroes, 12 discards
done_of() { awk -v field="$1" '{ print $field }' "/sys/block/$(basename "$(blk extended)")/stat"; }
gib=$((1 << 30))
places="0 $((4 * gib)) $((5 * gib)) $((8 * gib)) $((11 * gib))"
# A TRIM of half a cluster of 64 KiB does nothing, zeroes must be everywhere.
on_edges="$((4 * gib - 65536)) $((8 * gib - 65536)) $((12 * gib - 65536))"
# in_few_requests FIELD "PLACE..." COMMAND...: on 12 GiB; the kernel makes none of 4 GiB, so there are four.
# shellcheck disable=SC2086
in_few_requests() {
	local before after
	mark $2 && marked $2 || return
	before=$(done_of "$1")
	"${@:3}" || return
	after=$(done_of "$1")
	echo "$((after - before)) requests"
	[ $((after - before)) = 4 ] && zero $2
}
qemu_new=$(dirname "$(dirname "$here")")/build/vm/qemu-nbd
if [ -x "$qemu_new/qemu-nbd" ]; then
	qemu-img create -q -f qcow2 "$disks/extended" 12G
	serve extended "$qemu_new/qemu-nbd" -t -e 8 -f qcow2 --discard=unmap -k "$run/extended" "$disks/extended"
	ok "$("$qemu_new/qemu-nbd" --version | sed -nE '1s/.*(qemu-nbd|program) ([^ ]*).*/qemu-nbd \2/p') listens" \
		all_listen extended
	ok "extended headers: nbd-info says so" extended
	ok "extended headers: a device" add_device extended 2 "$(unix extended)" 2 "$structured"
	ok "extended headers: fio verify, two queues at QD32" verify_two extended
	ok "extended headers: 12 GiB trimmed in four requests" in_few_requests 12 "$places" \
		blkdiscard "$(blk extended)"
	ok "extended headers: 12 GiB zeroed in four requests" in_few_requests 5 "$places $on_edges" \
		blkdiscard -z "$(blk extended)"
else
	skip "extended headers" "$(cat "$qemu_new/why" 2>/dev/null || echo "test/vm/qemu_nbd.sh gets a server for them")"
fi

# ---- vsock ----

asks_vsock() { ublkctl nbd-info nbd+vsock://1:10904; }
if modprobe vsock_loopback 2>"$work/modprobe"; then
	serve vsock nbdkit -f --vsock -p 10904 memory 24M
	ok "vsock: nbd-info" wait_for 60 asks_vsock
	ok "vsock: a device" add_device vsock 2 nbd+vsock://1:10904 2
	ok "vsock: fio verify, two queues at QD32" verify_two vsock
	ok "vsock: removed" delete vsock 8
else
	skip "vsock" "no vsock_loopback in this kernel: $(cat "$work/modprobe")"
fi

# ---- TLS ----

# tls WHAT NAME URI [OPTIONS]: a device over TLS, or why there is none.
refused_tls() { grep -qE 'TLS (is )?(not|un)|not supported|no TLS' "$work/tls.out"; }
tls_works() { # NAME
	verify_two "$1" && ublkctl del "$1"
}
tls() {
	if ! add_device "$2" 2 "$3" 1 "${4:-}" >"$work/tls.out" 2>&1 && refused_tls; then
		skip "$1" "this build has no TLS"
		return
	fi
	ok "$1: live" are_live "$2"
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
	# qemu-nbd makes parameters of its own without, which takes it many seconds
	certtool --get-dh-params --outfile dh-params.pem 2>/dev/null
}
if command -v psktool >/dev/null && command -v certtool >/dev/null; then
	ok "keys and certificates" make_keys
	keys=$run/keys
	disk tls
	serve psk nbdkit -f -U "$run/psk" --tls=require --tls-psk="$keys/keys.psk" memory 24M
	serve x509 nbdkit -f -i 127.0.0.1 -p 10911 --tls=require --tls-certificates="$keys" memory 24M
	serve qpsk qemu-nbd -t -e 8 -f raw -k "$run/qpsk" --object \
		"tls-creds-psk,id=tls0,endpoint=server,dir=$keys" --tls-creds tls0 "$disks/tls"
	serve qx509 qemu-nbd -t -e 8 -f raw -b 127.0.0.1 -p 10912 --object \
		"tls-creds-x509,id=tls0,endpoint=server,dir=$keys,verify-peer=yes" --tls-creds tls0 "$disks/tls"
	ok "the servers with TLS listen" all_listen psk qpsk 10911 10912
	with_psk() { echo "nbds+unix:///?socket=$run/$1&tls-username=alice&tls-psk-file=$keys/$2.psk"; }
	tls "nbdkit, TLS with a key (PSK)" psk "$(with_psk psk ok)"
	tls "nbdkit, TLS with certificates, said by the map tls" x509 nbds://localhost:10911/ \
		"tls: {certificates: $keys, hostname: localhost}"
	tls "qemu-nbd, TLS with a key (PSK), said by the map tls" qpsk "nbds+unix:///?socket=$run/qpsk" \
		"tls: {psk_file: $keys/ok.psk, username: alice}"
	tls "qemu-nbd, TLS with certificates, of the client too" qx509 "nbds://127.0.0.1:10912/?tls-certificates=$keys"
	no_tls "a wrong key is refused" "$(with_psk psk wrong)" 'TLS|handshake|key'
	no_tls "a certificate of another host is refused" \
		"nbds://127.0.0.1:10911/?tls-certificates=$keys&tls-hostname=example.org" 'certificate|host'
	no_tls "a server without TLS is refused" "nbds+unix:///?socket=$run/file&tls-username=alice&tls-psk-file=$keys/ok.psk" TLS
	ok "a server that wants TLS is not talked to in clear text" \
		said 'TLS' add_device refused 1 "$(unix psk)"
else
	skip "TLS" "no gnutls-bin (psktool, certtool): ./dev check installs it"
fi

finish_nbd
