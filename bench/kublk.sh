#!/bin/bash
# Builds kublk, the ublk server among the kernel's selftests, from Debian's source package, and
# prints its path. Nothing of it is kept in this tree.
#
#   kublk.sh            build it unless the cache has it
#   kublk.sh --again    fetch and build it anew
#   kublk.sh --tests    print the folder of the selftests it comes from
#
# The kernel's headers come with the source, so that their version is the same; liburing is fetched
# beside, because a stable Debian's is older than the source, and linked statically, because the
# guest has this machine's libraries.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cache=${UBLKD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ublkd/guest}/kublk

say() { printf 'kublk.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

compile() { # SOURCE LIBURING OUT
	local selftest=$1/tools/testing/selftests/ublk files
	mapfile -t files < <(find "$selftest" -maxdepth 1 -name '*.c' ! -name metadata_size.c | sort)
	[ ${#files[@]} -gt 0 ] || die "the source package has no tools/testing/selftests/ublk any more"
	# as its Makefile does
	cc -O3 -w -static -D_GNU_SOURCE -I "$1/include/uapi" -I "$2/usr/include" -o "$3" "${files[@]}" \
		"$(find "$2" -name liburing.a)" -lpthread -lm >&2 ||
		die "kublk does not build from $(cat "$1/package") with $(cat "$2/package")"
}

main() {
	local source liburing
	if [ "${1:-}" = --again ]; then rm -rf "$cache"; fi
	if [ ! -x "$cache/kublk" ]; then
		source=$("$here/../test/vm/kernel.sh" source "$cache/source")
		liburing=$("$here/../test/vm/kernel.sh" liburing "$cache/liburing")
		compile "$source" "$liburing" "$cache/kublk.new"
		mv "$cache/kublk.new" "$cache/kublk"
	fi
	if [ "${1:-}" = --tests ]; then
		printf '%s\n' "$cache/source/tools/testing/selftests/ublk"
	else
		printf '%s\n' "$cache/kublk"
	fi
}

main "$@"
