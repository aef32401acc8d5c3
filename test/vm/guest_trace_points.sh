#!/bin/bash
# In the guest: the output of ublktrace probes, selftest and control must agree with the known
# properties of this kernel, and everything missing must have a reason. Needs vm.sh -s or -i, like
# every test that patches the kernel's code.
# By turns: 6.12 -s -n
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

if ! command -v ublktrace >/dev/null; then
	skip "ublktrace" "it is not built here"
	finish
fi
bad_server=$(dirname "$(readlink -f "$(command -v ublktrace)")")/../test/bad_server
kernel=$(uname -r | cut -d. -f1)

cat >"$work/one.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: one, queues: 1, depth: 16, backend: {type: mem, size: 16MiB}}
YAML
cat >"$work/two.yaml" <<YAML
devices:
  - {name: two, id: 7, queues: 1, depth: 16, backend: {type: mem, size: 16MiB}}
YAML

without_rights() {
	setpriv --bounding-set -bpf,-perfmon,-sys_admin --inh-caps -bpf,-perfmon,-sys_admin "$@"
}

# ---- probes

probes() { ublktrace probes --json >"$work/probes.json" || { cat "$work/probes.json"; return 1; }; }

# point NAME STATE BY FOUND: a "-" is nothing
point() {
	local row
	row=$(jq -r --arg p "$1" '.points[] | select(.point == $p) |
		"\(.state) \(.how // "-") \(.found // "-")"' "$work/probes.json")
	[ "$row" = "$2 $3 $4" ] || { echo "$1 is: $row"; return 1; }
}

ok "probes: all that a trace needs is there" probes
for name in io_uring_submit_req io_uring_complete io_uring_queue_async_work sched_switch sys_enter \
	block_rq_issue block_rq_complete nvme_setup_cmd; do
	ok "... $name" point $name attached tp_btf $name
done
for name in ublk_ctrl_uring_cmd ublk_queue_rq ublk_ch_uring_cmd io_wq_submit_work nvme_queue_rq; do
	ok "... $name" point $name attached fentry $name
done
ok "... SET_PARAMS is inlined" point ublk_ctrl_set_params inlined - -
ok "... START_DEV has a suffix, a kprobe finds it" \
	point ublk_ctrl_start_dev suffixed kprobe ublk_ctrl_start_dev.isra.0
ok "... an inline function is not traceable" point __ublk_complete_rq "not traceable" - __ublk_complete_rq
ok "... nvme_write_sq_db is inlined" point nvme_write_sq_db inlined - -
ok "... blk_mq_commit_rqs has a suffix" \
	point blk_mq_commit_rqs suffixed kprobe blk_mq_commit_rqs.constprop.0
ok "... submit_bio there is not" point ublk_submit_bio absent - -
if [ "$kernel" -ge 7 ]; then
	ok "... ADD_DEV" point ublk_ctrl_add_dev attached fentry ublk_ctrl_add_dev
	ok "... dispatch" point ublk_dispatch_req attached fentry ublk_dispatch_req
	ok "... a list of requests" point ublk_queue_rqs attached fentry ublk_queue_rqs
	ok "... dispatch of old kernels is absent" point ublk_rq_task_work_cb absent - -
else
	ok "... ADD_DEV is inlined" point ublk_ctrl_add_dev inlined - -
	ok "... dispatch" point ublk_rq_task_work_cb attached fentry ublk_rq_task_work_cb
	ok "... dispatch of new kernels is absent" point ublk_dispatch_req absent - -
	ok "... no lists of requests" point ublk_queue_rqs absent - -
fi
if grep -qa io__commit "$(command -v ublkd)"; then
	ok "... a probe of ublkd" said "^attached +usdt +io__commit " ublktrace probes
else
	skip "... a probe of ublkd" "it was built without sys/sdt.h"
fi
no_rights_probes() { [ "$(without_rights ublktrace probes | grep -c '^no right ')" -gt 30 ]; }
ok "probes: without rights it says so" no_rights_probes
# Its own tries must not be what fills the log.
ok "probes: nothing in the kernel's log" eval '! dmesg | grep trace_kprobe'

# ---- selftest

# layer POINT RESULT: of the last selftest
selftest() { ublktrace selftest --json >"$work/selftest.json"; }
layer() {
	jq -e --arg p "$1" --arg r "$2" '.layers[] | select(.point == $p) | .result == $r' \
		"$work/selftest.json" >/dev/null || { cat "$work/selftest.json"; return 1; }
}
all_seen() {
	selftest && jq -e '[.layers[].result] | length == 11 and all(. == "seen")' \
		"$work/selftest.json" || { cat "$work/selftest.json"; return 1; }
}

ok "selftest: without a device" selftest
ok "... the driver is seen" layer ublk_ctrl_uring_cmd seen
ok "... I/O is skipped" layer ublk_queue_rq skipped
ok "... with the reason" said "no /dev/ublkb" ublktrace selftest
serves() { start_daemon "$work/one.yaml" && [ -b /dev/ublkb0 ]; }
ok "the daemon serves" serves
ok "selftest: every layer is seen" all_seen
refused_rights() {
	local code=0
	without_rights ublktrace "$1" >"$work/said" 2>&1 || code=$?
	cat "$work/said"
	[ $code = 1 ] && [ "$(wc -l <"$work/said")" = 1 ] && grep -q "missing: CAP_BPF and CAP_PERFMON" "$work/said"
}
ok "selftest: without rights one line with the cure" refused_rights selftest
ok "control: the same" refused_rights control

# A device whose server does not answer: the read gets as far as the server.
stopped_server() {
	local code=0
	kill -STOP "$daemon_pid"
	ublktrace selftest --json >"$work/selftest.json" || code=$?
	kill -CONT "$daemon_pid"
	[ $code = 1 ] && layer ublk_queue_rq seen && layer block_rq_issue seen &&
		layer block_rq_complete MISSING && grep -q "does not answer" "$work/selftest.json"
}
ok "selftest: a server that sleeps is told, and where the read is" stopped_server
ok "... and all is well again" all_seen
ok "selftest: another file is no device" said "ENOTBLK" ublktrace selftest --device /dev/null

# ---- control

control() {
	ublktrace control "$@" >"$work/control" 2>"$work/control.err" &
	control_pid=$!
	wait_for 60 grep -q "^tracing" "$work/control.err" || { cat "$work/control.err"; return 1; }
}
control_end() {
	kill "$control_pid" && wait "$control_pid" && cat "$work/control.err" &&
		grep -q "^lost: 0 ring buffer full, 0 map full, 0 missed by recursion, 0 unmatched" "$work/control.err"
}
# command NAME DEVICE RESULT: one of the lines, in JSON
command_seen() {
	jq -es --arg c "UBLK_CMD_$1" --argjson d "$2" --argjson r "$3" '
		map(select(.command == $c and .device == $d and .result == $r and .took_ns > 0 and
			.process == "ublkd" and .worker > 0)) | length == 1' "$work/control" >/dev/null ||
		{ cat "$work/control"; return 1; }
}
in_order() {
	[ "$(jq -rs 'map(select(.device == 7) | .command | select(test("ADD|SET_P|START|STOP|DEL"))) | join(" ")' \
		"$work/control")" = "UBLK_CMD_ADD_DEV UBLK_CMD_SET_PARAMS UBLK_CMD_START_DEV UBLK_CMD_$stop UBLK_CMD_DEL_DEV" ] ||
		{ cat "$work/control"; return 1; }
}
add_del() { ublkctl add -f "$work/two.yaml" && ublkctl del two; }

# What the daemon stops an unused device with.
stop=STOP_DEV
if driver_has SAFE_STOP_DEV; then stop=TRY_STOP_DEV; fi

ok "control starts" control --json
ok "a device comes and goes" add_del
ok "control loses nothing" control_end
for name in ADD_DEV SET_PARAMS START_DEV $stop DEL_DEV; do
	ok "... $name" command_seen $name 7 0
done
ok "... in this order" in_order

# As text, of one process; GET_FEATURES of another one is not there.
text_of_one() {
	control -p "$daemon_pid" && add_del && selftest && control_end || return
	cat "$work/control"
	grep -qE "^[0-9:.]{15} ublkd/$daemon_pid +UBLK_CMD_ADD_DEV +new dev 7 +iou-wrk [0-9]+ = 0, [0-9.]+ ms$" \
		"$work/control" && ! grep -q ublktrace "$work/control"
}
ok "control -p: in words" text_of_one

# GET_FEATURES comes in-line first; 6.12 refuses that, 7.2 answers it there.
inline_first() {
	control && selftest && control_end || return
	cat "$work/control"
	if [ "$kernel" -ge 7 ]; then
		grep -qE "UBLK_CMD_GET_FEATURES +- +in-line = 0" "$work/control"
	else
		grep -qE "UBLK_CMD_GET_FEATURES +- +iou-wrk [0-9]+, EAGAIN in-line = 0" "$work/control"
	fi
}
ok "control: in-line, or in an io-wq thread" inline_first

# A failure in words.
add_twice() {
	sed 's/name: two, id: 7/name: three, id: 0/' "$work/two.yaml" >"$work/three.yaml"
	control && { ublkctl add -f "$work/three.yaml"; control_end; } || return
	cat "$work/control"
	grep -qE "UBLK_CMD_ADD_DEV .* = EEXIST, [0-9.]+ ms: a device with this id exists" "$work/control"
}
ok "control: a failure, and what it means" add_twice
ok "control --duration ends" timeout 60 ublktrace control --duration 0.5

# The hang: FETCH_REQ fails, START_DEV waits for ever, nobody says why.
hang() {
	local id
	control || return
	"$bad_server" 5 >"$work/id" || return
	read -r id <"$work/id"
	"$bad_server" del "$id" && control_end || return
	cat "$work/control"
	grep -qE "bad_server/[0-9]+ +UBLK_IO_FETCH_REQ +ublkc$id queue 0 tag 0 .* = EINVAL, .*buffer address.*and 3 more like it" \
		"$work/control" &&
		grep -qE "UBLK_CMD_START_DEV +dev $id +.* iou-wrk [0-9]+, EAGAIN in-line has not completed after [0-9.]+ s: .*FETCH_REQ" "$work/control" &&
		grep -qE "UBLK_CMD_START_DEV +dev $id +.* = EINTR" "$work/control" &&
		grep -qE "UBLK_CMD_DEL_DEV +dev $id +.* = 0" "$work/control"
}
if [ -x "$bad_server" ]; then
	ok "control: a server whose FETCH_REQs fail, and its hanging START_DEV" hang
else
	skip "control: a server whose FETCH_REQs fail" "bad_server is not built"
fi

# ---- without the driver

ok "the daemon ends" stop_daemon
ok "the driver goes" wait_for 20 rmmod ublk_drv
ok "probes: the module is not loaded" eval 'probes; point ublk_queue_rq "no module" - -'
ok "... with the cure" said "modprobe ublk_drv" ublktrace probes
ok "selftest: the same" said "GET_FEATURES.*modprobe ublk_drv" ublktrace selftest
ok "... the rest is well" selftest
ok "the driver is back" modprobe ublk_drv
finish
