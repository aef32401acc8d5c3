#!/bin/bash
# ublkd's file and the programs of QEMU keep each other off an image, and share its base. Prints TAP;
# no root, no ublk. Usage: qemu_locks.sh [TEST_FOLDER], where file_holder is; skipped without QEMU.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
tests=$(readlink -f "${1:-$top/build/release/test}")
tmp=$(mktemp -d /tmp/ublkd-qemu-locks.XXXXXX)
holders=()
trap '[ ${#holders[@]} = 0 ] || kill "${holders[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"

if ! command -v qemu-img >/dev/null || ! command -v qemu-io >/dev/null; then
	echo "1..0 # SKIP qemu-img and qemu-io are not installed"
	exit 0
fi

qemu-img create -q -f qcow2 "$tmp/base" 1M
qemu-img create -q -f qcow2 -F qcow2 -b "$tmp/base" "$tmp/disk" 1M

# --- who holds an image -------------------------------------------------------------------------

declare -A pid fd

# hold NAME WORDS COMMAND...: in the background, until it says these words; release NAME ends it.
hold() {
	local name=$1 words=$2 input i
	shift 2
	mkfifo "$tmp/$name.in"
	"$@" <"$tmp/$name.in" >"$tmp/$name.out" 2>&1 &
	pid[$name]=$!
	holders+=($!)
	exec {input}>"$tmp/$name.in"
	fd[$name]=$input
	[ "$1" != qemu-io ] || echo "read 0 512" >&"$input"
	for ((i = 0; i < 1200; i++)); do
		if grep -q "$words" "$tmp/$name.out"; then return 0; fi
		if ! kill -0 "${pid[$name]}" 2>/dev/null; then break; fi
		sleep .05
	done
	cat "$tmp/$name.out"
	return 1
}

release() {
	local input=${fd[$1]}
	exec {input}>&-
	wait "${pid[$1]}"
	rm -f "$tmp/$1.in"
}

# refused WORDS COMMAND...: it fails, and says these words.
refused() {
	local words=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		echo "not refused: $*"
		return 1
	fi
	grep -qF "$words" "$tmp/out" || {
		echo "no \"$words\" from $*:"
		cat "$tmp/out"
		return 1
	}
}

holder() { timeout 60 "$tests/file_holder" "$@" </dev/null; }
write_to() { timeout 60 qemu-io -c "write 0 4k" "$1" </dev/null; }
info() { timeout 60 qemu-img info "$@" </dev/null; }

# --- an image that is written -------------------------------------------------------------------

ok "ublkd opens an image" hold writer open "$tests/file_holder" "$tmp/disk" image
ok "qemu-io may not write to it" refused 'Failed to get "write" lock' write_to "$tmp/disk"
ok "qemu-img info is refused" refused 'Failed to get shared "write" lock' info "$tmp/disk"
ok "qemu-img info -U looks all the same" info -U "$tmp/disk"
ok "another ublkd is refused" refused "another program has the image open for writing" holder "$tmp/disk" image
release writer
ok "when it is closed, qemu-io writes" write_to "$tmp/disk"

ok "qemu-io opens the image" hold qemu "read 512/512" qemu-io "$tmp/disk"
ok "ublkd is told who has it" refused "another program has the image open for writing (a virtual machine" holder "$tmp/disk" image
ok "it cannot be read either" refused "another program has the image open for writing" holder "$tmp/disk" image read
ok "nor as a raw file" refused "is in use by another process" holder "$tmp/disk" raw
ok "with lock: off it can" holder "$tmp/disk" image read off
ok "its base can be read" holder "$tmp/base" image read
ok "its base cannot be written" refused "nobody may write to it meanwhile" holder "$tmp/base" image
release qemu
ok "when qemu-io has ended, ublkd opens the image" holder "$tmp/disk" image

# --- a base that is read ------------------------------------------------------------------------

ok "ublkd reads a base" hold base open "$tests/file_holder" "$tmp/base" image read
ok "another ublkd reads it too" holder "$tmp/base" image read
ok "as a raw file too" holder "$tmp/base" raw read
ok "qemu-io writes to an image over it" write_to "$tmp/disk"
ok "qemu-img info looks at it" info "$tmp/base"
ok "qemu-io may not write to it" refused 'Failed to get "write" lock' write_to "$tmp/base"
release base
ok "when it is closed, qemu-io writes" write_to "$tmp/base"

# --- a raw file ---------------------------------------------------------------------------------

ok "ublkd writes to a raw file that it locks as QEMU does" hold raw open "$tests/file_holder" "$tmp/disk" raw write on
ok "qemu-io may not write to it" refused 'Failed to get "write" lock' write_to "$tmp/disk"
release raw

echo "1..$n"
exit $bad
