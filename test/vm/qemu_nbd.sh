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
. "$here/newer.sh"
kept=$cache/qemu-nbd
place=$(dirname "$(dirname "$here")")/build/vm/qemu-nbd

get() {
	if is_at_least 8.2 "$(version_of qemu-nbd)"; then
		ln -s "$(command -v qemu-nbd)" "$place.new/qemu-nbd"
		return
	fi
	fetch_newer "$kept" 8.2 qemu-utils - qemu-nbd qemu-img qemu-io || return
	cp -a "$kept/." "$place.new/"
}

if [ ! -x "$place/qemu-nbd" ] || { [ ! -L "$place/qemu-nbd" ] && [ ! -x "$place/qemu-io" ]; }; then
	rm -rf "$place" "$place.new"
	mkdir -p "$place.new"
	get || echo "qemu-nbd here is $(version_of qemu-nbd), and Debian's archive could not give 8.2 or newer" >"$place.new/why"
	mv -T "$place.new" "$place"
fi
if [ -e "$place/why" ]; then say "$(cat "$place/why")"; else printf '%s\n' "$place/qemu-nbd"; fi
