#!/bin/bash
# In the guest: memory that clients share with a device (shared_memory). Data both ways on mem and file; clients
# that die, take the memory back, or truncate it while I/O runs; kills and upgrades of the daemon; descriptors and
# clients that are refused; what an older driver lacks is said.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

client=$here/shared_client.py
example=$(dirname "$(readlink -f "$(command -v ublkd)")")/../test/share_memory
socket=/run/ublkd/control.sock

ram_disk 200 || exit 1
truncate -s 32M /mnt/ram/file /mnt/ram/a /mnt/ram/b

configure() { # BYTES that may be shared
	cat >"$work/shared.yaml" <<END
daemon: {reactors: $reactors, metrics: "127.0.0.1:9740"}
devices:
  - {name: mem, id: 1, shared_memory: $1, backend: {type: mem, size: 32MiB}}
  - {name: file, id: 2, shared_memory: $1, backend: {type: file, path: /mnt/ram/file}}
  - {name: stripe, id: 3, shared_memory: $1, backend: {type: stripe, chunk: 64KiB, backends: [
      {type: file, path: /mnt/ram/a}, {type: file, path: /mnt/ram/b}]}}
  - {name: nbd, id: 6, partition_scan: no, shared_memory: $1, backend: {type: nbd, uri: "nbd+unix:///?socket=/run/nbd.sock"}}
  - {name: plain, id: 4, partition_scan: no, backend: {type: mem, size: 4MiB}}
  - {name: slow, id: 5, partition_scan: no, shared_memory: $1, backend: {type: delay, write: 10s, backend: {type: null, size: 4MiB}}}
END
}

nbdkit --threads=1 -U /run/nbd.sock memory 32M || exit 1

state_of() { ublkctl --json list | jq -r ".[] | select(.name == \"$1\").state"; }
is_live() { [ "$(state_of "$1")" = live ]; }
served() { ublkctl --json stats "$1" | jq '.devices[0].in_shared_memory'; }
buffers() { ublkctl --json show "$1" | jq -e ".shared_memory | $2"; }
free_huge() { sed -nE 's/^HugePages_Free: +//p' /proc/meminfo; }
huge_are_free() { [ "$(free_huge)" = "$huge" ]; }
hands() { "$client" hand "$socket" "$@"; }
refuses() { # WORDS KIND [DEVICE]
	said "$1" hands "${3:-mem}" "$2" && ! grep -q '"ok": true' "$work/said"
}

if ! driver_has SHMEM_ZC; then
	configure 8MiB
	sed -i 's/partition_scan: no, //' "$work/shared.yaml"
	start_daemon "$work/shared.yaml"
	ok "a driver that lacks it: the device does not start, in words" said 'SHMEM_ZC \(Linux 7.1\); leave shared_memory out' \
		ublkctl --json show mem
	ok "... and the others do" is_live plain
	ok "doctor says so" said '^OK +shared_memory +cannot be used' ublkctl doctor
	ok "share says what is missing" said 'not live|without shared_memory' hands plain sealed
	finish
fi

fallocate -l 1M /run/sealless
echo 16 >/proc/sys/vm/nr_hugepages
huge=$(free_huge)
# of_huge NAME COMMAND...: ok, where the kernel has huge pages
of_huge() {
	if [ -n "$huge" ]; then ok "$@"; else skip "$1" "this kernel has no huge pages (the quick guest)"; fi
}
configure 8MiB
start_daemon "$work/shared.yaml"
ok "the devices live" is_live slow
ok "doctor says that the driver has it" said '^OK +shared_memory +the driver has it' ublkctl doctor

ok "every byte of mem is where it belongs" "$client" check "$socket" mem /dev/ublkb1 - 200
ok "... of a file" "$client" check "$socket" file /dev/ublkb2 /mnt/ram/file 200
ok "... of a stripe" "$client" check "$socket" stripe /dev/ublkb3 - 200
ok "... of an NBD server" "$client" check "$socket" nbd /dev/ublkb6 - 200
ok "the example works" "$example" "$socket" mem /dev/ublkb1
of_huge "... with huge pages" "$example" --huge "$socket" file /dev/ublkb2
of_huge "what was taken back is free" huge_are_free
ok "no buffer is left" buffers mem 'length == 0'

