#!/bin/bash
# The inside of one run of vm.sh: lays out the guest's root, starts the machine (machine_qemu.sh or machine_uml.sh),
# carries the output, waits. Its mounts and processes are private (vm.sh starts it in namespaces of its own), so
# it cleans up nothing: everything left ends with the namespaces. vm.sh exports the settings it uses.
#
#   $run/root        served as the guest's root: the machine's folders, read-only, and our init
#   $run/share       the guest's /.vm: orders to init (argv, env, cwd, binds), its answers (exit, dmesg)
#   $out             the guest's /out
#   $run/memory      its memory, a file that grows as it is used
#   $run/console     the kernel's console; stdout, stderr: the command's
#   $run/orders.in   the order to init: stop
set -euo pipefail
# shellcheck disable=SC2154 # exported by vm.sh
: "$top" "$out" "$bin" "$dmesg" "$virtiofsd" "$qemu" "$kernel" "$orders" "$series" "$cpus" "$memory" "$limit" "$disk" "$nvme"

run=/dev/shm
root=$run/root
share=$run/share
# shellcheck source=test/vm/machine_qemu.sh
. "$(dirname "$(readlink -f "$0")")/machine_$kind.sh"
own_places="/tmp /run /var/tmp /mnt /root" # init mounts tmpfs there

