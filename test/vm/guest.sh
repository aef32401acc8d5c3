#!/bin/bash
# The inside of one run of vm.sh: lays out the guest's root, starts virtiofsd and QEMU, carries the
# output, waits. Its mounts and processes are private (vm.sh starts it in namespaces of its own), so
# it cleans up nothing: everything left ends with the namespaces. vm.sh exports the settings it uses.
#
#   $run/root     served as the guest's root: the machine's folders, read-only, and our init
#   $run/share    orders to init (argv, env, cwd, binds), its answers (exit, dmesg), and out/
#   $run/console  the kernel's serial console; stdout, stderr: the command's
set -euo pipefail
# shellcheck disable=SC2154 # exported by vm.sh
: "$top" "$out" "$bin" "$dmesg" "$virtiofsd" "$kernel" "$series" "$cpus" "$memory" "$limit" "$disk" "$nvme"

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

# --- processes ----------------------------------------------------------------------------------

start_virtiofsd() { # TAG FOLDER CACHE
	local tries options=(-o "source=$2" -o "cache=$3")
	if "$virtiofsd" --help 2>&1 | grep -q -- --shared-dir; then # the one written in Rust
		options=(--shared-dir "$2" --cache "$3" --no-announce-submounts)
	fi
	"$virtiofsd" --socket-path="$run/$1.sock" "${options[@]}" >"$run/$1.log" 2>&1 &
	for ((tries = 0; tries < 500; tries++)); do
		if [ -S "$run/$1.sock" ]; then return; fi
		sleep 0.02
	done
	die "virtiofsd did not start: $(tail -n 3 "$run/$1.log")"
}

# CPU features that are hidden or set, and why:
# cx16: QEMU 7.2 corrupts EFLAGS on cmpxchg16b, and 6.12 crashes now and then. erms, fsrm: rep movs
# is slow byte by byte. la57, smap, smep, pku and the unused parts of q35: time at start.
machine_options() {
	local accel=(-accel "tcg,thread=multi")
	local cpu=max,-la57,-smap,-smep,-pku,-erms,-fsrm,-cx16
	if [ -n "$icount" ]; then
		accel=(-accel "tcg,thread=single" -icount "shift=0,sleep=off")
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

# maxcpus: init brings the others up. QEMU before 8.1 can run code that another CPU is patching,
# which the boot does a lot: one in thirty crashed. noreplace-smp, because that would patch once
# more. lpj (3 GHz at 250 Hz: longer delays do no harm) and no_ipi_broadcast: where emulation is slow,
# a CPU that came up hung while it measured its speed, or missed an interrupt that was sent to all.
# The watchdogs would measure the host's load, and console noise costs time.
kernel_line() {
	local hung=
	# on the instruction clock a guest that waits for the host is hours ahead
	if [ -n "$icount" ]; then hung=sysctl.kernel.hung_task_timeout_secs=0; fi
	echo "root=rootfs rootfstype=virtiofs rw init=/init console=ttyS0 quiet panic=-1 oops=panic" \
		"tsc=reliable mitigations=off nokaslr no_timer_check rcupdate.rcu_expedited=1" \
		"cryptomgr.notests nowatchdog maxcpus=1 noreplace-smp log_buf_len=1M" \
		"no_ipi_broadcast=1 lpj=12000000 $hung"
}

add_share() { # TAG SOCKET
	devices+=(-chardev "socket,id=$1,path=$2" -device "vhost-user-fs-pci,chardev=$1,tag=$1")
}

# The guest's hvc0, hvc1 and so on, in the order of the calls.
add_console() { # NAME CHARDEV
	devices+=(-chardev "$2,id=$1" -device "virtconsole,chardev=$1")
}

# The guest sees a write-back cache and has to flush. A file is written past this machine's page cache,
# as a disk would be.
add_disk() { # FILE or SOCKET, or nothing
	local blockdev
	if [ -S "$1" ]; then
		blockdev="driver=nbd,server.type=unix,server.path=$1"
	elif [ -n "$1" ]; then
		blockdev="driver=file,filename=$1,cache.direct=on,cache.no-flush=off,aio=threads,locking=off"
	else
		return 0
	fi
	devices+=(-blockdev "node-name=disk,$blockdev" -device "virtio-blk-pci,drive=disk,write-cache=on")
}

add_nvme() {
	devices+=(-blockdev "node-name=zeroes,driver=null-co,size=67108864,read-zeroes=on"
		-blockdev "node-name=nvme,driver=blkdebug,image=zeroes,inject-error.0.event=none,inject-error.0.iotype=read,inject-error.0.sector=2048,inject-error.0.once=on"
		-device "nvme,serial=guest,drive=nvme")
}

start_qemu() {
	local devices=(-device "virtio-serial-pci,max_ports=4") machine
	machine_options
	mkfifo "$run/orders.in" "$run/orders.out"
	touch "$run/console" "$run/stdout" "$run/stderr"
	add_share rootfs "$run/rootfs.sock"
	add_share share "$run/share.sock"
	# Files, not pipes: a virtconsole drops what a full pipe does not take.
	add_console stdout "file,path=$run/stdout"
	add_console stderr "file,path=$run/stderr"
	add_console orders "pipe,path=$run/orders"
	add_disk "$disk"
	if [ -n "$nvme" ]; then add_nvme; fi
	"${UBLKD_VM_QEMU:-qemu-system-x86_64}" "${machine[@]}" "${devices[@]}" \
		-serial "file:$run/console" -kernel "$kernel/vmlinux" -append "$(kernel_line)" \
		>"$run/qemu.log" 2>&1 &
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

is_read() { # tail ends when its reader has gone
	kill -0 "${tails[0]}" 2>/dev/null && kill -0 "${tails[1]}" 2>/dev/null
}

# Returns when the guest has ended, or must be ended: then $why and $why_code are set. A panic
# ends QEMU (panic=-1, -no-reboot) unless the panic itself hangs: that is given 5 to 10 seconds.
wait_guest() {
	local deadline=$((SECONDS + limit)) left was_panicked=''
	why_code=125
	while ((left = deadline - SECONDS, left > 0)); do
		if wait_seconds $((left < 5 ? left : 5)); then return; fi
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
	printf 'stop\n' >"$run/orders.in" &
	if ! wait_seconds 10; then
		kill -KILL "$qemu"
		wait "$qemu" || true
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
	local why='' why_code qemu tails
	# Hides nothing that the guest needs: no tree is there, and the guest has a /dev of its own.
	mount -t tmpfs -o mode=755,size=1g tmpfs "$run"
	mkdir "$root" "$share"
	mount -t tmpfs -o size=64m tmpfs "$share" # of its own: endless output leaves it room
	mkdir "$share/out"
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
	start_virtiofsd rootfs "$root" always
	start_virtiofsd share "$share" auto
	start_qemu
	carry_output
	wait_guest
	if [ -n "$why" ]; then stop_guest; fi
	wait "${tails[@]}" || true
	save_dmesg
	report
}

main "$@"
