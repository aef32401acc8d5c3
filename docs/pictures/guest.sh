#!/bin/bash
# The part of draw.sh that runs in the test guest, by test/vm/vm.sh: devices of ublkd on several backends, load by
# fio, and what the tools show of it. Usage: guest.sh top|trace. Leaves its files in /out/pictures.
. "$(dirname "$(readlink -f "$0")")/../../test/vm/guest_lib.sh"

pictures=$(dirname "$(readlink -f "$0")")
mkdir -p /out/pictures

cleanup() {
	# shellcheck disable=SC2046
	kill $(jobs -p) 2>/dev/null || true
	wait || true
}
trap cleanup EXIT

served() { [ -b "$(node "$1")" ]; }

# load NAME [fio options]: on that device, in the background, for as long as the guest lives.
load() {
	local name=$1
	shift
	fio --name="$name" --filename="$(node "$name")" --ioengine=io_uring --direct=1 --bs=4k --rw=randrw --time_based \
		--runtime=1h "$@" >"$work/fio-$name.log" 2>&1 &
}

# Five devices: memory, files with and without a limit, an NBD server that is there and one that is not.
draw_top() {
	ram_disk 600 || return
	ip link set lo up
	nbdkit -f --unix "$work/vm-1.sock" memory 256M >"$work/nbdkit.log" 2>&1 &
	wait_for 20 test -S "$work/vm-1.sock" || return
	cat >"$work/top.yaml" <<-YAML
		daemon: {reactors: $reactors}
		devices:
		  - {name: scratch, queues: $(nproc), backend: {type: mem, size: 256MiB}}
		  - {name: db, queues: $(nproc), backend: {type: file, path: /mnt/ram/db.img, size: 128MiB, create: true}}
		  - {name: vm-1, queues: $(nproc), backend: {type: nbd, uri: "nbd+unix:///?socket=$work/vm-1.sock", connections: 1}}
		  - name: backup
		    queues: 1
		    backend:
		      type: throttle
		      total_iops_sec: 200
		      backend: {type: file, path: /mnt/ram/backup.img, size: 128MiB, create: true}
		  - {name: vm-2, queues: 1, backend: {type: nbd, uri: "nbd+unix:///?socket=$work/vm-2.sock"}}
	YAML
	start_daemon "$work/top.yaml" && wait_for 30 served vm-1 2>"$work/err" || { cat "$work/ublkd.log" >&2; return 1; }
	ublkctl list
	load db --iodepth=8 --rate_iops=300
	load scratch --rw=randread --iodepth=8 --rate_iops=1000
	load vm-1 --iodepth=4 --rate_iops=100
	load backup --rw=write --bs=64k --iodepth=4
	rest 3
	timeout 180 "$pictures/screen.py" /out/pictures backup db
}

# Some requests of fio on a device on a file, four at a time. Needs vm.sh -s, as all that patches the kernel's code.
draw_trace() {
	local record
	cat >"$work/trace.yaml" <<-YAML
		daemon: {reactors: [0]}
		devices:
		  - {name: disk, queues: 1, depth: 4, backend: {type: file, path: $work/disk.img, size: 16MiB, create: true}}
	YAML
	start_daemon "$work/trace.yaml" || return
	ublktrace record --all --duration 120 -o /out/pictures/trace.pftrace &
	record=$!
	wait_for 60 waits "$record" || return
	timeout 60 fio --name=load --filename="$(node disk)" --ioengine=io_uring --direct=1 --bs=4k --size=4M --rw=randrw \
		--iodepth=4 --number_ios=60 --minimal >"$work/fio.log" || return
	kill -INT "$record"
	wait_for 60 ended "$record" || { kill -KILL "$record"; return 1; }
	wait "$record"
}
# It has attached all and waits for records: epoll_wait, epoll_pwait.
waits() { in_call "$1" 232 281; }
ended() { ! kill -0 "$1" 2>/dev/null; }

case ${1:-} in
top) draw_top ;;
trace) draw_trace ;;
*) sed -n '2,3s/^# //p' "$0" >&2 && exit 2 ;;
esac
