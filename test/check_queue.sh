# shellcheck shell=bash
# How check.sh runs programs, several at a time, and adds up what they say. Sourced; $logs is a folder for their output,
# $tap_watch the program that build_watch makes.
#
# tap_run and step_run leave what a program has said and how it has ended in $logs; tap_count and step_count add it up.

passed=0 failed=0 skipped=0 failures=()
check_begin=$SECONDS

if [ -t 1 ]; then red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'; else red='' green='' plain=''; fi

# build_watch FILE: what ends a program that hangs
build_watch() { cc -O2 -Wall -Wextra -o "$1" "$(dirname "${BASH_SOURCE[0]}")"/watch/*.c; }

# phase NAME: says what begins, and after how many minutes.
phase() {
	local after=$((SECONDS - check_begin))
	printf -- '---- %3d:%02d  %s\n' $((after / 60)) $((after % 60)) "$*" | tee -a "$logs/phases"
}

# One result that is not a TAP line of its own: result NAME ok|fail [HOW TO REPEAT]
result() {
	if [ "$2" = ok ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		failures+=("$1: $3")
	fi
}

# Counts the TAP lines of a log, and names the failures; how to run it again goes with them.
count_tap() {
	local name=$1 log=$2 again=$3 line
	passed=$((passed + $(grep -cE '^ok [0-9]+' "$log") - $(grep -cE '^ok [0-9]+.*# SKIP' "$log")))
	skipped=$((skipped + $(grep -cE '^ok [0-9]+.*# SKIP' "$log")))
	failed=$((failed + $(grep -cE '^not ok [0-9]+' "$log")))
	while read -r line; do failures+=("$name: $line   again: $again"); done \
		< <(grep -E '^not ok [0-9]+' "$log")
}

# A run must keep its plan: a program that dies half way has not passed.
plan_kept() {
	local planned ran
	planned=$(grep -oE '^1\.\.[0-9]+' "$1" | head -1)
	ran=$(grep -cE '^(not )?ok [0-9]+' "$1")
	[ -n "$planned" ] && [ "${planned#1..}" = "$ran" ]
}

# A case that hung is counted as what failed, and named; its program cannot have kept the plan.
has_hung() { # LOG CODE
	[ "$2" = 124 ] && grep -qE '^not ok [0-9]+ - hung: ' "$1"
}

# ends NAME OUT ERR COMMAND...: runs it; its exit code, its seconds, those of CPU time and when it began go beside its
# log. The file is whole when it is there.
ends() {
	local name=$1 out=$2 err=$3 begin=$SECONDS code=0 user system TIMEFORMAT='%0U %0S'
	shift 3
	rm -f "$out" "$err"
	{ time "$@" >>"$out" 2>>"$err" </dev/null; } 2>"$logs/$name.cpu" || code=$?
	read -r user system < <(tail -n 1 "$logs/$name.cpu")
	rm "$logs/$name.cpu"
	echo "$code $((SECONDS - begin)) $((user + system)) $((begin - check_begin))" >"$logs/$name.ends"
	mv "$logs/$name.ends" "$logs/$name.end"
}

# tap_run NAME SECONDS [-OPTION VALUE]... COMMAND...: runs a TAP program under the limits of $tap_watch
# (test/watch/tap_watch.c): so many seconds in all, those of the options, and what it has for a case that hangs.
tap_run() {
	local name=$1 seconds=$2 options=()
	shift 2
	while [[ $1 == -* ]]; do
		options+=("$1" "$2")
		shift 2
	done
	printf '%s ' "$@" >"$logs/$name.again"
	ends "$name" "$logs/$name.tap" "$logs/$name.err" \
		"$tap_watch" -t "$seconds" -g "$logs/$name.gap" "${options[@]}" -- "$@"
}

# step_run NAME COMMAND...: one result, the exit code of a command that prints nothing when well.
step_run() {
	printf '%s ' "${@:2}" >"$logs/$1.again"
	ends "$1" "$logs/$1.log" "$logs/$1.log" "${@:2}"
}

# Adds up what tap_run left.
tap_count() {
	local name=$1 log=$logs/$1.tap before=$failed code seconds again
	read -r code seconds _ <"$logs/$name.end"
	again=$(cat "$logs/$name.again")
	count_tap "$name" "$log" "$again"
	if has_hung "$log" "$code"; then
		:
	elif ! plan_kept "$log" || { [ "$code" -ne 0 ] && [ "$failed" = "$before" ]; }; then
		failed=$((failed + 1))
		failures+=("$name: ended early or with exit code $code   again: $again")
	fi
	if [ "$failed" = "$before" ]; then
		printf '%sok%s   %-28s %3ds\n' "$green" "$plain" "$name" "$seconds"
	else
		printf '%sFAIL%s %-28s %3ds  (%s)\n' "$red" "$plain" "$name" "$seconds" "$log"
		grep -hE '^(not ok|# )' "$log" | head -40
		tail -n 20 "$logs/$name.err"
	fi
}

# Adds up what step_run left.
step_count() {
	local name=$1 code seconds
	read -r code seconds _ <"$logs/$name.end"
	if [ "$code" = 0 ]; then
		result "$name" ok
		printf '%sok%s   %-28s %3ds\n' "$green" "$plain" "$name" "$seconds"
	else
		result "$name" fail "again: $(cat "$logs/$name.again")"
		printf '%sFAIL%s %-28s %3ds\n' "$red" "$plain" "$name" "$seconds"
		tail -n 40 "$logs/$name.log"
	fi
}

tap() { tap_run "$@" && tap_count "$1"; }
step() { step_run "$@" && step_count "$1"; }

# ---- several at a time ----

# What has begun or will, by its name: words of a function that runs it, of which the second is the name.
declare -A waiting=() running=()
order=()
# How many of a lane run at once: guests have two CPUs each, tests on this machine may share a port, what computes has
# a CPU, and what is niced runs in what the others leave of the CPUs.
declare -A limit=([guest]=2 [host]=1 [compute]=1 [nice]=1)

# later LANE RUN NAME [ARGUMENT...]: when its turn in this lane comes. RUN is a function that calls tap_run.
later() {
	waiting[$3]=$*
	order+=("$3")
}

# beside RUN NAME [ARGUMENT...]: now, and counted by run_later. For what mostly waits.
beside() {
	"$@" &
	running[$!]="beside $2"
}

# What has ended is added up.
count_ended() { # PID
	local name=${running[$1]#* }
	unset "running[$1]"
	if [ ! -e "$logs/$name.end" ]; then
		result "$name" fail "has not run to its end"
	elif [ -e "$logs/$name.tap" ]; then
		tap_count "$name"
	else
		step_count "$name"
	fi
}

# Sets $busy: how many of each lane run.
declare -A busy=()
count_busy() {
	local entry lane
	busy=([guest]=0 [host]=0 [compute]=0 [nice]=0)
	for entry in "${running[@]}"; do
		lane=${entry%% *}
		busy[$lane]=$((${busy[$lane]:-0} + 1))
	done
}

# Starts what has its turn, in the order of later.
start_waiting() {
	local name lane words left=()
	count_busy
	for name in "${order[@]}"; do
		lane=${waiting[$name]%% *}
		if [ "${busy[$lane]}" -lt "${limit[$lane]}" ]; then
			read -ra words <<<"${waiting[$name]}"
			"${words[@]:1}" &
			running[$!]="$lane $name"
			busy[$lane]=$((busy[$lane] + 1))
		else
			left+=("$name")
		fi
	done
	order=("${left[@]}")
}

# run_later [LANE]: runs what waits, and returns when all has ended, also what was begun by beside; or when nothing of
# this lane is left.
run_later() {
	local pid
	start_waiting
	while [ ${#running[@]} -gt 0 ] && { [ $# = 0 ] || [ "${busy[$1]}" -gt 0 ]; }; do
		# it fails where one has ended before
		wait -n "${!running[@]}"
		for pid in "${!running[@]}"; do kill -0 "$pid" 2>/dev/null || count_ended "$pid"; done
		start_waiting
	done
}

# ---- the end ----

# $logs/times: what ran, longest first: seconds, CPU seconds, when it began; before them the sums.
write_times() {
	local file name
	for file in "$logs"/*.end; do
		name=${file##*/}
		awk -v name="${name%.end}" '{ printf "%5d %5d %5d  %s\n", $2, $3, $4, name }' "$file"
	done | sort -rn >"$logs/times.each"
	awk -v all=$((SECONDS - check_begin)) '{ cpu += $2 } END { printf "%5d %5d %5d  %s\n", all, cpu, 0, "all" }' \
		"$logs/times.each" | cat - "$logs/times.each" >"$logs/times"
	rm "$logs/times.each"
}

# print_times NUMBER: the longest, and all of it in $logs/times.
print_times() {
	write_times
	printf '%5s %5s %5s  (seconds, those of CPU time, begin; all of them: %s)\n' run CPU begin "$logs/times"
	head -n $(($1 + 1)) "$logs/times"
	printf 'waited longest for a line, at 10 s it hangs unless test/check_list.sh says more (all: %s):\n' "$logs/*.gap"
	grep -H '^idle' "$logs"/*.gap 2>/dev/null | sed "s|^$logs/||" | sort -rn -k 2 | head -n 5
	cat "$logs/phases" 2>/dev/null
}

# What failed or was skipped, and the sums; fails when something failed.
print_results() {
	local line log
	printf '\n'
	for line in "${failures[@]}"; do printf '%s%s%s\n' "$red" "$line" "$plain"; done
	for log in "$logs"/*.tap; do
		sed -nE "s|^ok [0-9]+ (.*) # SKIP(.*)|skipped: \1:\2|p" "$log"
	done
	printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	[ "$failed" -eq 0 ]
}
