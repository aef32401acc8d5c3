#!/bin/bash
# Measures ublkd and its rivals in one run in the test guest, in instructions per I/O of the whole
# machine. docs/performance.md describes the numbers.
#
#   ./dev bench [OPTION...]
#   ./dev bench --host [OPTION...]    compare the NBD client's CPU time with libnbd's, without a guest
#   ./dev bench --metal [OPTION...]   measure on this machine's own kernel and clock: --metal --help
#   ./dev bench --scale [OPTION...]   many devices, children, filters, connections: --scale --help
#   ./dev bench --own [OPTION...]     the daemon's own instructions per I/O, by function: --own --help
#
#   --quick          4k at queue depth 1 and 32, null, file and stripe: a few minutes
#   --only PATTERN   cells that match an extended regular expression, as --list prints them:
#                    --only '^ublkd-(null|file) auto .* 4k '
#   --list           print the cells, do not measure
#   --json           the result as JSON on stdout instead of the table
#   --commit         after a whole run: copy it to bench/results/VERSION.csv and the table to the docs
#   --seconds N      guest time per cell (1; --quick: 0.5)
#   --threads        print for each cell, too, which threads used the instructions
#   --client-cpu N   give the guest two CPUs, fio the N-th of them (0 or 1) and the reactor of ublkd the first;
#                    the clock counts what both execute. The result is not compared with the committed one
#   --jobs N         distribute the cells over N guests that run at the same time (1); this does not
#                    affect the instruction clock
#   --rows FILE      report the rows of an earlier run (build/bench/result.csv) instead of measuring
#   -k SERIES        guest kernel (7.2)
#
# Exit: 0; 1 when a cell of ublkd grew by more than 2% over the committed result of the same kernel
# version, or could no longer be measured; other codes when the run failed.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(dirname "$here")
out=$top/build/bench
results=${UBLKD_BENCH_RESULTS:-$here/results}
doc=${UBLKD_BENCH_DOC:-$top/docs/performance.md}

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$here/bench.sh"; }

# --- options --------------------------------------------------------------------------------------

parse_options() {
	series=7.2 set=all pattern='' list='' format=table commit='' threads='' ms='' jobs=1 given='' client_cpu=''
	while [ $# -gt 0 ]; do
		case $1 in
		--quick) set=quick ;;
		--list) list=1 ;;
		--json) format=json ;;
		--commit) commit=1 ;;
		--threads) threads=1 ;;
		-h | --help) usage && exit 0 ;;
		--only | --seconds | --jobs | --rows | --client-cpu | -k)
			[ $# -ge 2 ] || die "$1 needs a value"
			take_value "$1" "$2"
			shift
			;;
		*) usage >&2 && die "unknown option: $1" ;;
		esac
		shift
	done
	if [ -z "$ms" ]; then if [ $set = quick ]; then ms=500; else ms=1000; fi; fi
	if [ -n "$commit" ] && [ "$set$pattern$client_cpu" != all ]; then
		die "--commit needs a whole run, without --quick, --only and --client-cpu"
	fi
}

take_value() {
	case $1 in
	--only) pattern=$2 ;;
	--seconds)
		[[ $2 =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--seconds needs a number, not '$2'"
		ms=$(awk -v s="$2" 'BEGIN { printf "%d", s * 1000 }')
		[ "$ms" -ge 100 ] || die "--seconds: must be at least 0.1 for a repeatable result"
		;;
	--jobs)
		[[ $2 =~ ^[1-9]$ ]] || die "--jobs needs a number from 1 to 9, not '$2'"
		jobs=$2
		;;
	--client-cpu)
		[[ $2 =~ ^[01]$ ]] || die "--client-cpu needs 0 or 1, not '$2'"
		client_cpu=$2
		;;
	--rows)
		[ -r "$2" ] || die "--rows: cannot read $2"
		given=$2
		;;
	-k) series=$2 ;;
	esac
}

# --- the plan: a line per cell ---------------------------------------------------------------------

