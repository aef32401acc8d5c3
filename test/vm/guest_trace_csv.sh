#!/bin/bash
# In the guest: checks every column of every row of `ublktrace record`, for a program that knows all
# of its io_uring work, and for the daemon and fio on its device, whose commands have matching names
# and numbers; and checks the tables of names against this kernel's BTF. Needs vm.sh -i or -s, like
# every test that patches the kernel's code.
# By turns: 7.2 -i
# With --all: 6.12 -s -n
# When these change: ublktrace tracefile test/trace
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

top=$(readlink -f "$here/../..")
build=$(dirname "$(dirname "$(readlink -f "$(command -v ublktrace)")")")
if [ ! -x "$build/bin/ublktrace" ]; then
	skip "rows of CSV" "ublktrace was not built"
	finish
fi

# take_over COMMAND...: its TAP becomes ours.
take_over() {
	local line code=0
	"$@" >"$work/tap" 2>&1 || code=$?
	while read -r line; do
		case $line in
		"ok "* | "not ok "*)
			n=$((n + 1))
			case $line in "not "*) bad=$((bad + 1)) ;; esac
			echo "${line%%ok *}ok $n - ${line#*- }"
			;;
		1..*) ;;
		*) echo "# ${line#\# }" ;;
		esac
	done <"$work/tap"
	if [ $code != 0 ] && ! grep -q '^not ok' "$work/tap"; then ok "$1 ends well" false; fi
}

names_fit() { CMOCKA_MESSAGE_OUTPUT=TAP "$build/test/test_trace_btf"; }
names_not_skipped() { ! names_fit | grep -i skip; }

ok "no opcode, block operation or SQE flag of this kernel is without a name" names_fit
ok "... and it has all of them" names_not_skipped
take_over "$top/test/trace/record.sh" "$build"

# ---- the daemon, from its first command to its last

cat >"$work/csv.yaml" <<YAML
daemon: {reactors: [0]}
devices:
  - {name: ram, queues: 1, depth: 16, batch: off, backend: {type: mem, size: 64MiB}}
YAML
csv=$work/daemon.csv

daemon_starts() {
	ublktrace record -o "$csv" -c ublkd --config "$work/csv.yaml" 2>"$work/ublkd.log" &
	trace_pid=$!
	wait_for 60 serves
}
serves() { ublkctl list 2>/dev/null | grep -q ' live '; }
load() {
	fio --name=load --filename="$(node ram)" --ioengine=io_uring --direct=1 --bs=4k --size=64M --rw=randwrite \
		--number_ios=100 --iodepth=4 --minimal >"$work/fio.log" 2>&1 || { cat "$work/fio.log"; return 1; }
}
daemon_ends() {
	end_server && wait "$trace_pid" || return
	grep '^lost: 0 ring buffer full, 0 map full, [0-9]* missed' "$work/ublkd.log"
}
whole() { grep -q '^lost: 0 ring buffer full, 0 map full, 0 missed' "$work/ublkd.log"; }
# A kernel that preempts BPF programs skips a run now and then; the trace says so itself, and only one that
# says it is whole can be held against the truth.
recorded() {
	for _ in 1 2 3 4 5; do
		daemon_starts && load && daemon_ends || return
		if whole; then return; fi
		echo "not whole: $(grep '^lost' "$work/ublkd.log")"
	done
	return 1
}

# rows KIND OPCODE [RESULT]: how many, of those with that result. No name of a thread has a comma here.
rows() {
	awk -F, -v kind="$1" -v opcode="$2" -v res="${3:-}" \
		'$3 == kind && $15 == opcode && (res == "" || $23 == res)' "$csv" | wc -l
}
is() { echo "wanted $1, got $2"; [ "$1" = "$2" ]; }
# in_order KIND: the control commands of the start
in_order() {
	is "UBLK_CMD_ADD_DEV UBLK_CMD_SET_PARAMS UBLK_CMD_START_DEV" "$(awk -F, -v kind="$1" \
		'$3 == kind && $15 ~ /^UBLK_CMD_(ADD_DEV|SET_PARAMS|START_DEV)$/ { print $15 }' "$csv" | xargs)"
}
worked_on() { [ "$(rows WORKER "$1")" -ge 1 ] && awk -F, -v o="$1" '$3 == "WORKER" && $15 == o && $6 !~ /^iou-wrk-/ { bad = 1 } END { exit bad }' "$csv"; }
# Every command has a name, of the device it was for.
named() { ! awk -F, 'NR > 1 && $15 ~ /^(URING_CMD.*|[0-9]+)$/' "$csv" | grep .; }
# All commands are answered: those of I/O at the latest when the device stops, with ENODEV.
all_answered() {
	local command=UBLK_IO_COMMIT_AND_FETCH_REQ commits
	commits=$(rows SUBMIT $command)
	is $((commits + 16)) $(($(rows COMPLETE $command) + $(rows COMPLETE UBLK_IO_FETCH_REQ))) && [ "$commits" -ge 100 ] &&
		is 16 $(($(rows COMPLETE $command -19) + $(rows COMPLETE UBLK_IO_FETCH_REQ -19)))
}
# A COMPLETE has the request and the descriptor of its SUBMIT.
pairs_fit() {
	awk -F, '$15 !~ /^UBLK_/ { next }
		$3 == "SUBMIT" { of[$13] = $14 "," $15 "," $16 "," $26; submits++ }
		$3 == "COMPLETE" {
			if (of[$13] != $14 "," $15 "," $16 "," $26 || $27 - $26 != $28) { print; bad = 1 }
			delete of[$13]
		}
		END { exit bad || submits < 116 }' "$csv"
}

ok "ublktrace starts the daemon, which serves 100 writes and ends; nothing was lost" recorded
ok "the control commands, in their order" in_order SUBMIT
ok "... and so they were done" in_order COMPLETE
ok "ADD_DEV ran in a thread of io-wq" worked_on UBLK_CMD_ADD_DEV
ok "START_DEV too" worked_on UBLK_CMD_START_DEV
ok "each tag was fetched once" is 16 "$(rows SUBMIT UBLK_IO_FETCH_REQ)"
ok "each command of I/O was answered once" all_answered
ok "each answer is that of its request" pairs_fit
ok "no command without its name" named
daemon_pid=
finish
