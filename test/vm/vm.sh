#!/bin/bash
# Runs one command as root in a guest with the real ublk driver.
#
#   vm.sh [-k uml|7.2|6.12] [-c CPUS] [-m MEM] [-t SECONDS] [-d DISK] [-n] [-i] [-s] [--] COMMAND [ARG...]
#   vm.sh --install      install the Debian packages that this needs, and a newer QEMU where that is old
#   vm.sh --uml          also build the kernel of the quick guest (five to ten minutes, once)
#
#   -k  the kernel. uml: the quick guest, Linux 7.2 as a program of this machine (User-mode Linux), about as fast
#       as the machine itself at all but system calls. 7.2, 6.12: Debian's stock kernels, emulated (QEMU).
#       Without -k: uml when it has been built and no option below asks for more, 7.2 otherwise
#   -c  CPUs (2)          -m  memory (4G)
#   -t  limit of the whole run in real seconds (600)
#
# Of the stock kernels only:
#   -d  a disk for the guest, /dev/vda once it has loaded virtio_blk: a raw file, which QEMU opens
#       without the page cache (cache=none), or the socket of an NBD server
#   -n  an NVMe disk, /dev/nvme0n1: 64 MiB of zeroes; the first read of sector 2048 fails, so that the
#       driver retries that request
#   -i  instruction clock: one guest nanosecond per instruction, independent of the host's load; one CPU,
#       unless -c says more: their instructions then add up
#   -s  all CPUs in one host thread: slower, but safe for commands that make the kernel patch its
#       code again and again (tracepoints, kprobes, bpftrace); QEMU's threads race with that
#
# The guest's root is this machine's, read-only, so it has the same fio, mkfs and so on; /tmp, /run,
# /var/tmp, /mnt and /root are its own and empty. The tree and the current folder have the same
# paths. /out is build/out of the tree and is writable; dmesg is written there.
# Exit: the command's code; 124 after the time limit; 125 when the guest crashed or did not start.
# SIGTERM: the guest reports its blocked tasks to dmesg and ends; 143.
#
#   UBLKD_BIN_DIR     first on the guest's PATH (build/release/bin)
#   UBLKD_VM_ENV      names of variables to pass on, separated by spaces
#   UBLKD_VM_DMESG    where dmesg goes (build/out/dmesg-KERNEL.txt)
#   UBLKD_VM_ACCEL    kvm or tcg (tcg: works everywhere)
#   UBLKD_VM_QEMU     another qemu-system-x86_64 (that of qemu.sh, which is fast; with -i this machine's)
#   UBLKD_CACHE       where kernels are kept (~/.cache/ublkd/guest)
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(dirname "$(dirname "$here")")

say() { printf 'vm.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 125; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$here/vm.sh"; }

# --- packages -----------------------------------------------------------------------------------

# In Debian 12 virtiofsd is a part of qemu-system-common, since 13 a package of its own.
packages() {
	local version
	# shellcheck disable=SC1091
	version=$(. /etc/os-release && echo "${VERSION_ID:-99}") # testing and sid have no number
	echo qemu-system-x86 qemu-system-common gcc libc6-dev kmod zstd xz-utils util-linux mount
	if [ "${version%%.*}" -ge 13 ]; then echo virtiofsd; fi
}

virtiofsd_path() {
	local path
	for path in /usr/libexec/virtiofsd /usr/lib/qemu/virtiofsd; do
		if [ -x "$path" ]; then echo "$path" && return; fi
	done
}

# Those that build the kernel of the quick guest.
uml_packages() { echo make flex bison bc patch libelf-dev; }

install_packages() { # PACKAGE...
	local missing
	mapfile -t missing < <(comm -13 <(dpkg-query -W -f '${Package} ${Status}\n' "$@" 2>/dev/null |
		sed -n 's/ .* installed$//p' | sort) <(printf '%s\n' "$@" | sort))
	if [ ${#missing[@]} -eq 0 ]; then return; fi
	say "installing ${missing[*]}"
	[ "$(id -u)" = 0 ] || die "that needs root: sudo $0 --install"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update || say "apt-get update failed; trying with the lists at hand"
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2 ||
		die "apt could not install them: is the network up?"
}

check_machine() {
	local tool
	[ "$(uname -m)" = x86_64 ] || die "the guest's kernels are for x86_64; this machine is $(uname -m)"
	[ "$(id -u)" = 0 ] || die "needs root to lay out the guest's root with mounts: sudo ./dev vm ..."
	for tool in cc unshare setpriv; do
		command -v "$tool" >/dev/null || die "$tool is missing: run ./dev vm --install"
	done
	if [ "$kind" = uml ]; then return; fi
	for tool in qemu-system-x86_64 depmod; do
		command -v "$tool" >/dev/null || die "$tool is missing: run ./dev vm --install"
	done
	[ -n "$(virtiofsd_path)" ] || die "virtiofsd is missing: run ./dev vm --install"
}

# --- options ------------------------------------------------------------------------------------

parse_options() {
	local option
	series='' cpus='' memory=4G limit=600 icount='' single='' disk='' nvme=''
	while getopts ':k:c:m:t:d:nish' option; do
		case $option in
		k) series=$OPTARG ;;
		c) cpus=$OPTARG ;;
		m) memory=$OPTARG ;;
		t) limit=$OPTARG ;;
		d) disk=$OPTARG ;;
		n) nvme=1 ;;
		i) icount=1 ;;
		s) single=1 ;;
		h) usage && exit 0 ;;
		*) usage >&2 && die "unknown option, or an option without its value: -$OPTARG" ;;
		esac
	done
	choose_kernel
	# the instruction clock counts what all CPUs execute, one after the other
	if [ -z "$cpus" ]; then cpus=$([ -n "$icount" ] && echo 1 || echo 2); fi
	[[ $cpus =~ ^[1-9][0-9]*$ ]] || die "-c needs a number of CPUs, not '$cpus'"
	[[ $limit =~ ^[1-9][0-9]*$ ]] || die "-t needs whole seconds, not '$limit'"
	[[ $memory =~ ^[1-9][0-9]*[MG]$ ]] || die "-m needs a size such as 4G or 512M, not '$memory'"
	[ -z "$disk" ] || [ -f "$disk" ] || [ -S "$disk" ] || die "-d needs a raw file or a socket, not '$disk'"
}

