#!/bin/bash
# Programs that start quickly in the test guest, in build/vm/lean. guest_lib.sh uses them if they exist; without them
# the tests are slower.
#
# fio: Debian's is linked with 60 libraries (Ceph, Gluster, RDMA) for engines that no test uses, and takes a second or
# more to start. This is the same program with empty libraries in place of those.
# jq: version 1.6 compiles its library at each start, 180 million instructions; gojq takes 6 million.
set -euo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
lean=$top/build/vm/lean
fio=$(command -v fio) || { echo "lean_programs.sh: no fio: apt-get install fio" >&2; exit 1; }
heavy='^lib(gfapi|nbd|ibverbs|rdmacm|rados|rbd|pmemblk|pmem2?|iscsi)\.so'

gojq=$(command -v gojq || true)

if [ "$lean/fio" -nt "$fio" ] && [ "$lean/fio" -nt "${BASH_SOURCE[0]}" ] && { [ -z "$gojq" ] || [ -e "$lean/jq" ]; }; then exit 0; fi
rm -rf "$lean"
mkdir -p "$top/build/vm"
new=$(mktemp -d "$lean.XXXXXX")
trap 'rm -rf "$new"' EXIT

# wanted LIBRARY: the symbols that fio uses from it, NAME or NAME@VERSION
wanted() {
	comm -12 <(nm -D --with-symbol-versions "$fio" | awk '$1 ~ /^[Uw]$/ { print $2 }' | sort) \
		<(nm -D --defined-only --with-symbol-versions "$1" | awk '{ sub("@@", "@", $NF); print $NF }' | sort)
}

# A library of that name whose functions end the program that calls them.
make_empty() { # NAME PATH
	wanted "$2" >"$new/wanted"
	sed 's/@.*//; s/.*/void &(void) { __builtin_trap(); }/' "$new/wanted" | sort -u >"$new/empty.c"
	awk -F@ 'NF > 1 { of[$2] = of[$2] $1 ";" } END { for (v in of) print v " { global: " of[v] " };" }' \
		"$new/wanted" >"$new/empty.map"
	if [ ! -s "$new/empty.map" ]; then echo "{ global: *; };" >"$new/empty.map"; fi
	cc -w -fPIC -fno-builtin -shared -nostdlib -Wl,-soname,"$1" -Wl,--version-script="$new/empty.map" \
		-o "$new/$1" "$new/empty.c"
}

ldd "$fio" | awk -v heavy="$heavy" '$1 ~ heavy { print $1, $3 }' >"$new/libraries"
while read -r name path; do make_empty "$name" "$path"; done <"$new/libraries"
cat >"$new/fio.c" <<EOF
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	(void)argc;
	setenv("LD_LIBRARY_PATH", "$lean", 1);
	execv("$fio", argv);
	return 127;
}
EOF
cc -O2 -static -o "$new/fio" "$new/fio.c"
# Checks that fio still starts.
if ! LD_LIBRARY_PATH=$new "$fio" --version >/dev/null; then
	echo "lean_programs.sh: fio does not start without its libraries; it is used as it is" >&2
	exit 0
fi
if [ -n "$gojq" ]; then ln -s "$gojq" "$new/jq"; fi
rm -rf "$new"/{empty.c,empty.map,wanted,libraries,fio.c}
mv "$new" "$lean"
chmod 755 "$lean"
