#!/bin/bash
# Fuzz targets under libFuzzer, guided by what they cover: what it finds grows on the corpus of the
# repository for as long as it runs, and is kept beside the build for the next run. Prints TAP.
# Usage: libfuzzer.sh BUILD_FOLDER SECONDS TARGET...
# The build: cmake --preset fuzz. What makes one fail is left in BUILD_FOLDER/found.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
build=$(readlink -f "$1")
seconds=$2
shift 2
found=$build/found
tmp=$(mktemp -d /tmp/ublkd-fuzz.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"

show_log() {
	grep -E '^(==|SUMMARY|Test unit|artifact_prefix|    #[0-9] )|ssert' "$tmp/log" | head -30 | sed 's/^/# /'
	local input
	for input in "$found/$target"-*; do
		if [ -e "$input" ]; then echo "# again: $build/test/$target $input"; fi
	done
}

# A fuzzer that has tried nothing has found nothing.
fuzz() {
	mkdir -p "$found/$1"
	# short inputs first; no longer than a session is
	"$build/test/$1" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=3072 -print_final_stats=1 \
		-artifact_prefix="$found/$1-" "$found/$1" "$top/test/fuzz/corpus/${1#fuzz_}" 2>&1 || return
}
tried() { sed -nE 's/^stat::number_of_executed_units: +//p' "$tmp/$target"; }
covered() { grep -oE 'cov: [0-9]+' "$tmp/$target" | tail -n 1; }

for target in "$@"; do
	rm -f "$found/$target"-*
	ok "$target: $seconds s" eval 'fuzz "$target" | tee "$tmp/$target"; [ ${PIPESTATUS[0]} = 0 ]'
	ok "... $(tried) inputs, $(covered)" test "$(tried)" -gt $((seconds * 100))
done
echo "1..$n"
exit $bad