say() { printf 'vm.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 125; }

# --- what the guest sees ------------------------------------------------------------------------

build_root() {
	local path
	mount --bind "$root" "$root" # only a mount can be made read-only
	for path in /*; do
		if [ -L "$path" ]; then
			cp -P "$path" "$root$path"
		elif [ -d "$path" ]; then
			mkdir "$root$path"
			case $path in
			/proc | /sys | /dev | /run | /tmp | /mnt | /root | /out) ;;
			*) mount --rbind "$path" "$root$path" ;;
			esac
		fi
	done
	mkdir -p "$root"/{out,.vm,.bind}
	mount --bind "$kernel/modules" "$root/usr/lib/modules"
	cp "$top/build/vm/init" "$root/init"
}

# The guest runs tests as root: it must not be able to change this machine's files.
make_read_only() {
	local targets target
	mapfile -t targets < <(awk -v root="$root" \
		'$5 == root || index($5, root "/") == 1 { print $5 }' /proc/self/mountinfo)
	for target in "${targets[@]}"; do
		mount -o remount,bind,ro "$(printf '%b' "$target")"
	done
}

is_hidden() { # PATH: below a place that is a tmpfs in the guest
	local place
	for place in $own_places; do
		if [[ $1 == "$place"/* ]]; then return 0; fi
	done
	return 1
}

bind_hidden() { # PATH...
	local path number=0
	: >"$share/binds"
	for path; do
		if ! is_hidden "$path" || [ ! -d "$path" ]; then continue; fi
		mkdir "$root/.bind/$number"
		mount --rbind "$path" "$root/.bind/$number"
		printf '%s\0' "$path" >>"$share/binds"
		number=$((number + 1))
	done
}

environment() {
	local name
	printf '%s\0' HOME=/root USER=root LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8 TERM=dumb \
		"UBLKD_VM=$series" \
		"PATH=$bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for name in ${UBLKD_VM_ENV:-}; do
		if [ -n "${!name+set}" ]; then printf '%s=%s\0' "$name" "${!name}"; fi
	done
}

# In huge pages where this machine's kernel has them for tmpfs: a boot takes a tenth less.
mount_memory() {
	mkdir "$run/memory"
	mount -t tmpfs -o "size=$memory,huge=within_size" tmpfs "$run/memory" 2>/dev/null ||
		mount -t tmpfs -o "size=$memory" tmpfs "$run/memory"
}

# --- the output, and the end ---------------------------------------------------------------------

# tail sees the machine end, reads what is left, and ends too.
carry_output() {
	tail -c +1 -s 0.05 -f --pid="$machine" "$run/stdout" 2>/dev/null &
	tails=($!)
	tail -c +1 -s 0.05 -f --pid="$machine" "$run/stderr" >&2 2>/dev/null &
	tails+=($!)
}

panicked() { grep -q 'Kernel panic' "$run/console"; }

# Waits that long for the machine or an order from vm.sh to end; sets $ended: machine, order, or nothing.
wait_seconds() { # SECONDS
	local pid='' code=0 pause
	(read -rt "$1" -u "$orders") &
	pause=$!
	wait -n -p pid "$machine" "$pause" || code=$?
	ended=
	if [ "$pid" != "$pause" ]; then
		ended=machine
		kill "$pause" 2>/dev/null || true
	elif [ "$code" = 0 ]; then
		ended=order
	fi
}

is_read() { # tail ends when its reader has gone
	kill -0 "${tails[0]}" 2>/dev/null && kill -0 "${tails[1]}" 2>/dev/null
}

# Returns when the guest has ended, or must be ended: then $why and $why_code are set. A panic
# ends the machine (panic=-1) unless the panic itself hangs: that is given 5 to 10 seconds.
wait_guest() {
	local deadline=$((SECONDS + limit)) left was_panicked='' ended
	why_code=125
	while ((left = deadline - SECONDS, left > 0)); do
		wait_seconds $((left < 5 ? left : 5))
		if [ "$ended" = machine ]; then return; fi
		if [ "$ended" = order ]; then
			why="vm.sh was told to end" why_code=143
			return
		fi
		if [ -n "$was_panicked" ]; then why="the guest's kernel panicked" && return; fi
		if panicked; then was_panicked=1; fi
		if ! is_read; then
			why="the reader of the output is gone" why_code=141
			return
		fi
	done
	why="the time limit of $limit s (-t) is up" why_code=124
}

# init reports the blocked tasks and saves dmesg, if it still can.
stop_guest() {
	local ended
	printf 'stop\n' >"$run/orders.in" &
	wait_seconds 10
	if [ "$ended" != machine ]; then
		kill -KILL "$machine"
		wait "$machine" || true
	fi
}

save_dmesg() {
	local source=$share/dmesg
	if [ ! -s "$source" ]; then source=$run/console; fi
	mkdir -p "$(dirname "$dmesg")"
	cp "$source" "$dmesg" || say "cannot write dmesg to $dmesg"
}

report() {
	local code
	code=$(cat "$share/exit" 2>/dev/null) || code=
	if ! (echo full >"$run/full") 2>/dev/null; then say "output beyond 1 GB was lost"; fi
	if [[ $code == [0-9]* ]]; then exit "$code"; fi
	if [ -z "$why" ] && panicked; then why="the guest's kernel panicked"; fi
	if [ -z "$why" ]; then tail -n 5 "$run"/*.log >&2; fi
	say "${why:-the guest ended without a result}; the console's last lines:"
	tail -n 100 "$run/console" >&2
	exit "$why_code"
}

main() {
	local why='' why_code machine tails
	# Hides nothing that the guest needs: no tree is there, and the guest has a /dev of its own.
	mount -t tmpfs -o mode=755,size=1g tmpfs "$run"
	mkdir "$root" "$share"
	mkfifo "$run/orders.in"
	touch "$run/console" "$run/stdout" "$run/stderr"
	mount -t tmpfs -o size=64m tmpfs "$share" # of its own: endless output leaves it room
	mkdir "$share/out"
	mkdir -p /usr/lib/modules # a machine without kernels lacks it, and modules are bound there
	build_root
	bind_hidden "$top" "$(readlink -m "$bin")" "$PWD"
	make_read_only
	printf '%s\0' "$@" >"$share/argv"
	printf '%s\0' "$PWD" >"$share/cwd"
	environment >"$share/env"
	mount_memory
	machine_start
	carry_output
	wait_guest
	if [ -n "$why" ]; then stop_guest; fi
	wait "${tails[@]}" || true
	save_dmesg
	report
}

main "$@"
