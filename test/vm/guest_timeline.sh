#!/bin/bash
# In the guest: ublktrace record of fio on a device of ublkd, as Perfetto protobuf and as FXT. The
# strict readers read both, and their counts must equal fio's. Needs vm.sh -s or -i, like every test
# that patches the kernel's code. SAMPLE=1 prints the first trace, gzip and base64, as comments.
# By turns: 6.12 -s -n
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

readers=$here/../trace
ios=200

cat >"$work/timeline.yaml" <<YAML
daemon: {reactors: [0]}
devices:
  - {name: disk, queues: 1, depth: 8, backend: {type: file, path: $work/disk.img}}
YAML
truncate -s 16M "$work/disk.img"
ok "the daemon serves" start_daemon "$work/timeline.yaml"

# The 8 tags wait for work since before the trace: of their first completions the command is not known.
traced() {
	ublktrace record --all -o "$work/t.pftrace" -o "$work/t.fxt" 2>"$work/record.log" &
	record_pid=$!
	wait_for 60 polls
	fio --name=load --filename="$(node disk)" --ioengine=io_uring --direct=1 --bs=4k --size=4M --rw=randrw \
		--iodepth=4 --number_ios=$ios --minimal >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
	kill -INT $record_pid
	wait $record_pid || { cat "$work/record.log"; return 1; }
	cat "$work/record.log"
}

# It waits for records: all is attached. epoll_wait, epoll_pwait.
polls() { in_call "$record_pid" 232 281; }

# counted READER FILE JQ-EXPRESSION...: each is true of the summary. A preemptible kernel skips runs of
# the programs now and then, and says so: an io_uring_enter that is not seen has up to four requests.
counted() {
	local reader=$1 file=$2 expression
	local skipped='.lost as $l | def least($n): . >= $n - 4 * $l["lost: missed by recursion"];
		def near($n): . <= $n and least($n); '
	shift 2
	"$readers/$reader" "$file" --json >"$work/summary" || { "$readers/$reader" "$file"; cat "$work/summary"; return 1; }
	for expression in "$@"; do
		jq -e --argjson ios $ios "$skipped$expression" "$work/summary" >/dev/null ||
			{ echo "not so: $expression"; cat "$work/summary" "$work/record.log"; return 1; }
	done
}

ok "record" traced
for format in pftrace:perfetto_read.py fxt:fxt_read.py; do
	file=$work/t.${format%%:*} reader=${format#*:}
	ok "${format%%:*}: slices nest, flows have both ends" "$readers/$reader" "$file"
	ok "${format%%:*}: nothing is lost" counted "$reader" "$file" \
		'.lost["lost: ring buffer full"] == 0' '.lost["lost: too late"] == 0' '.lost["lost: not drawn"] == 0'
	ok "${format%%:*}: each I/O in all its phases" counted "$reader" "$file" \
		'.names.read + .names.write | near($ios)' \
		'.names.queued | near($ios)' '.names.daemon | near($ios)' '.names.commit | near($ios)' \
		'.names["backend read"] + .names["backend write"] | near($ios)'
	ok "${format%%:*}: arrows from fio to the daemon and back" counted "$reader" "$file" \
		'.links["thread -> ublk request"] | near($ios)' '.links["complete -> ublk reap"] | least($ios - 8)' \
		'.links["ublk commit -> submit"] | near($ios)' '.links["submit -> complete"] | least(2 * $ios)' \
		'.links["complete -> reaped"] | least(2 * $ios - 8)'
done
if [ "${SAMPLE:-}" ]; then
	cat "$work/summary" "$work/record.log" | sed 's/^/# /'
	gzip -9 <"$work/t.pftrace" | base64 -w 200 | sed 's/^/#SAMPLE /'
fi
finish
