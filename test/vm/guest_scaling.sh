#!/bin/bash
# In the guest: two reactors share the work of one device. The fast form counts the I/Os of each
# reactor. With UBLKD_SOAK=1 it also measures the gain from the second reactor, which needs a machine
# with two free CPUs: docs/performance.md explains the expected gain.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

if [ "$(nproc)" != 2 ]; then
	skip "two reactors" "needs exactly 2 CPUs"
	finish
fi

# serve REACTORS [DAEMON OPTIONS]
serve() {
	cat >"$work/scaling.yaml" <<-EOF
		daemon: {reactors: $1${2:+, $2}}
		devices:
		  - {name: disk, id: 7, queues: 2, max_io: 1MiB, backend: {type: mem, size: 128MiB}}
	EOF
	start_daemon "$work/scaling.yaml"
}

# jobs DEVICE CPUS [fio options]: one job on each of these CPUs; its JSON is in $work/fio.json.
jobs() {
	fio --name=job --filename="$1" --cpus_allowed="$2" --cpus_allowed_policy=split \
		--numjobs=$((1 + ${#2} / 2)) --group_reporting --ioengine=io_uring --direct=1 \
		--rw=randread --norandommap --size=64M --iodepth=32 --output-format=json \
		--output="$work/fio.json" "${@:3}" >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}
fill() { dd if=/dev/zero of="$1" bs=1M count=64 oflag=direct status=none; }

# --- who serves -----------------------------------------------------------------------------------

events() { ublkctl --json reactors | jq -c '[.[] | select(.name == "data") | .cqes]'; }
# Each job does as many I/Os as the other, on the queue of its own CPU.
halves() {
	local before after
	before=$(events)
	jobs /dev/ublkb7 0,1 --bs=4k --number_ios=4000 --rw="$1" || return
	after=$(events)
	jq -n --argjson a "$before" --argjson b "$after" '[range(2) | $b[.] - $a[.]]' | tr -d '\n '
	jq -en --argjson a "$before" --argjson b "$after" \
		'[range(2) | $b[.] - $a[.]] | .[0] >= 4000 and .[1] >= 4000 and (add < 8400)'
}
serve '[0, 1]'
ok "reads of two jobs: half to each reactor" halves randread
sed 's/^/# /' "$work/out"
ok "writes of two jobs: half to each reactor" halves randwrite
sed 's/^/# /' "$work/out"
stop_daemon

# A poll must not miss completions that the kernel holds until the next enter.
serve '[0, 1]' 'busy_poll_us: 500'
ok "fio verify while both poll" verify /dev/ublkb7 --size=16M --bs=4k --iodepth=8
hits() { ublkctl --json reactors | jq -c '[.[] | .poll_hits]' && ublkctl --json reactors | jq -e 'any(.[]; .poll_hits > 0)'; }
ok "... and polls had hits" hits
sed 's/^/# /' "$work/out"
stop_daemon

if [ -z "${UBLKD_SOAK:-}" ]; then finish; fi

# --- what a second one brings ---------------------------------------------------------------------

# CPU time of all threads of the daemon in microseconds: that of the reactors, as main sleeps.
daemon_us() {
	[ -n "$daemon_pid" ] || { echo 0 && return; }
	awk '{ sum += $1 } END { printf "%d", sum / 1000 }' /proc/"$daemon_pid"/task/*/schedstat
}

# point NAME BS DEVICE CPUS: appends IOPS, and CPU time of the daemon and of fio in us per I/O. fio
# does as little as it can, so that it leaves the CPUs to the reactors.
point() {
	local before
	before=$(daemon_us)
	jobs "$3" "$4" --bs="$2" --time_based --runtime=2 --fixedbufs=1 --gtod_reduce=1 || return
	jq -r --arg name "$1 $2" --argjson us $(($(daemon_us) - before)) '.jobs[0] |
		[$name, .read.iops, $us / .read.total_ios,
		 (.usr_cpu + .sys_cpu) * 10 * .job_runtime / .read.total_ios] | map(tostring) | join(" ")' \
		"$work/fio.json" >>"$work/points"
}
# The best of the rounds counts, because other work on the machine only slows a round down.
best() { awk -v name="$1" -v bs="$2" '$1 == name && $2 == bs && $3 > best { best = $3; line = $0 } END { print line }' "$work/points"; }

modprobe null_blk nr_devices=1 submit_queues=2 queue_mode=2 irqmode=0 gb=1
for _ in 1 2 3 4; do
	for reactors in 0 0,1; do
		serve "[$reactors]"
		fill /dev/ublkb7
		for bs in 4k 256k; do point "$reactors" $bs /dev/ublkb7 0,1; done
		stop_daemon
	done
	for bs in 4k 256k; do
		point null-1 $bs /dev/nullb0 0
		point null-2 $bs /dev/nullb0 0,1
	done
done
sed 's/^/# /' "$work/points"

# judge BS: prints three numbers: the gain from a second reactor; the expected gain, as fio's jobs need
# the two CPUs, too (two reactors do 2 / (client + server) I/Os; one does 1 / server, or the same if the
# clients are slower); and the machine's gain, of null_blk from a second CPU, where nothing is shared.
judge() {
	echo "$(best 0 "$1") $(best 0,1 "$1") $(best null-1 "$1") $(best null-2 "$1")" | awk '{
		both = 2 / ($4 + $5); alone = 1 / $4 < both ? 1 / $4 : both
		printf "%.2f %.2f %.2f\n", $8 / $3, both / alone, $18 / $13 }'
}
true_that() { awk "BEGIN { exit !($1) }"; }

# On a busy machine a gain below 1.7 proves nothing: the test fails only when the second reactor brings
# no gain although the machine would allow it.
for bs in 4k 256k; do
	read -r gain expected machine < <(judge $bs)
	words="$bs: $gain times; beside the clients one expects $expected; null_blk with a second CPU $machine"
	if true_that "$gain < 1.7 && !($gain < 1.2 && $expected >= 1.7 && $machine >= 1.7)"; then
		skip "a second reactor brings 1.7 times" "$words"
	else
		ok "a second reactor brings 1.7 times: $words" true_that "$gain >= 1.7"
	fi
done
finish
