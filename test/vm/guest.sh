#!/bin/bash
# The inside of one run of vm.sh: lays out the guest's root, starts virtiofsd and QEMU, carries the
# output, waits. Its mounts and processes are private (vm.sh starts it in namespaces of its own), so
# it cleans up nothing: what is left ends with it. vm.sh exports the settings it uses.
#
#   $run/root     served as the guest's root: the machine's folders, read-only, and our init
#   $run/share    orders to init (argv, env, cwd, binds), its answers (exit, dmesg), and out/
#   $run/console  the kernel's serial console; stdout, stderr: the command's
set -euo pipefail
# shellcheck disable=SC2154 # exported by vm.sh
: "$top" "$out" "$bin" "$dmesg" "$virtiofsd" "$kernel" "$series" "$cpus" "$memory" "$limit"

run=/dev/shm
root=$run/root
share=$run/share
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

# The guest runs tests as root: nothing it does may reach this machine's files.
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

# --- processes ----------------------------------------------------------------------------------

start_virtiofsd() { # TAG FOLDER CACHE
	local options=(-o "source=$2" -o "cache=$3")
	if "$virtiofsd" --help 2>&1 | grep -q -- --shared-dir; then # the one written in Rust
		options=(--shared-dir "$2" --cache "$3")
	fi
	"$virtiofsd" --socket-path="$run/$1.sock" "${options[@]}" >"$run/$1.log" 2>&1 &
	for ((tries = 0; tries < 500; tries++)); do
		if [ -S "$run/$1.sock" ]; then return; fi
		sleep 0.02
	done
	die "virtiofsd did not start: $(tail -n 3 "$run/$1.log")"
}

# What is hidden or set here, and why:
# cx16: QEMU 7.2 corrupts EFLAGS on cmpxchg16b, and 6.12 crashes now and then. erms, fsrm: rep movs
# is slow byte by byte. la57, smap, smep, pku and the unused parts of q35: time at start.
machine_options() {
	local accel=(-accel "tcg,thread=multi")
	local cpu=max,-la57,-smap,-smep,-pku,-erms,-fsrm,-cx16
	if [ -n "$icount" ]; then
		accel=(-accel "tcg,thread=single" -icount "shift=0,sleep=on")
	elif [ -n "$single" ]; then
		accel=(-accel "tcg,thread=single")
	elif [ "${UBLKD_VM_ACCEL:-tcg}" = kvm ]; then
		accel=(-accel kvm) cpu=host
	fi
	machine=("${accel[@]}" -cpu "$cpu" -smp "$cpus"
		-M "q35,smm=off,hpet=off,sata=off,usb=off,vmport=off,memory-backend=mem"
		-m "$memory" -object "memory-backend-memfd,id=mem,size=$memory,share=on"
		-nodefaults -display none -no-reboot -device "isa-debug-exit,iobase=0xf4,iosize=4")
}

# The watchdogs measure the host's load here, and console noise costs time.
kernel_line() {
	echo "root=rootfs rootfstype=virtiofs rw init=/init console=ttyS0 quiet panic=-1 oops=panic" \
		"tsc=reliable mitigations=off nokaslr no_timer_check rcupdate.rcu_expedited=1" \
		"cryptomgr.notests nowatchdog maxcpus=1 noreplace-smp log_buf_len=1M"
}

start_qemu() {
	local stream devices=() machine
	machine_options
	mkfifo "$run/orders.in" "$run/orders.out"
	touch "$run/console" "$run/stdout" "$run/stderr"
	for stream in root share; do
		devices+=(-chardev "socket,id=$stream,path=$run/$stream.sock"
			-device "vhost-user-fs-pci,chardev=$stream,tag=${stream/%root/rootfs}")
	done
	# Files, not pipes: a virtconsole drops what a full pipe does not take.
	for stream in file,id=stdout,path=$run/stdout file,id=stderr,path=$run/stderr pipe,id=orders,path=$run/orders; do
		devices+=(-chardev "$stream" -device "virtconsole,chardev=$(sed -E 's/.*id=([a-z]*).*/\1/' <<<"$stream")")
	done
	"${UBLKD_VM_QEMU:-qemu-system-x86_64}" "${machine[@]}" -serial "file:$run/console" \
		-kernel "$kernel/vmlinux" -append "$(kernel_line)" \
		-device "virtio-serial-pci,max_ports=4" "${devices[@]}" >"$run/qemu.log" 2>&1 &
	qemu=$!
}

# tail sees qemu end, reads what is left, and ends too.
carry_output() {
	tail -c +1 -s 0.05 -f --pid="$qemu" "$run/stdout" 2>/dev/null &
	tails=($!)
	tail -c +1 -s 0.05 -f --pid="$qemu" "$run/stderr" >&2 2>/dev/null &
	tails+=($!)
}

# --- the end ------------------------------------------------------------------------------------

panicked() { grep -q 'Kernel panic' "$run/console"; }

wait_seconds() { # SECONDS: true when qemu has ended before
	local ended=
	sleep "$1" &
	wait -n -p ended "$qemu" $! || true
	[ "$ended" = "$qemu" ]
}

# A panic ends QEMU (panic=-1, -no-reboot) unless the panic itself hangs: that is given 5 seconds.
wait_guest() { # true when the guest ended by itself
	local deadline=$((SECONDS + limit)) left was_panicked=
	while ((left = deadline - SECONDS, left > 0)); do
		if wait_seconds $((left < 5 ? left : 5)); then return 0; fi
		if [ -n "$was_panicked" ]; then break; fi
		if panicked; then was_panicked=1; fi
	done
	return 1
}

# init says who is blocked, and saves dmesg, if it still can.
stop_guest() {
	printf 'stop\n' >"$run/orders.in" &
	if ! wait_seconds 10; then
		kill -KILL "$qemu"
		wait "$qemu" || true
	fi
}

console_tail() {
	say "$*; the console's last lines:"
	tail -n 40 "$run/console" >&2
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
	case $code in
	[0-9]*) exit "$code" ;;
	stopped) console_tail "the time limit of $limit s (-t) is up" && exit 124 ;;
	esac
	if panicked; then console_tail "the guest's kernel panicked" && exit 125; fi
	if [ -n "$timed_out" ]; then
		console_tail "the time limit of $limit s (-t) is up, and the guest does not answer" && exit 124
	fi
	tail -n 5 "$run"/*.log >&2
	console_tail "the guest ended without a result" && exit 125
}

main() {
	local timed_out='' qemu tails
	# Hides nothing that is wanted: no tree lies there, and the guest has a /dev of its own.
	mount -t tmpfs -o mode=755 tmpfs "$run"
	mkdir "$root" "$share" "$share/out"
	# Debian 12's virtiofsd keeps lock files there, named after the socket: private, two can run.
	mkdir -p /run/virtiofsd && mount -t tmpfs tmpfs /run/virtiofsd
	mkdir -p /usr/lib/modules # a machine without kernels lacks it, and modules are bound there
	build_root
	bind_hidden "$top" "$(readlink -m "$bin")" "$PWD"
	make_read_only
	mount --bind "$out" "$share/out"
	printf '%s\0' "$@" >"$share/argv"
	printf '%s\0' "$PWD" >"$share/cwd"
	environment >"$share/env"
	start_virtiofsd root "$root" always
	start_virtiofsd share "$share" auto
	start_qemu
	carry_output
	if ! wait_guest; then
		timed_out=1
		stop_guest
	fi
	wait "${tails[@]}" || true
	save_dmesg
	report
}

main "$@"
