#!/bin/bash
# In the guest: `ublktrace stacks` on loads with known paths through the block layer. Needs vm.sh -s
# or -i; with -n it also tests an NVMe disk.
# By turns: 6.12 -s -n
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

cat >"$work/stacks.yaml" <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: one, queues: 1, backend: {type: mem, size: 64MiB}}
  - {name: two, queues: 1, backend: {type: mem, size: 64MiB}}
EOF
ok "the daemon serves" start_daemon "$work/stacks.yaml"

sleeps() { in_call "$trace_pid" 35 230; } # (clock_)nanosleep

# traced "OPTIONS" COMMAND...: stacks in $work/stacks, the rest in $work/words, while the command runs
traced() {
	# shellcheck disable=SC2086 # several
	ublktrace stacks $1 >"$work/stacks" 2>"$work/words" &
	trace_pid=$!
	wait_for 60 sleeps && kill -0 $trace_pid || { cat "$work/words"; return 1; }
	"${@:2}" || return
	kill -INT $trace_pid && wait $trace_pid && return
	cat "$work/words"
	return 1
}

# load NAME COUNT [fio options]: that many I/Os
load() {
	fio --name=load --filename="$(node "$1")" --ioengine=io_uring --direct=1 --bs=4k --size=64M \
		--number_ios="$2" --minimal "${@:3}" >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}
both() { load one 100 --rw=read && load one 50 --rw=write && load two 30 --rw=read; }
plugged() { load one 128 --rw=randread --iodepth=16 --iodepth_batch_submit=16 --iodepth_batch_complete_min=16; }

shown() { cat "$work/stacks" "$work/words"; }
# sum PATTERN: counts of the stacks that match
sum() { awk -v pattern="$1" '$0 ~ pattern { sum += $NF } END { print sum + 0 }' "$work/stacks"; }
is() { [ "$1" = "$2" ] || { echo "wanted $1, got $2"; shown; return 1; }; }
lost_nothing() { grep -q '^lost: 0 ring buffer full, 0 map full, 0 missed by recursion' "$work/words" || { shown; return 1; }; }
folded() { ! grep -vE '^[^ ;]+(;[^ ;]+)+ [0-9]+$' "$work/stacks"; }

one=$(basename "$(node one)")
ok "queue: of one disk" traced "--at queue -d $one" both
ok "... 100 reads" eval 'is 100 "$(sum "^read;")"'
ok "... 50 writes, of the other disk nothing" eval 'is 150 "$(sum .)"'
ok "... from the call to the driver" eval 'is 150 "$(sum ";io_submit_sqes;.*;blk_mq_[a-z_]*;.*;ublk_queue_rq")"'
ok "... folded" folded
# one alone: Linux 7.2 tries it directly, 6.12 has it in a plug list of one
way='plug list'
if grep -qw ublk_start_io /proc/kallsyms; then way=direct; fi
ok "... $way" grep -qx "$way: 150" "$work/words"
ok "... one at a time" grep -qx 'batch of 1: 150' "$work/words"
ok "... nothing is lost" lost_nothing
ok "queue: sixteen at a time" traced "--at queue -d $one" plugged
ok "... by the plug list" grep -qx 'plug list: 128' "$work/words"
if grep -q ublk_queue_rqs /proc/kallsyms; then
	ok "... in batches of sixteen" grep -qx 'batch of 16: 8' "$work/words"
else
	ok "... each handed over alone, as this driver has no lists" grep -qx 'batch of 1: 128' "$work/words"
fi
ok "complete" traced "--at complete -d $one" both
ok "... all in the daemon's commit" eval 'is 150 "$(sum ";io_uring_cmd;.*ublk.*;blk_update_request")"'
ok "dispatch" traced "--at dispatch -d $one" both
if grep -q ublk_start_io /proc/kallsyms; then
	ok "... each in the daemon's thread" eval 'is 150 "$(sum ";.*run_local_work.*;ublk_")"'
else
	ok "... runs in the daemon's thread" eval '[ "$(sum "^any;.*run_local_work.*;ublk_")" -gt 0 ] && [ "$(sum .)" -le 180 ]'
fi

svg() {
	traced "--at queue --svg -d $one" load one 20 --rw=read && grep -q '<title>ublk_queue_rq: 20 (100.0%)</title>' "$work/stacks" &&
		python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$work/stacks"
}
ok "a flame graph is XML, and each frame has its count" svg
ok "to a file" eval 'traced "--at complete -o $work/file" load one 5 --rw=read && [ -s "$work/file" ] && ! [ -s "$work/stacks" ]'

# ---- NVMe

# nvme_reads [fio options]: 128 reads of 4 KiB, none beside another
nvme_reads() {
	fio --name=nvme --filename=/dev/nvme0n1 --ioengine=io_uring --direct=1 --bs=4k --rw=read:4k --offset=4m --size=1m \
		--number_ios=128 --minimal "$@" >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}
nvme_plugged() { nvme_reads --iodepth=16 --iodepth_batch_submit=16 --iodepth_batch_complete_min=16; }
read_once_more() { dd if=/dev/nvme0n1 of=/dev/null bs=4k skip=256 count=1 iflag=direct; } # sector 2048
into_driver() { is "$1" "$(sum "$2;nvme_queue_rqs? ")" && is "$1" "$(sum .)"; }

if [ -b /dev/nvme0n1 ]; then
	echo none >/sys/block/nvme0n1/queue/scheduler
	ok "nvme_queue" traced "--at nvme_queue -d nvme0n1" nvme_reads
	ok "... 128 reads, from the call to the driver" into_driver 128 '^read;.*;io_submit_sqes;.*blk_mq_[a-z_]*'
	ok "... $way" grep -qx "$way: 128" "$work/words"
	ok "... one at a time" grep -qx 'batch of 1: 128' "$work/words"
	ok "... nothing is lost" lost_nothing
	ok "nvme_queue: sixteen at a time" traced "--at nvme_queue -d nvme0n1" nvme_plugged
	ok "... 128 reads" into_driver 128 '^read;.*;blk_finish_plug;.*'
	ok "... by the plug list" grep -qx 'plug list: 128' "$work/words"
	ok "... in batches of sixteen" grep -qx 'batch of 16: 8' "$work/words"
	ok "nvme_queue: a read that the disk fails once" traced "--at nvme_queue -d nvme0n1" read_once_more
	ok "... comes twice" into_driver 2 '^read;.*'
	ok "... $way" grep -qx "$way: 1" "$work/words"
	ok "... and by way of the requeue list" grep -qx 'requeue: 1' "$work/words"
	ok "nvme_queue: of no other disk" eval 'traced "--at nvme_queue -d nvme1n1" nvme_reads && is 0 "$(sum .)"'
elif grep -qw nvme_queue_rq /proc/kallsyms; then
	ok "nvme_queue, without a disk of that kind" eval 'traced "--at nvme_queue" load one 5 --rw=read && is 0 "$(sum .)" && lost_nothing'
else
	ok "a point that is not here is told with its cure" eval \
		'! ublktrace stacks --at nvme_queue --duration 1 2>"$work/words" && grep -q "module nvme is not loaded: run modprobe nvme" "$work/words"'
fi
ok "a wrong point is a wrong command line" eval 'ublktrace stacks --at nowhere 2>"$work/words"; [ $? = 2 ]'
finish
