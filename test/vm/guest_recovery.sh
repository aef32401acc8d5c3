#!/bin/bash
# In the guest: the daemon is killed again and again, at random moments, while two devices are under
# load whose content is checked: no error, no mismatch, only a pause; nothing is left at the end.
# $UBLKD_KILLS: how often. $UBLKD_SEED repeats a run's moments.
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

kills=${UBLKD_KILLS:-25}
[ -z "${UBLKD_SOAK:-}" ] || kills=100
RANDOM=${UBLKD_SEED:=$(od -An -N2 -tu2 /dev/urandom | xargs)}
echo "# seed $UBLKD_SEED, $kills kills"

ram_disk 300 || exit 1
cat >"$work/two.yaml" <<EOF2
daemon: {reactors: $reactors}
devices:
  - {name: memory, queues: 2, depth: 32, backend: {type: mem, size: 64M}}
  - {name: file, queues: 2, depth: 32, backend: {type: file, path: /mnt/ram/f, size: 64M, create: true}}
EOF2

# load NAME: writes and checks one device over and over until $work/enough is there. Its verdict is
# in $work/NAME.load.
load() {
	local device
	device=$(node "$1")
	(
		while [ ! -e "$work/enough" ]; do
			fio --name=load --filename="$device" --ioengine=io_uring --direct=1 --rw=randwrite \
				--bs=4k-64k --size=32M --numjobs=2 --offset_increment=32M --iodepth=32 \
				--verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=0 \
				--verify_state_save=0 --minimal >"$work/$1.fio" 2>&1 || exit 1
		done
	) &
	echo $! >"$work/$1.pid"
}

# A pause of its own each time, so that kills fall into start, recovery and load alike.
nap() {
	local ms=$((RANDOM % 1200))
	sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
}

crash() {
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	return 0
}

start_again() {
	ublkd --config "$work/two.yaml" 2>>"$work/ublkd.log" &
	daemon_pid=$!
}

kill_again_and_again() {
	local i
	for ((i = 0; i < kills; i++)); do
		nap
		crash
		start_again
	done
	wait_for 60 settled
}

loads_well() {
	local name pid failed=0
	touch "$work/enough"
	for name in memory file; do
		read -r pid <"$work/$name.pid"
		wait "$pid" || { echo "$name:" && tail -5 "$work/$name.fio" && failed=1; }
	done
	return $failed
}

# Thousands of requests on each, or the kills proved nothing.
were_busy() {
	local node
	for node in $nodes; do
		awk -v node="$node" '{ print node, $1, $5; exit !($1 > 1000 && $5 > 1000) }' "/sys/block/${node#/dev/}/stat" ||
			return 1
	done
}

nobody_new() { [ "$(find /dev -name 'ublkb*' | sort | xargs)" = "$nodes" ]; }

ok "two devices start" start_daemon "$work/two.yaml"
nodes=$(find /dev -name 'ublkb*' | sort | xargs)
before=$(stat -c %i /dev/ublkb* | xargs)
ok "they are both there" test "$(wc -w <<<"$nodes")" = 2
load memory
load file
ok "killed $kills times, it serves again" kill_again_and_again
ok "no write was lost, no request failed" loads_well
ok "both were busy" were_busy
ok "they are the same devices" test "$(stat -c %i /dev/ublkb* | xargs)" = "$before"
ok "and no others" nobody_new
ok "no request is stuck" test "$(ublkctl --json inflight | jq '[.. | objects | select(has("tag"))] | length')" = 0
ok "no keeper is left" eval 'stop_daemon && wait_for 10 eval "! pgrep -x ublkd-keeper"'
ok "no note is left" eval '! find /run/ublkd -name "*.json*" | grep .'
finish