cells_of() { # SYSTEM MODE
	local rw size
	for rw in randread randwrite; do
		if [ $set = quick ]; then
			for size in "4k 1" "4k 32"; do echo "$1 $2 $rw $size"; done
		elif [[ $1 == nbd-floor-* ]]; then
			for size in "4k 1" "4k 32" "4k 128"; do echo "$1 $2 $rw $size"; done
		elif [[ $1 == nbdkit-curl || $1 == ublkd-http || $1 == ublkd-shared || $1 == *-fragmented ]]; then
			# only read
			if [ $rw = randwrite ]; then continue; fi
			for size in "4k 1" "4k 32" "4k 128" "64k 8" "1M 8"; do echo "$1 $2 $rw $size"; done
		elif [[ $1 == nbdkit-curl-cache || $1 == ublkd-http-cache ]]; then
			# from one end to the other while the cache is empty; what it has
			if [ $rw = randwrite ]; then continue; fi
			echo "$1 $2 read 64k 8"
			echo "$1 $2 read 1M 8"
			echo "$1 $2 randread 4k 1"
			echo "$1 $2 randread 4k 32"
		elif [[ $1 == *-qcow2* ]]; then
			# the overlay is only read, the empty image only written
			if [[ $1$rw == *-backingrandwrite || $1$rw == *-allocrandread ]]; then continue; fi
			for size in "4k 1" "4k 32" "4k 128"; do echo "$1 $2 $rw $size"; done
		elif [[ $1 == rbd-* || $1 == ublkd-rbd ]]; then
			for size in "4k 1" "4k 32"; do echo "$1 $2 $rw $size"; done
		elif [[ $1 == nvme-tcp* || $1 == ublkd-nvme* ]]; then
			for size in "4k 1" "4k 32" "4k 128"; do echo "$1 $2 $rw $size"; done
			if [[ $1 == *-digest ]]; then continue; fi
			for size in "64k 1" "64k 32" "64k 128"; do echo "$1 $2 $rw $size"; done
		elif [[ $1 == *-shmem* || $1 == *-tmpfs || $1 == *-huge ]]; then
			for size in "4k 1" "4k 32" "64k 8" "1M 8"; do echo "$1 $2 $rw $size"; done
		else
			for size in "4k 1" "4k 32" "4k 128" "64k 8" "1M 8"; do echo "$1 $2 $rw $size"; done
			# a chunk each, of one disk at a time and of all at once
			if [[ $1 == *-stripe ]]; then
				for size in "64k 1" "64k 32"; do echo "$1 $2 $rw $size"; done
			fi
		fi
	done
}

kublk_modes="copy user_copy zero_copy auto_zc copy+batch user_copy+batch auto_zc+batch"
ublkd_modes="auto copy user_copy zero_copy copy+batch user_copy+batch zero_copy+batch"

modes_of() { # SYSTEM
	case $1 in
	null_blk | file | loop) echo default ;;
	kublk-*) echo "$kublk_modes" ;;
	*-shmem* | *-tmpfs | *-huge | ublkd-shared | ublkd-nbd-* | ublkd-nvme* | ublkd-rbd | ublkd-http* | ublkd-qcow2*) echo auto ;;
	qemu-nbd-* | qsd-*) echo io_uring ;; # Linux AIO costs up to 12% more
	nbd-ko-* | nbd-floor-* | nvme-tcp* | rbd-* | nbdkit-curl*) echo default ;;
	ublkd-mem*) echo auto copy user_copy copy+batch user_copy+batch ;;
	ublkd-*) echo "$ublkd_modes" ;;
	esac
}

quick_modes_of() { # SYSTEM: the default of ublkd, and a mode of kublk that is good in all cells
	case $1 in
	loop) echo default ;;
	kublk-null) echo user_copy ;;
	kublk-loop | kublk-stripe) echo auto_zc+batch ;;
	ublkd-null | ublkd-file | ublkd-stripe) echo auto ;;
	esac
}

plan() {
	local system mode modes
	for system in null_blk kublk-null ublkd-null file loop kublk-loop ublkd-file kublk-stripe \
		ublkd-stripe ublkd-shared ublkd-mem ublkd-mem-fragmented \
		ublkd-{null,mem,file}-shmem ublkd-{mem,file}-shmem-huge ublkd-nbd-unix-shmem \
		ublkd-{mem,file,nbd-unix}-tmpfs ublkd-{null,mem,file}-huge \
		nbd-floor-unix nbd-ko-unix ublkd-nbd-unix nbd-floor-tcp nbd-ko-tcp ublkd-nbd-tcp \
		nvme-tcp ublkd-nvme nvme-tcp-digest ublkd-nvme-digest \
		rbd-kernel rbd-nbd rbd-fio ublkd-rbd nbdkit-curl ublkd-http nbdkit-curl-cache ublkd-http-cache \
		{qemu-nbd,qsd-vduse,qsd-fuse,ublkd}-qcow2{,-alloc,-backing}; do
		modes=$(modes_of $system)
		if [ $set = quick ]; then modes=$(quick_modes_of $system); fi
		for mode in $modes; do cells_of $system "$mode"; done
	done | grep -E -- "${pattern:-.}" || die "no cell matches '$pattern': see --list"
}

# --- the run --------------------------------------------------------------------------------------

