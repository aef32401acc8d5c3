#!/bin/bash
# Builds kublk, the ublk server in the kernel's selftests, from Debian's source package, and
# prints its path. This repository contains no copy of it.
#
#   kublk.sh            build it unless it is in the cache
#   kublk.sh --again    download and build it again
#   kublk.sh --tests    print the folder of the selftests it comes from
#   kublk.sh --source   print the folder of the source
#
# The kernel's headers are those of the source package, so that their version is the same. liburing is
# downloaded too, because that of a stable Debian is older than the source. It is linked statically,
# because the guest has this machine's libraries.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cache=${UBLKD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ublkd/guest}/kublk

say() { printf 'kublk.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

compile() { # SOURCE LIBURING OUT
	local selftest=$1/tools/testing/selftests/ublk files
	mapfile -t files < <(find "$selftest" -maxdepth 1 -name '*.c' ! -name metadata_size.c | sort)
	[ ${#files[@]} -gt 0 ] || die "the source package no longer has tools/testing/selftests/ublk"
	# the options of its Makefile
	cc -O3 -w -static -D_GNU_SOURCE -I "$1/include/uapi" -I "$2/usr/include" -o "$3" "${files[@]}" \
		"$(find "$2" -name liburing.a)" -lpthread -lm >&2 ||
		die "cannot build kublk from $(cat "$1/package") with $(cat "$2/package")"
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
	elif [ "${1:-}" = --source ]; then
		printf '%s\n' "$cache/source"
	else
		printf '%s\n' "$cache/kublk"
	fi
}

main "$@"