# --- who is refused

ok "a pipe is refused" refuses 'is no memory' pipe
ok "a socket" refuses 'is no memory' socket
ok "a file on a disk" refuses 'is no memory' file
ok "no descriptor" refuses 'no descriptor' none
ok "two" refuses 'no descriptor|dropped' two
ok "memory without a seal" refuses 'not sealed against shrinking' unsealed
of_huge "... for a server's device also of huge pages" refuses 'whose pages nobody can take away' huge nbd
ok "... and files" said 'whose pages nobody can take away' ublkctl share nbd /run/sealless
ok "no bytes" refuses 'expected a multiple of its pages' empty
ok "half a page" refuses 'expected a multiple of its pages' odd
ok "what cannot be read" refuses 'for writing alone' writeonly
ok "more than may be shared" refuses 'above the device' larger
ok "more than the driver takes" refuses 'larger than 4 GiB' gigantic
ok "a device without it" refuses 'started without shared_memory' sealed plain
too_many() {
	local i
	for i in $(seq 0 7); do fallocate -l 1M "/run/many$i" && ublkctl share mem "/run/many$i" || return 1; done
	refuses 'above the device' sealed || return
	for i in $(seq 0 7); do ublkctl unshare mem "$i" && rm "/run/many$i" || return 1; done
}
ok "one more than fits" too_many
fallocate -l 1M /run/memory
twice() {
	ublkctl share mem /run/memory && said 'some of this memory already' ublkctl share mem /run/memory
	ublkctl unshare mem 0
}
ok "the same memory twice" twice
ok "a file on a disk by its name" said 'is no memory' ublkctl share mem /mnt/ram/file
ok "a buffer that is not there" said 'no shared buffer of this number' ublkctl unshare mem 3
# so that it could open the file; the socket is root's
chmod 666 /run/memory
ok "another user" said 'no permission' setpriv --reuid 65534 --clear-groups ublkctl share mem /run/memory
ok "an option that cannot be had with zero_copy" said 'impossible with data_path: zero_copy' ublkd --check-config --config <(
	echo 'devices: [{name: x, shared_memory: 1MiB, data_path: zero_copy, backend: {type: "null", size: 1MiB}}]')
ok "... or with a backend" said 'impossible with the backend qcow2' ublkd --check-config --config <(
	echo 'devices: [{name: x, shared_memory: 1MiB, backend: {type: qcow2, data: {type: file, path: /mnt/ram/file}}}]')

# --- while I/O runs