# Sets $series and $kind.
choose_kernel() {
	local stock=$icount$single$disk$nvme
	if [ "$series" = uml ] && [ -n "$stock" ]; then die "-d, -n, -i and -s need a stock kernel: -k 7.2 or -k 6.12"; fi
	if [ -z "$series" ]; then
		series=7.2
		if [ -z "$stock" ]; then
			if "$here/uml/kernel.sh" is_built; then series=uml; else say "the quick guest is not built: ./dev vm --uml"; fi
		fi
	fi
	kind=qemu
	if [ "$series" = uml ]; then kind=uml; fi
}

# The numbers of the instruction clock are to be compared with those of other machines: it stays with their QEMU.
choose_qemu() {
	qemu='qemu-system-x86_64'
	if [ -z "$icount" ]; then qemu=$("$here/qemu.sh" path); fi
	qemu=${UBLKD_VM_QEMU:-$qemu}
}

# --- the run ------------------------------------------------------------------------------------

build_init() {
	local init=$top/build/vm/init
	if [ "$init" -nt "$here/init.c" ]; then return; fi
	mkdir -p "$top/build/vm"
	cc -O2 -Wall -Wextra -D_GNU_SOURCE -static -o "$init.$$" "$here/init.c" ||
		die "cannot build the guest's init (see above)"
	mv "$init.$$" "$init" # another run may be doing the same
}

# guest.sh has the guest report its state and ends; what does not is killed.
stop_run() { # PID
	local tries
	echo >&"$orders"
	for ((tries = 0; tries < 150; tries++)); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL "$1"
}

# Everything that a run creates (mounts, sockets, processes) is in namespaces of its own and ends with
# them. If this shell is killed, setpriv and unshare kill the run; ^C reaches only this shell (setsid),
# so that only this shell ends the run.
run_guest() {
	local pid code=0
	exec {orders}<> <(:)
	export orders
	setsid setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
		--propagation private -- "$here/guest.sh" "$@" </dev/null &
	pid=$!
	trap 'kill -KILL $pid 2>/dev/null; exit 130' INT
	trap 'stop_run $pid; exit 143' TERM HUP
	wait "$pid" || code=$?
	return "$code"
}

main() {
	case ${1:-} in --install | --uml) [ $# -eq 1 ] || die "$1 runs no command: it comes first, and then vm.sh COMMAND" ;; esac
	if [ "${1:-}" = --install ]; then
		# shellcheck disable=SC2046 # words
		install_packages $(packages)
		"$here/qemu.sh" get || say "no newer QEMU: emulated guests take half as long again"
		exit
	fi
	if [ "${1:-}" = --uml ]; then
		# shellcheck disable=SC2046 # words
		install_packages $(packages) $(uml_packages)
		"$here/uml/kernel.sh" get >/dev/null || exit 125
		exit
	fi
	if [ "${1:-}" = --help ]; then usage && exit; fi
	parse_options "$@"
	shift $((OPTIND - 1))
	if [ $# -eq 0 ]; then usage >&2 && die "no command given"; fi
	check_machine
	build_init
	qemu=
	if [ "$kind" = uml ]; then
		kernel=$("$here/uml/kernel.sh" get) || exit 125
	else
		kernel=$("$here/kernel.sh" get "$series") || exit 125
		choose_qemu
	fi
	out=$top/build/out
	mkdir -p "$out"
	bin=${UBLKD_BIN_DIR:-$top/build/release/bin}
	dmesg=${UBLKD_VM_DMESG:-$out/dmesg-$series.txt}
	virtiofsd=$(virtiofsd_path)
	export top out bin dmesg virtiofsd qemu kernel kind series cpus memory limit icount single disk nvme
	run_guest "$@"
}

main "$@"
