# shellcheck shell=bash
# The emulated machine of guest.sh: a stock kernel in QEMU, its root and its share by virtiofs. Sourced.
#
# machine_start: sets $machine, the process whose end is the guest's.

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
# is slow byte by byte. la57, smap, smep, pku and the unused parts of q35: time at start. avx: starting a program takes a
# tenth less without; but the instruction clock's numbers are kept and compared.
machine_options() {
	local accel=(-accel "tcg,thread=multi")
	local cpu=max,-la57,-smap,-smep,-pku,-erms,-fsrm,-cx16
	if [ -z "$icount" ]; then cpu="$cpu,-avx,-avx2"; fi
	if [ -n "$icount" ]; then
		accel=(-accel "tcg,thread=single" -icount "shift=0,sleep=off")
	elif [ -n "$single" ]; then
		accel=(-accel "tcg,thread=single")
	elif [ "${UBLKD_VM_ACCEL:-tcg}" = kvm ]; then
		accel=(-accel kvm) cpu=host
	fi
	options=("${accel[@]}" -cpu "$cpu" -smp "$cpus"
		-M "q35,smm=off,hpet=off,sata=off,usb=off,vmport=off,memory-backend=mem"
		-m "$memory" -object "memory-backend-file,id=mem,size=$memory,share=on,mem-path=$run/memory/guest"
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

machine_start() {
	local devices=(-device "virtio-serial-pci,max_ports=4") options
	mount --bind "$out" "$share/out"
	# Debian 12's virtiofsd keeps lock files there, named after the socket: private, two can run.
	mkdir -p /run/virtiofsd && mount -t tmpfs tmpfs /run/virtiofsd
	start_virtiofsd rootfs "$root" always
	start_virtiofsd share "$share" auto
	machine_options
	mkfifo "$run/orders.out" # QEMU opens both ends
	add_share rootfs "$run/rootfs.sock"
	add_share share "$run/share.sock"
	# Files, not pipes: a virtconsole drops what a full pipe does not take.
	add_console stdout "file,path=$run/stdout"
	add_console stderr "file,path=$run/stderr"
	add_console orders "pipe,path=$run/orders"
	add_disk "$disk"
	if [ -n "$nvme" ]; then add_nvme; fi
	"$qemu" "${options[@]}" "${devices[@]}" \
		-serial "file:$run/console" -kernel "$kernel/vmlinux" -append "$(kernel_line)" \
		>"$run/machine.log" 2>&1 &
	machine=$!
}
