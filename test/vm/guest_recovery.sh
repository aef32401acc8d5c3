#!/bin/bash
# In the guest: the daemon is killed again and again, at random moments, while two devices are under
# load whose content is checked: no error, no mismatch, only a pause; nothing is left at the end.
# $UBLKD_KILLS: how often. $UBLKD_SEED repeats a run's moments.
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

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

nobody_new() { [ "$(find /dev -name 'ublkb*' | wc -l)" = 2 ]; }

ok "two devices start" start_daemon "$work/two.yaml"
before=$(stat -c %i /dev/ublkb* | xargs)
ok "they are both there" nobody_new
load memory
load file
ok "killed $kills times, it serves again" kill_again_and_again
ok "no write was lost, no request failed" loads_well
ok "both were busy" were_busy
ok "they are the same devices" test "$(stat -c %i /dev/ublkb* | xargs)" = "$before"
ok "and no others" nobody_new
ok "no request is stuck" test "$(ublkctl --json inflight | jq '[.. | objects | select(has("tag"))] | length')" = 0
ok "it ends" stop_daemon
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
finish
