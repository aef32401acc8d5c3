#!/bin/bash
# Tests the reports of ./dev bench without a guest: tables, comparison and committing on made-up
# numbers, and that a regression makes it fail. Prints TAP.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
tmp=$(mktemp -d /tmp/ublkd-bench.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
report=$top/bench/report.py
. "$top/test/tap.sh"

# run CODE COMMAND...: the exit code must be CODE; output is left in $tmp/out and $tmp/err.
run() {
	local want=$1 code=0
	shift
	"$@" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" = "$want" ] || { echo "exit code $code, not $want: $*"; cat "$tmp/out" "$tmp/err"; return 1; }
}

said() { grep -qF -- "$2" "$tmp/$1" || { echo "\"$2\" is not in $1:"; cat "$tmp/$1"; return 1; }; }
not_said() { ! said "$@" >/dev/null || { echo "\"$2\" is in $1"; return 1; }; }

# result FILE ROW...: a result with these rows; $cells and $version may be set.
result() {
	local file=$1
	shift
	{
		printf '# kernel %s (%s-made-up)\n# fio fio-1\n# compiler cc 1\n# cells %s\n' \
			"${version:-7.2.1}" "${version:-7.2.1}" "${cells:-all}"
		echo system,mode,rw,bs,qd,instructions_per_io,ios,runtime_ms,note
		printf '%s\n' "$@"
	} >"$tmp/$file"
}

# The value of the only cell of ours: one FILE VALUE [NOTE]
one() { result "$1" "ublkd-null,auto,randread,4k,1,$2,1,1,\"${3:-}\""; }

# bench CODE FILE [OPTION...]: the whole command on rows that were not measured.
bench() {
	local code=$1 file=$2
	shift 2
	UBLKD_BENCH_RESULTS=$tmp/results UBLKD_BENCH_DOC=$tmp/doc.md \
		run "$code" "$tree/bench/bench.sh" --rows "$tmp/$file" "$@"
}

compare() { run "$1" python3 "$report" compare "$tmp/$2" "$tmp/results"; }

# A tree of its own: build/bench of this one keeps what it has.
tree=$tmp/tree
mkdir -p "$tree" "$tmp/results"
cp -r "$top/bench" "$tree/bench"
rm -rf "$tree/bench/results"

result whole.csv \
	'null_blk,default,randread,4k,1,8000,1,1,""' \
	'kublk-null,copy,randread,4k,1,25000,1,1,""' \
	'kublk-null,auto_zc,randread,4k,1,24000,1,1,""' \
	'kublk-null,auto_zc+batch,randread,4k,1,-,-,-,"refused: kublk: no, thanks"' \
	'ublkd-null,auto,randread,4k,1,12000,1,1,"uses copy"' \
	'ublkd-null,copy,randread,4k,1,36000,1,1,""' \
	'file,default,randread,4k,1,9000,1,1,""' \
	'loop,default,randread,4k,1,20000,1,1,""' \
	'kublk-loop,copy,randread,4k,1,30000,1,1,""' \
	'ublkd-file,auto,randread,4k,1,20001,1,1,""' \
	'ublkd-file,zero_copy,randread,4k,1,-,-,-,"refused: ublkd: too old"' \
	'ublkd-mem,auto,randread,4k,1,13000,1,1,""' \
	'null_blk,default,randwrite,1M,8,80000,1,1,""'

# --- the table ------------------------------------------------------------------------------------

table() {
	bench 0 whole.csv && said out '| 4k | read QD1 |' && said out '| 1M | write QD8 |' &&
		not_said out '| 64k |'
}
best_rival() {
	said out '| null: kublk, best mode per cell | 24,000 |' &&
		said out '**null: ublkd, auto** | 12,000 (0.50) |' &&
		said out 'null: ublkd, copy | 36,000 (1.50) |' && said out 'mem: ublkd, auto** | 13,000 |' &&
		said out '- kublk-null: auto_zc in 4k read QD1'
}
lost_by_one() { said out 'at or below the best rival in 1 of 2 cells'; }
reasons() {
	said out '- ublkd-file, zero_copy: refused: ublkd: too old' &&
		said out '- kublk-null, auto_zc+batch: refused: kublk: no, thanks'
}
json() {
	bench 0 whole.csv --json &&
		python3 - "$tmp/out" <<-'EOF'
			import json, sys
			r = json.load(open(sys.argv[1]))
			c = {(c["system"], c["mode"]): c for c in r["cells"] if c["bs"] == "4k"}
			assert c["ublkd-null", "auto"]["ratio"] == 0.5
			assert c["ublkd-file", "auto"]["best_rival"] == 20000
			assert c["ublkd-file", "zero_copy"]["instructions_per_io"] is None
			assert (r["auto_at_or_below_best_rival"], r["of"]) == (1, 2)
		EOF
}
plot() {
	local svg=$tree/build/bench/plot.svg
	python3 -c 'import sys, xml.dom.minidom as m; print(m.parse(sys.argv[1]).toxml())' "$svg" >"$tmp/out" &&
		said out '12.0k' && said out '24.0k' && not_said out '36.0k'
}
ok "a table per I/O size, and none for a size without cells" table
ok "the best rival of a cell is the lowest of its modes" best_rival
ok "one instruction above the best rival is lost" lost_by_one
ok "what was refused is listed with its reason" reasons
ok "as JSON" json
ok "the plot is XML with the bars of the best and of auto" plot

# --- comparing: it can fail -----------------------------------------------------------------------

absent() { one new.csv 100; bench 0 new.csv && said err 'no committed result for Linux 7.2.1'; }
grew() {
	one results/7.2.1.csv 10000
	one new.csv 10201
	bench 1 new.csv && said err 'WORSE: ublkd-null auto randread 4k QD1: 10,000 before, now 10,201 (+2.0%)'
}
two_percent() { one new.csv 10200; compare 0 new.csv && not_said err WORSE; }
shrank() { one new.csv 5000; compare 0 new.csv; }
gone() {
	one new.csv - 'refused: no such mode'
	compare 1 new.csv && said err 'now not measured: refused: no such mode'
}
not_asked() { result new.csv 'ublkd-mem,auto,randread,4k,1,99,1,1,""'; compare 0 new.csv && said err 'compared 0 cells'; }
rival_grew() {
	result results/7.2.1.csv 'loop,default,randread,4k,1,100,1,1,""'
	result new.csv 'loop,default,randread,4k,1,200,1,1,""'
	compare 0 new.csv
}
other_version() { version=7.2.2 one new.csv 20000; compare 0 new.csv && said err 'no committed result for Linux 7.2.2'; }
other_fio() {
	one results/7.2.1.csv 100
	one new.csv 100
	sed -i 's/fio-1/fio-2/' "$tmp/new.csv"
	compare 0 new.csv && said err 'made with fio fio-1, this one with fio-2'
}
broke() {
	rm "$tmp/results/7.2.1.csv"
	one new.csv - 'failed: fio: Input/output error'
	compare 1 new.csv && said err 'failed: fio: Input/output error'
}
nonsense() { echo hello >"$tmp/new.csv"; compare 2 new.csv && said err 'columns'; }
ok "no committed result for the version: said, no failure" absent
ok "a cell that grew by more than 2% fails, with its name" grew
ok "2% is no failure" two_percent
ok "less is no failure" shrank
ok "a cell that cannot be measured any more fails, with the reason" gone
ok "a cell that was not asked for does not count" not_asked
ok "a rival may grow" rival_grew
ok "another kernel version is not compared with" other_version
ok "another fio is warned of" other_fio
ok "a cell of ours that broke fails without any committed result" broke
ok "what is no result is an error" nonsense

# --- committing -----------------------------------------------------------------------------------

committed() {
	printf 'before\n<!-- bench 7.2 begin -->\nstale lines\n<!-- bench 7.2 end -->\nafter\n' >"$tmp/doc.md"
	bench 0 whole.csv --commit && cmp "$tmp/whole.csv" "$tmp/results/7.2.1.csv" &&
		cp "$tmp/doc.md" "$tmp/out" && said out before && said out after && not_said out stale &&
		said out '12,000 (0.50)' && said out 'results/7.2.1.svg)' && said out '<!-- bench 7.2 end -->'
}
again() { cp "$tmp/doc.md" "$tmp/once.md"; bench 0 whole.csv --commit && cmp "$tmp/doc.md" "$tmp/once.md"; }
no_place() {
	version=6.12.1 one new.csv 100
	bench 0 new.csv --commit && said err 'no place for Linux 6.12' && [ -e "$tmp/results/6.12.1.csv" ]
}
partial() {
	cells=quick one new.csv 1
	bench 2 new.csv --commit && said err 'only a whole run' && bench 2 whole.csv --commit --quick
}
ok "--commit keeps the result and puts the table into the document" committed
ok "committing twice changes nothing" again
ok "a document without a place for the series is left alone, and that is said" no_place
ok "a part of the cells cannot be committed" partial

# --- the command line -----------------------------------------------------------------------------

list() {
	run 0 "$tree/bench/bench.sh" --list && said out 'ublkd-file zero_copy+batch randwrite 1M 8' &&
		said out 'null_blk default randread 4k 128' && said out 'ublkd-qcow2-alloc auto randwrite 4k 1' &&
		not_said out 'qcow2-alloc auto randread' && not_said out 'qcow2-backing auto randwrite'
}
only() {
	run 0 "$tree/bench/bench.sh" --list --only '^ublkd-null auto .* 4k 1$' &&
		[ "$(wc -l <"$tmp/out")" = 2 ] && run 2 "$tree/bench/bench.sh" --list --only nonsense
}
usage() {
	run 2 "$tree/bench/bench.sh" --nonsense && run 2 "$tree/bench/bench.sh" --only &&
		run 2 "$tree/bench/bench.sh" --seconds x && run 2 "$tree/bench/bench.sh" --rows /nowhere &&
		run 0 "$tree/bench/bench.sh" --help
}
ok "--list names every cell" list
ok "--only picks cells, and none is an error" only
ok "wrong options" usage
echo "1..$n"
exit $bad
