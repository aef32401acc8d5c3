#!/bin/bash
# Puts a qemu-nbd that knows extended headers (8.2 and newer) into build/vm/qemu-nbd, where guests see it: this
# machine's, or that of Debian 13 with the libraries it needs and their loader, kept in the cache. Then qemu-img
# and qemu-io of the same version are beside it, for test/interop/qcow2_qemu.sh.
#
#   qemu_nbd.sh       print build/vm/qemu-nbd/qemu-nbd, a script that starts it
#
# If none is available, this is not an error: build/vm/qemu-nbd/why has the reason, for the skipped tests.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/archive.sh"
kept=$cache/qemu-nbd
place=$(dirname "$(dirname "$here")")/build/vm/qemu-nbd

# --- this machine's -----------------------------------------------------------------------------

version_of() { "$@" --version 2>/dev/null | sed -nE '1s/^[^ ]+ ([0-9]+\.[0-9]+).*/\1/p'; }

is_new_enough() { # VERSION
	[ -n "$1" ] && [ "$(printf '%s\n' 8.2 "$1" | sort -V | head -n 1)" = 8.2 ]
}

# --- Debian 13's --------------------------------------------------------------------------------

qemu_package() { apt-cache "${apt[@]}" pkgnames qemu-utils | grep -x qemu-utils; }

# It and its libraries, down to the loader; what is installed here does not count.
with_libraries() {
	apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances qemu-utils | grep -E '^(lib[^ ]*|zlib1g|qemu-utils)$' | sort -u
}

say_size() { # PACKAGE...
	apt-get "${apt[@]}" download --print-uris "$@" |
		awk '{ bytes += $3 } END { printf "%d packages, %.1f MB\n", NR, bytes / 1e6 }' >&2
}

# Only the libraries that the loader lists.
pick() { # TREE DIR
	local libraries=$1/usr/lib/x86_64-linux-gnu loader path
	loader=$libraries/ld-linux-x86-64.so.2
	mkdir -p "$2/lib"
	"$loader" --inhibit-cache --library-path "$libraries" --list "$1/usr/bin/qemu-nbd" >"$1/list"
	if grep -F 'not found' "$1/list" >&2; then return 1; fi
	for path in "$loader" $(awk -v tree="$1/" 'index($3, tree) == 1 { print $3 }' "$1/list"); do
		cp -L "$path" "$2/lib/" || return
	done
	# the libraries of the others are among these
	mkdir -p "$2/program" && cp "$1"/usr/bin/qemu-{nbd,img,io} "$2/program/"
}

write_starters() { # DIR
	local name
	for name in nbd img io; do
		cat >"$1/qemu-$name" <<-'END'
			#!/bin/sh
			here=$(dirname "$(readlink -f "$0")")
			exec "$here/lib/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$here/lib" \
				"$here/program/$(basename "$0")" "$@"
		END
		chmod +x "$1/qemu-$name"
		"$1/qemu-$name" --version >/dev/null || return
	done
}

fetch() { # fills $kept
	local stage package suite apt packages deb
	find_suite qemu-nbd trixie qemu_package || return
	mapfile -t packages < <(with_libraries)
	stage=$(mktemp -d "$cache/.qemu-nbd-XXXXXX")
	mkdir "$stage/tree" "$stage/new"
	say_size "${packages[@]}"
	download "$stage" "${packages[@]}" || return
	for deb in "$stage"/*.deb; do dpkg-deb -x "$deb" "$stage/tree" || return; done
	pick "$stage/tree" "$stage/new" && write_starters "$stage/new" &&
		is_new_enough "$(version_of "$stage/new/qemu-nbd")" || return
	rm -rf "$kept" && mv -T "$stage/new" "$kept" && rm -rf "$stage"
}

# An older one had qemu-nbd alone.
is_kept() { [ -x "$kept/qemu-io" ]; }

get() {
	if is_new_enough "$(version_of qemu-nbd)"; then
		ln -s "$(command -v qemu-nbd)" "$place.new/qemu-nbd"
		return
	fi
	if ! is_kept; then
		lock
		rm -rf "$cache"/.qemu-nbd-*
		is_kept || fetch || return
	fi
	cp -a "$kept/." "$place.new/"
}

if [ ! -x "$place/qemu-nbd" ] || { [ ! -L "$place/qemu-nbd" ] && [ ! -x "$place/qemu-io" ]; }; then
	rm -rf "$place" "$place.new"
	mkdir -p "$place.new"
	get || echo "qemu-nbd here is $(version_of qemu-nbd), and Debian's archive could not give 8.2 or newer" >"$place.new/why"
	mv -T "$place.new" "$place"
fi
if [ -e "$place/why" ]; then say "$(cat "$place/why")"; else printf '%s\n' "$place/qemu-nbd"; fi
