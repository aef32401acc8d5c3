# shellcheck shell=bash
# Programs of Debian 13 where this machine's are older: kept in the cache with the libraries that they need and their
# loader, so that they run on any machine. Sourced; the caller has sourced archive.sh.

version_of() { "$@" --version 2>/dev/null | sed -nE '1s/^[^0-9]* ([0-9]+\.[0-9]+).*/\1/p'; }

is_at_least() { # WANTED VERSION
	[ -n "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

newer_package() { apt-cache "${apt[@]}" pkgnames "$1" | grep -x "$1"; }

# It and its libraries, down to the loader, and what else of it matches a pattern; what is installed here does not count.
with_libraries() { # PACKAGE PATTERN
	apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances "$1" | grep -xE "(lib[^ ]*|zlib1g|$1|$2)" | sort -u
}

say_size() { # PACKAGE...
	apt-get "${apt[@]}" download --print-uris "$@" |
		awk '{ bytes += $3 } END { printf "%d packages, %.1f MB\n", NR, bytes / 1e6 }' >&2
}

# The programs, and of the libraries only those that the loader lists for them.
pick() { # TREE DIR PROGRAM...
	local tree=$1 dir=$2 libraries=$1/usr/lib/x86_64-linux-gnu loader path name
	shift 2
	loader=$libraries/ld-linux-x86-64.so.2
	mkdir -p "$dir/lib" "$dir/program"
	for name; do
		cp "$tree/usr/bin/$name" "$dir/program/" || return
		"$loader" --inhibit-cache --library-path "$libraries" --list "$tree/usr/bin/$name" >"$tree/list"
		if grep -F 'not found' "$tree/list" >&2; then return 1; fi
		for path in "$loader" $(awk -v tree="$tree/" 'index($3, tree) == 1 { print $3 }' "$tree/list"); do
			cp -L "$path" "$dir/lib/" || return
		done
	done
}

write_starters() { # DIR PROGRAM...
	local dir=$1 name
	shift
	for name; do
		cat >"$dir/$name" <<-'END'
			#!/bin/sh
			here=$(dirname "$(readlink -f "$0")")
			exec "$here/lib/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$here/lib" \
				"$here/program/$(basename "$0")" "$@"
		END
		chmod +x "$dir/$name"
		"$dir/$name" --version >/dev/null || return
	done
}

has_programs() { # DIR PROGRAM...
	local dir=$1 name
	shift
	for name; do [ -x "$dir/$name" ] || return; done
}

# fetch_newer KEPT VERSION PACKAGE PATTERN PROGRAM...: fills the folder KEPT of the cache, unless it has the programs. The
# first must have that version or a newer one. What else it takes of the packages is up to take_more TREE DIR, if the
# caller has one.
fetch_newer() {
	local kept=$1 version=$2 wanted=$3 pattern=$4 stage package suite apt packages deb
	shift 4
	if has_programs "$kept" "$@"; then return; fi
	lock
	if has_programs "$kept" "$@"; then return; fi # by another run, meanwhile
	rm -rf "$cache/.${kept##*/}"-*
	find_suite "$wanted" trixie newer_package "$wanted" || return
	mapfile -t packages < <(with_libraries "$wanted" "$pattern")
	stage=$(mktemp -d "$cache/.${kept##*/}-XXXXXX")
	mkdir "$stage/tree" "$stage/new"
	say_size "${packages[@]}"
	download "$stage" "${packages[@]}" || return
	for deb in "$stage"/*.deb; do dpkg-deb -x "$deb" "$stage/tree" || return; done
	pick "$stage/tree" "$stage/new" "$@" && write_starters "$stage/new" "$@" &&
		is_at_least "$version" "$(version_of "$stage/new/$1")" || return
	if declare -F take_more >/dev/null; then take_more "$stage/tree" "$stage/new" || return; fi
	rm -rf "$kept" && mv -T "$stage/new" "$kept" && rm -rf "$stage"
}