fallocate -l 2M /run/load
load() { # DEVICE [fio options]: in shared memory, and what it reads is compared
	local device=$1
	shift
	verify "$device" --mem=mmapshared:/run/load --bs=4k-64k --iodepth=8 --size=16M "$@"
}
ok "share prints the number" said '^0$' ublkctl share file /run/load
ok "show lists it" said '0 +2MiB +in use +/run/load' ublkctl show file
before=$(served file)
ok "a load in it" load /dev/ublkb2
counted() { [ "$(served "$1")" -gt "$2" ]; }
ok "... was served there" counted file "$((before + 200))"
scrape() { curl -sf --max-time 10 http://127.0.0.1:9740/metrics; }
ok "metrics count it" said "^ublkd_shared_memory_requests_total.*file.* $(served file)\$" scrape

end_fio() {
	# shellcheck disable=SC2046 # several
	kill -KILL $(pids fio) 2>/dev/null
	wait "$load_pid" 2>/dev/null
}
load_ends() { wait "$load_pid"; }
taken_back() {
	local i
	for i in 1 2 3 4 5; do ublkctl unshare file 0 && ublkctl share file /run/load >"$work/number" && grep -qx 0 "$work/number" || return 1; done
}
load /dev/ublkb2 --time_based --runtime=8 &
load_pid=$!
rest 2
ok "it is taken back and shared again under a load" taken_back
ok "... which reads what it wrote" load_ends

(until [ -e "$work/enough" ]; do load /dev/ublkb2 --rate_iops=400 || exit 1; done) &
load_pid=$!
rest 2
kill -KILL "$(server)"
wait "$daemon_pid"
start_daemon "$work/shared.yaml"
ok "the daemon is killed under a load: adopted" wait_for 20 is_live file
ok "... with the memory" buffers file '.[0].bytes == 2097152'
ok "... which the load goes on with" wait_for 20 counted file 100
ok "an upgrade" ublkctl upgrade
ok "... keeps it, too" buffers file '.[0].bytes == 2097152'
ok "... in which requests still are" wait_for 20 counted file 10
touch "$work/enough"
ok "... and the load reads what it wrote" load_ends

fio --name=dies --filename=/dev/ublkb2 --mem=mmapshared:/run/load --direct=1 --ioengine=io_uring --rw=randrw --bs=16k \
	--iodepth=16 --size=16M --time_based --runtime=60 >/dev/null 2>&1 &
load_pid=$!
rest 2
end_fio
ok "a client dies under its load: others are served" verify /dev/ublkb2 --bs=4k --size=4M
ok "... and it can be taken back" ublkctl unshare file 0

torn_is() { buffers "$1" ".[0].torn == $2"; }
# fio holds the pages and does not look into them: it goes on after the file was cut short.
tear() { # DEVICE NODE RW FILE FIO_MEMORY TORN: a file that nobody can seal
	fallocate -l 2M "$4"
	ublkctl share "$1" "$4" || return 1
	fio --name=torn --filename="$2" --mem="$5:$4" --direct=1 --ioengine=io_uring --fixedbufs --scramble_buffers=0 \
		--rw="$3" --bs=16k --iodepth=16 --size=16M --time_based --runtime=30 >"$work/torn" 2>&1 &
	load_pid=$!
	rest 2
	truncate -s 0 "$4"
	rest 2
	end_fio
	rm -f "$4"
	torn_is "$1" "$6"
}
same_server() { [ "$(server)" = "$1" ]; }
now=$(server)
ok "a client truncates what it shares under its reads" tear mem /dev/ublkb1 randread /run/torn mmapshared true
ok "... under writes that are the kernel's to do" tear stripe /dev/ublkb3 randwrite /run/torn mmapshared false
ok "... the daemon lives" same_server "$now"
ok "... and serves mem" verify /dev/ublkb1 --bs=4k --size=4M
ok "... and stripe" verify /dev/ublkb3 --bs=4k --size=4M
ok "torn memory can be taken back" ublkctl unshare mem 0
mkdir -p /run/huge && { [ -z "$huge" ] || mount -t hugetlbfs none /run/huge; }
of_huge "the same of huge pages" tear mem /dev/ublkb1 randwrite /run/huge/torn mmaphuge true
ok "... the daemon lives" same_server "$now"
of_huge "... and gives them back" ublkctl unshare mem 0
[ -z "$huge" ] || umount /run/huge

dd if=/dev/zero of=/dev/ublkb5 bs=4k count=1 oflag=direct status=none &
slow_pid=$!
rest 2
ok "the driver is not let wait for a request that takes long" said 'a request has been served for' ublkctl share slow /run/memory
wait $slow_pid
ok "... and is asked afterwards" ublkctl share slow /run/memory

of_huge "huge pages are shared by a client that is gone" said '"ok": true' hands mem huge
of_huge "... they are not free" [ "$(free_huge)" -lt "$huge" ]
configure 4MiB
kill -HUP "$(server)"
lower() { is_live mem && buffers mem 'length == 0'; }
ok "a reload that starts the device again gives them back" wait_for 20 lower
of_huge "... all" wait_for 10 huge_are_free
kill -KILL "$(server)"
rest 0.5
start_daemon "$work/shared.yaml"
ok "nothing of that comes back after a crash" wait_for 20 lower
finish
