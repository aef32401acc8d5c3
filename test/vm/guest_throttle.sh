#!/bin/bash
# In the guest: filters from a client's view. Rates under each kind of limit within 2%, bursts,
# groups, a change of limits under load, flushes that are not limited, and a request that hangs until
# it is cancelled.
# By turns: 6.12 -i
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ram_disk 100 || exit 1
# NAME OPTIONS [QUEUES]. _max as large as the rate makes the bucket a second's worth: the guest, on a
# busy machine, does not run for longer than the tenth of a second that a bucket has by itself.
throttle() { echo "{name: $1, queues: ${3:-$(nproc)}, backend: {type: throttle, $2, backend: {type: mem, size: 64MiB}}}"; }
cat >"$work/throttle.yaml" <<EOF
daemon: {reactors: $reactors, stop_timeout: 4s}
devices:
  - $(throttle iops "total_iops_sec: 500, total_iops_sec_max: 500")
  - $(throttle apart "read_iops_sec: 300, read_iops_sec_max: 300, write_iops_sec: 100, write_iops_sec_max: 100")
  - $(throttle bytes "total_bytes_sec: 4MiB, total_bytes_sec_max: 4MiB")
  - $(throttle long "total_iops_sec: 400, total_iops_sec_max: 400, size_iops_sec: 4KiB")
  - $(throttle burst "total_iops_sec: 50, total_iops_sec_max: 300, total_iops_sec_max_length: 2" 1)
  - $(throttle small "total_iops_sec: 400, group: g" 1)
  - $(throttle large "group: g")
  - $(throttle live "total_iops_sec: 100, total_iops_sec_max: 100")
  - name: flush
    backend:
      type: throttle
      write_iops_sec: 1
      backend: {type: file, path: /mnt/ram/f, size: 8MiB, create: true}
  - name: hang
    backend: {type: error, op: read, from_sector: 8, to_sector: 16, hang: true, backend: {type: mem, size: 8MiB}}
EOF
start_daemon "$work/throttle.yaml"

# load NAME [fio options]: random reads and writes; the first two seconds, when the bucket gets full,
# are not counted. The result is in $work/NAME.json. fio does not count what is in flight at the end of
# the ramp: a shallow queue keeps that below a percent. For the background: the shell becomes fio.
load() {
	local device=$1
	case $1 in reads | writes) device=apart ;; esac
	device=$(node $device)
	exec fio --name=load --filename="$device" --ioengine=io_uring --direct=1 --rw=randrw --bs=4k --iodepth=4 \
		--time_based --ramp_time=2 --runtime=5 --group_reporting --randrepeat=0 --output-format=json \
		--output="$work/$1.json" "${@:2}" >/dev/null 2>&1
}

# sum NAME KEY: of reads and writes.
sum() { jq ".jobs[0] | .read.$2 + .write.$2" "$work/$1.json"; }

# near WHAT GOT WANTED PERCENT
near() {
	awk -v what="$1" -v got="$2" -v wanted="$3" -v percent="$4" 'BEGIN {
		off = (got - wanted) / wanted * 100
		printf "%s: %.1f, wanted %.1f, off by %.2f%%\n", what, got, wanted, off
		exit !(off <= percent && off >= -percent)
	}' | tee -a "$work/rates"
	return "${PIPESTATUS[0]}"
}

# reads_of NAME...: nanoseconds, then the reads of each done so far, at one moment.
reads_of() {
	ublkctl --json stats | jq -r --args '
		[.time_ns, ($ARGS.positional[] as $n | .devices[] | select(.name == $n) | .ops.read.done)] | @tsv' "$@"
}
# rates SECONDS NAME...: reads per second of each during the next seconds.
rates() {
	{
		reads_of "${@:2}"
		sleep "$1"
		reads_of "${@:2}"
	} | awk '{ if (NR == 2) for (i = 2; i <= NF; i++) print ($i - n[i]) * 1e9 / ($1 - n[1]); split($0, n) }'
}
reads_done() { [ "$(reads_of "$1" | cut -f2)" -ge "$2" ]; }