# Distributes the plan over the guests. All cells of a system in one mode go to one guest.
deal() {
	rm -f "$top"/build/out/bench-{plan,rows}.[0-9]* "$top/build/out/bench-kernel"
	plan >"$out/plan"
	awk -v jobs="$jobs" -v prefix="$top/build/out/bench-plan." \
		'{ k = $1 " " $2; if (!(k in job)) job[k] = n++ % jobs; print >(prefix job[k]) }' "$out/plan"
}

# A guest second takes 3 to 10 seconds of real time; the limit is five times that.
limit_of() { # PLAN
	echo $((300 + $(wc -l <"$1") * (ms + 1000) * 50 / 1000))
}

one_guest() { # JOB
	local job_plan=$top/build/out/bench-plan.$1
	UBLKD_BENCH_MS=$ms UBLKD_BENCH_KUBLK=$out/kublk UBLKD_BENCH_FLOOR=$out/floor \
		UBLKD_BENCH_THREADS=$threads UBLKD_BENCH_CLIENT_CPU=$client_cpu \
		UBLKD_VM_ENV='UBLKD_BENCH_MS UBLKD_BENCH_KUBLK UBLKD_BENCH_FLOOR UBLKD_BENCH_THREADS UBLKD_BENCH_CLIENT_CPU' \
		UBLKD_VM_DMESG=$out/dmesg.$1 \
		"$top/test/vm/vm.sh" -k "$series" -i ${client_cpu:+-c 2} -t "$(limit_of "$job_plan")" -- "$here/guest.sh" "$1" >&2
}

run_guests() {
	local job pids=() failed=0
	for ((job = 0; job < jobs; job++)); do
		if [ -s "$top/build/out/bench-plan.$job" ]; then one_guest $job & pids+=($!); fi
	done
	for job in "${pids[@]}"; do wait "$job" || failed=$?; done
	[ $failed = 0 ] || die "the guest failed with code $failed; build/out/bench-rows.* has the rows that it measured"
}

first_line() { "$@" 2>/dev/null | head -n 1; }

# The conditions of the measurement.
header() {
	local release
	release=$(cat "$top/build/out/bench-kernel")
	echo "# kernel ${release%%[^0-9.]*} ($release)"
	echo "# fio $(first_line fio --version)"
	echo "# compiler $(first_line cc --version)"
	echo "# ublkd $(git -C "$top" describe --always --dirty 2>/dev/null || "$top/build/release/bin/ublkd" --version)"
	echo "# rivals $(cat "$out/kublk.version")"
	echo "# seconds $((ms / 1000)).$((ms % 1000 / 100))"
	echo "# cells $set${pattern:+ only $pattern}${client_cpu:+, two CPUs, the client on $client_cpu}"
	echo "system,mode,rw,bs,qd,instructions_per_io,ios,runtime_ms,note"
}

# The rows of all guests, in the plan's order.
collect() {
	header
	awk -F'[ ,]' 'NR == FNR { line[$1,$2,$3,$4,$5] = $0; next }
		($1,$2,$3,$4,$5) in line { print line[$1,$2,$3,$4,$5] }' \
		<(cat "$top"/build/out/bench-rows.*) "$out/plan"
}

run() {
	local kublk
	kublk=$("$here/kublk.sh") || die "kublk cannot be built, so there is nothing to compare with"
	cp "$kublk" "$out/kublk"
	cmake --build "$top/build/release" --target floor_client >"$out/build.log" 2>&1 ||
		die "the clients of bench/nbd do not build: $out/build.log"
	cp "$top/build/release/bench/floor_client" "$out/floor"
	cat "$(dirname "$kublk")/source/package" >"$out/kublk.version"
	mkdir -p "$top/build/out"
	if plan | grep -qE '^(ublkd-http|nbdkit-curl)'; then "$top/test/vm/nginx.sh" >&2; fi
	if plan | grep -qE '^(ublkd-)?rbd'; then "$top/test/ceph/cluster.sh" prebuild --store memstore >&2 || true; fi
	deal
	say "$(wc -l <"$out/plan") cells"
	run_guests
	collect >"$out/result.csv"
}

main() {
	local result report=$here/report.py
	parse_options "$@"
	if [ -n "$list" ]; then plan && exit; fi
	mkdir -p "$out"
	result=$out/result.csv
	if [ -n "$given" ]; then
		if [ ! "$given" -ef "$result" ]; then cp "$given" "$result"; fi
	else
		run
	fi
	python3 "$report" make "$result" "$out"
	if [ $format = json ]; then cat "$out/result.json"; else cat "$out/table.md"; fi
	say "build/bench has result.csv, result.json, table.md and plot.svg"
	if [ -n "$commit" ]; then
		python3 "$report" commit "$result" "$results" "$doc"
	elif [ -z "$client_cpu" ]; then
		python3 "$report" compare "$result" "$results"
	fi
}

main "$@"
