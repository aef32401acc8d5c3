#!/bin/bash
# The QEMU that emulates the stock kernels: this machine's, or that of Debian 13, which takes a third less CPU time than the
# 7.2 of Debian 12 (starting a program takes half as long), kept in the cache.
#
#   qemu.sh get     fetch it where this machine's is older than 9
#   qemu.sh path    print which program to start: the one that was fetched, or this machine's
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/archive.sh"
. "$here/newer.sh"
kept=$cache/qemu
name=qemu-system-x86_64

# The firmware that a guest starts with.
take_more() { # TREE DIR
	mkdir "$2/share" && cp -rL "$1/usr/share/seabios/." "$1"/usr/share/qemu/{linuxboot*,kvmvapic*,multiboot*,pvh*} "$2/share/" &&
		sed -i "s|\"\$@\"|-L \"\$here/share\" &|" "$2/$name"
}

case ${1:-} in
get)
	if is_at_least 9 "$(version_of "$name")"; then exit; fi
	fetch_newer "$kept" 9 qemu-system-x86 'qemu-system-(common|data)|seabios' "$name"
	;;
path) if [ -x "$kept/$name" ]; then echo "$kept/$name"; else echo "$name"; fi ;;
*) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
