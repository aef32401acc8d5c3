#!/bin/bash
# What no compiler says: format, clang-tidy, shellcheck, length of files and functions, man pages,
# dead links in docs. Prints TAP. Usage: lint.sh [BUILD_FOLDER with compile_commands.json]
set -uo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$top" || exit 1
build=${1:-build/clang}
. test/changed.sh
n=0 bad=0

ok() {
	local name=$1 out code=0
	shift
	n=$((n + 1))
	out=$("$@" 2>&1) || code=$?
	if [ $code -eq 0 ]; then
		echo "ok $n - $name"
	else
		bad=1
		echo "not ok $n - $name"
		head -n 60 <<<"$out" | sed 's/^/# /'
	fi
}

sources() { git ls-files -c -o --exclude-standard "$@"; }

formatted() { sources '*.c' '*.h' | xargs clang-format --dry-run -Werror; }

# The analyzer walks the paths of each function; nearly all have few. It stops after so many steps of one, where
# --soak lets it go on to its own limit: that takes five times as long.
analyzer=(--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=10000)
if [ -n "${UBLKD_SOAK:-}" ]; then analyzer=(); fi

# What is compiled into the product.
product() {
	sources 'base/*.c' 'reactor/*.c' 'config/*.c' 'net/*.c' 'storage/*.c' 'backends/*.c' 'filters/*.c' 'ublk/*.c' \
		'host/*.c' 'daemon/*.c' 'ublkctl/*.c' 'tracefile/*.c' 'ublktrace/*.c' ':!ublktrace/bpf'
}

# Product sources that changed, and for each header that did one that includes it: what is found in a header is found
# through any. All of them with --all.
product_changed() {
	local changes all seen header including
	if [ -n "${UBLKD_ALL:-}" ] || ! changes=$(changed 48); then
		product
		return
	fi
	all=$(product)
	seen=$(grep -xFf <(grep '\.c$' <<<"$changes") <<<"$all")
	for header in $(grep '\.h$' <<<"$changes"); do
		including=$(xargs grep -lF "#include \"$header\"" <<<"$all")
		if ! grep -qxFf <(echo "$including") <<<"$seen"; then seen+=$'\n'$(head -n 1 <<<"$including"); fi
	done
	grep . <<<"$seen" || true # none is no failure
}

tidy() { product_changed | test/tidy.py "$build" "${analyzer[@]}"; }

scripts() {
	sources | while read -r file; do
		if head -n 1 "$file" 2>/dev/null | grep -qE '^#!/bin/(ba)?sh|^# shellcheck shell='; then echo "$file"; fi
	done | xargs shellcheck -x -S warning -e SC2154,SC2034
}

short_files() {
	local long
	long=$(sources '*.c' '*.h' '*.sh' dev | xargs wc -l | awk '$2 != "total" && $1 > 600')
	[ -z "$long" ] || { echo "$long"; return 1; }
}

# Layers are kept by include paths; this only keeps libraries out of the data path.
# helper.c is no part of the loop: it allocates what outlives its owner, once.
no_allocation_in_loop() {
	! grep -nE '\b(malloc|calloc|realloc|strdup)\(' reactor/*.c | grep -v '^reactor/helper\.c:'
}

# Any other way starts a thread that can take the main thread's signals.
threads_by_thread_start() {
	! sources '*.c' ':!test' ':!base/thread.c' | xargs grep -n 'pthread_create('
}

# The text that a defect replaces is still in its file.
defects() {
	test/mutate/mutate.py --list
}

links() {
	local file target broken=0
	for file in README.md docs/*.md; do
		while read -r target; do
			[ -e "$(dirname "$file")/$target" ] || { echo "$file: $target"; broken=1; }
		done < <(grep -oE '\]\([^)#]+' "$file" | sed 's/^](//' | grep -v '^http')
	done
	return $broken
}

# Pictures of README.md come from docs/pictures/draw.sh, so that they can be drawn again. links() finds a missing one.
pictures_drawn() {
	local target names missing=0
	names=$(grep -oE '!\[[^]]*\]\([^)]+' README.md | sed 's/.*(//')
	[ -n "$names" ] || { echo "README.md shows no picture"; return 1; }
	while read -r target; do
		[ -s "$target" ] && grep -qwF "${target##*/}" docs/pictures/draw.sh ||
			{ echo "README.md: $target is missing, or docs/pictures/draw.sh does not name it"; missing=1; }
	done <<<"$names"
	return $missing
}

manuals() {
	local page
	for page in docs/man/*.[0-9]; do
		mandoc -T lint -W error "$page" || return
	done
}

ok "sources are formatted (./dev format)" formatted
ok "clang-tidy" tidy
ok "shellcheck" scripts
ok "no file above 600 lines" short_files
ok "no allocation in reactor/" no_allocation_in_loop
ok "threads are started by thread_start" threads_by_thread_start
ok "links in docs lead somewhere" links
ok "pictures of README.md are drawn by a script" pictures_drawn
ok "man pages" manuals
ok "every defect of test/mutate can be put in" defects
echo "1..$n"
exit $bad