live_change() {
	local before after
	wait_for 20 reads_done live 200 || return
	before=$(rates 2 live)
	ublkctl throttle live total_iops_sec=300 total_iops_sec_max=300 >"$work/limits"
	sleep 1 # the new bucket is empty: a second's worth goes at once
	after=$(rates 2 live)
	near "before the change" "$before" 100 2 && near "after it" "$after" 300 2 &&
		grep -qE '^total_iops_sec +300$' "$work/limits"
}

# Whatever each has in flight, half of the turns are its own, as long as the limit is what holds them.
groups() {
	local small large
	wait_for 20 reads_done small 100 && wait_for 20 reads_done large 100 || return
	{ read -r small && read -r large; } < <(rates 3 small large)
	near "group: percent of the smaller one" "$(awk -v a="$small" -v b="$large" 'BEGIN { print a / (a + b) * 100 }')" 50 2
}

refused_change() {
	! ublkctl throttle live total_iops_sec_max=7 2>"$work/err" &&
		grep -qF 'total_iops_sec_max: 7 cannot be lower than total_iops_sec: 300' "$work/err" &&
		! ublkctl throttle hang total_iops_sec=7 2>"$work/err" && grep -q 'has no throttle' "$work/err" &&
		ublkctl show live | grep -qE '^backend +throttle > mem$'
}

flushes() { ublkctl --json stats flush | jq '.devices[0].ops.flush.done'; }
flush_passes() {
	local device before start pid
	device=$(node flush)
	before=$(flushes)
	dd if=/dev/zero of="$device" bs=4k count=6 oflag=direct status=none &
	pid=$!
	sleep 0.5
	start=$EPOCHREALTIME
	dd if=/dev/null of="$device" conv=fsync,notrunc status=none || return
	echo "from $start to $EPOCHREALTIME, flushes: $before, then $(flushes)"
	# the writes, five seconds of them, still wait
	kill -0 $pid && [ "$(flushes)" -gt "$before" ] && wait $pid
}

# The rest of the device works; the stop cancels what hangs after half of its time, and tells.
hang_ends() {
	local device pid
	device=$(node hang)
	dd if="$device" of=/dev/null bs=4k count=1 skip=1 iflag=direct 2>/dev/null &
	pid=$!
	dd if="$device" of=/dev/null bs=4k count=8 skip=2 iflag=direct status=none &&
		dd if=/dev/zero of="$device" bs=4k count=4 oflag=direct status=none || return
	kill -0 $pid || return
	ublkctl del hang --force 2>&1 | grep 'took longer' || return
	wait_for 10 [ ! -e "$device" ] && ! wait $pid
}

# All at once: together they are a load that the guest bears.
loads=()
for what in "iops --numjobs=2" "reads --rw=randread" "writes --rw=randwrite" "bytes --bs=16k" "long --bs=16k" \
	"burst --ramp_time=0"; do
	# shellcheck disable=SC2086
	load $what &
	loads+=($!)
done
wait "${loads[@]}"
ok "total_iops_sec" near "total_iops_sec" "$(sum iops iops)" 500 2
ok "read_iops_sec" near "read_iops_sec" "$(sum reads iops)" 300 2
ok "write_iops_sec" near "write_iops_sec" "$(sum writes iops)" 100 2
ok "total_bytes_sec" near "total_bytes_sec" "$(sum bytes bw_bytes)" $((4 << 20)) 2
ok "size_iops_sec: long requests count as several" near "size_iops_sec" "$(sum long iops)" 100 2
# 600 fill the bucket, and it leaks 50 a second.
ok "bursts" near "bursts" "$(sum burst total_ios)" 850 2

loads=()
for what in small "large --numjobs=2" live; do
	# shellcheck disable=SC2086
	load $what --ramp_time=0 --runtime=60 --iodepth=16 --rw=randread &
	loads+=($!)
done
ok "a group takes turns" groups
ok "limits change while serving" live_change
kill "${loads[@]}"
wait "${loads[@]}"
ok "wrong changes are refused" refused_change
ok "a flush passes writes that wait" flush_passes
ok "a request that hangs ends with the device" hang_ends
sed 's/^/# /' "$work/rates"
finish
