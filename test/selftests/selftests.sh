#!/bin/bash
# The kernel's own selftests for ublk, run against ublkd in a guest. Prints TAP, a line per test; which
# must pass, and why others do not, is the table of docs/selftests.md.
#
#   selftests.sh SERIES [TEST...]    all of the table, or those named (loop_01), whatever it says
#
# UBLKD_SOAK=1: also those that take long. UBLKD_THIRD, 0 to 2: this third of the table alone. UBLKD_BIN_DIR: the programs to test (build/release/bin).
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(dirname "$(dirname "$here")")
series=${1:?usage: selftests.sh SERIES [TEST...]}
shift

# Beside them the wrapper in kublk's place, kublk itself for what only the driver is asked, and a daemon
# that can be made to hang in a recovery.
unpack() { # FOLDER
	local kublk tests source
	source=$("$top/bench/kublk.sh" --source)
	kublk=$("$top/bench/kublk.sh")
	tests=$("$top/bench/kublk.sh" --tests)
	mkdir -p "$1"
	cp -r "$tests"/test_*.sh "$tests"/trace "$1"
	cp "$kublk" "$1/kublk.kernel"
	cp "$here/kublk" "$1/kublk"
	cc -O2 -w -static -I "$source/include/uapi" -o "$1/metadata_size" "$tests/metadata_size.c"
	if [ -x "$top/build/release/faults/ublkd" ]; then cp "$top/build/release/faults/ublkd" "$1/ublkd.faults"; fi
}

# Of its own: two series may run at once.
folder=$top/build/selftests/$series
rm -rf "$folder"
unpack "$folder" >&2
UBLKD_VM_ENV="${UBLKD_VM_ENV:-} UBLKD_SOAK UBLKD_THIRD" exec "$top/test/vm/vm.sh" \
	-s -k "$series" -t 7000 -- "$here/guest_selftests.sh" "$folder" "$@"
