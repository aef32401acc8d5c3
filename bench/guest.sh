#!/bin/bash
# Runs in the guest on the instruction clock: measures the cells of /out/bench-plan.N (the argument is
# N), and appends each to /out/bench-rows.N. bench.sh starts it. UBLKD_BENCH_MS is the length of a
# measurement; UBLKD_BENCH_KUBLK and UBLKD_BENCH_FLOOR are the paths of programs. With UBLKD_BENCH_THREADS
# each thread's share is printed. UBLKD_BENCH_CLIENT_CPU is fio's CPU; empty: any.
#
# A line of the plan is SYSTEM MODE RW BS QD. Lines with the same system and mode are adjacent and
# share one new device (but see group_of_cell). A mode that is not available gets a row with "-" and the reason.
full_fio=1 # the committed rows were measured with it
. "$(dirname "$(readlink -f "$0")")/../test/vm/guest_lib.sh"
. "$here/guest_nvme_lib.sh"
. "$here/guest_rbd_lib.sh"
. "$(dirname "$(readlink -f "$0")")/guest_qcow2.sh"
. "$(dirname "$(readlink -f "$0")")/guest_http.sh"
. "$(dirname "$(readlink -f "$0")")/scale/guest_scale.sh"

plan=/out/bench-plan.$1
rows=/out/bench-rows.$1
file=/mnt/ram/file
stripes=(/mnt/stripe/{0,1,2,3})
warm_ms=100 ramp_ms=100
: >"$rows"
uname -r >/out/bench-kernel

# --- systems: each start_* sets $device, or fails and leaves the reason in $why --------------------

start_null_blk() {
	modprobe null_blk nr_devices=1 submit_queues=1 hw_queue_depth=128 gb=1
	device=/dev/nullb0
	wait_for 5 test -b $device || { why="no $device"; return 1; }
}

start_file() { device=$file; }

start_loop() {
	modprobe loop
	device=$(losetup --find --show --direct-io=on "$file" 2>&1) || { why=$device; return 1; }
	[ "$(cat "/sys/block/${device##*/}/loop/dio")" = 1 ] || { why="no direct I/O"; return 1; }
}

# Options of kublk: -q 1 queue, -d 128 requests. Its largest I/O is always 1 MiB.
start_kublk() { # TYPE MODE [FILE]
	local flags=() type=$1 mode=$2 path=${mode_path[$2]:-$2}
	shift 2
	case $path in
	copy) ;;
	zero_copy) flags+=(-z) ;;
	auto_zc) flags+=(--auto_zc) ;;
	user_copy) flags+=(-u) ;;
	get_data) flags+=(-g) ;;
	*) why="unknown mode $path of kublk"; return 1 ;;
	esac
	if [[ $mode == *+batch ]]; then flags+=(-b); fi
	device=/dev/ublkb0
	# it waits forever when its daemon died
	timeout -k 1 10 "$UBLKD_BENCH_KUBLK" add -t "$type" -n 0 -q 1 -d 128 "${flags[@]}" "$@" \
		>"$work/kublk" 2>&1 || echo "add failed or hung (exit code $?)" >>"$work/kublk"
	test -b $device && kublk_has_mode "$path" "$mode" && return
	why="kublk: $(grep -v '^[[:space:]]*$' "$work/kublk" | tail -n 1)"
	stop_kublk
	return 1
}

# Otherwise a device that is not removed would be measured instead of the next one.
stop_kublk() {
	timeout -k 1 10 "$UBLKD_BENCH_KUBLK" del -n 0 >/dev/null 2>&1 && return
	kill_servers
	timeout -k 1 10 "$UBLKD_BENCH_KUBLK" del -n 0 >/dev/null 2>&1
	wait_for 5 test ! -e /dev/ublkb0 || { echo "kublk's device cannot be removed" >&2; exit 1; }
}

# The kernel then ends their requests in flight.
kill_servers() {
	local pids
	pids=$(pidof kublk ublkd) || return 0
	# shellcheck disable=SC2086 # several
	kill -KILL $pids
}

# Older drivers ignore flags that they do not know: checks that the device has the requested ones.
kublk_has_mode() { # PATH MODE
	local flags want=0
	flags=$("$UBLKD_BENCH_KUBLK" list -n 0 | sed -nE 's/.* flags 0x([0-9a-f]+).*/\1/p' | head -n 1)
	case $1 in
	zero_copy) want=$((1 << 0)) ;;
	get_data) want=$((1 << 2)) ;;
	user_copy) want=$((1 << 7)) ;;
	auto_zc) want=$((1 << 11)) ;;
	esac
	if [[ $2 == *+batch ]]; then want=$((want | 1 << 15)); fi
	(((0x${flags:-0} & want) == want)) && return
	echo "this kernel's driver has no such mode (flags 0x$flags)" >>"$work/kublk"
	return 1
}

start_kublk_null() { start_kublk null "$1"; }
start_kublk_loop() { start_kublk loop "$1" "$file"; }

# The chunks of both are 64 KiB, the default of both.
start_kublk_stripe() { make_stripes && start_kublk stripe "$1" "${stripes[@]}"; }

make_stripes() { make_files /mnt/stripe 64 "${stripes[@]}"; }

# Files on a RAM disk of their own: $file stays where it is. Made once in a guest.
make_files() { # MOUNT MIB FILE...
	local one mount=$1 mib=$2
	shift 2
	if mountpoint -q "$mount"; then return; fi
	mkdir -p "$mount"
	mkfs.ext4 -q -O ^has_journal /dev/ram1 && mount /dev/ram1 "$mount" || { why="no second RAM disk"; return 1; }
	for one; do
		dd if=/dev/zero of="$one" bs=1M count="$mib" status=none || { why="no room for $one"; return 1; }
	done
	sync
}

# The mode auto is the daemon's default, without keys; other modes are set by keys. OTHERS: devices, a line each.
start_ublkd() { # MODE BACKEND [OTHERS]
	local keys='' batch=off
	if [ "$1" != auto ]; then
		if [[ $1 == *+batch ]]; then batch=on; fi
		keys="data_path: ${mode_path[$1]}, batch: $batch, "
	fi
	if [[ $system == *-shmem* ]]; then keys+="shared_memory: 32MiB, "; fi
	cat >"$work/bench.yaml" <<EOF
daemon: {reactors: [0]}
devices:
${3:-}  - {name: bench, id: 0, queues: 1, depth: 128, max_io: 1MiB, ${keys}backend: $2}
EOF
	device=/dev/ublkb0
	start_daemon "$work/bench.yaml" || true
	wait_for 60 is_live_or_gone
	ublkd_has_mode "$1" "$batch" && return
	stop_daemon 2>/dev/null
	return 1
}

ublkd_field() { ublkctl --json show bench 2>/dev/null | jq -r "$1"; }
is_live() { [ "$(ublkd_field .state)" = live ]; }
is_live_or_gone() { is_live || ! kill -0 "$daemon_pid" 2>/dev/null || [ -n "$(ublkd_field .error)" ]; }

# Sets $note to the mode that the daemon reports; fails when that is not the requested one.
ublkd_has_mode() { # MODE BATCH
	local path used=off
	if ! is_live; then
		why=$(ublkd_field .error)
		[ -n "$why" ] || why=$(grep -vE 'level=(info|debug)' "$work/ublkd.log" | tail -n 1)
		why="ublkd: ${why#*bench.yaml:}"
		return 1
	fi
	path=$(ublkd_field '.data_path // "copy"')
	if ublkd_field '.ublk_flags[]' | grep -qx BATCH_IO; then used=on; fi
	note="uses $path"
	if [ $used = on ]; then note+=+batch; fi
	[ "$1" = auto ] && return
	why="ublkd: requested ${mode_path[$1]}, batch $2; got $path, batch $used"
	[ "$path" = "${mode_path[$1]}" ] && [ "$used" = "$2" ]
}

start_ublkd_null() { start_ublkd "$1" '{type: null, size: 256MiB}'; }
start_ublkd_file() { start_ublkd "$1" "{type: file, path: $file}"; }
# Its one device is at home: with others, requests come by mail.
start_ublkd_shared() { start_ublkd "$1" "{type: shared, name: bench, backend: {type: file, path: $file}}"; }
start_ublkd_stripe() {
	local one backends=()
	make_stripes || return
	for one in "${stripes[@]}"; do backends+=("{type: file, path: $one}"); done
	start_ublkd "$1" "{type: stripe, backends: [$(IFS=, && echo "${backends[*]}")]}"
}
start_ublkd_mem() { start_ublkd "$1" '{type: mem, size: 256MiB}'; }
# fio's buffers lie in memory that it shares with the device: in tmpfs, or in huge pages.
shmem=/run/bench-shmem
share_memory() { # FILE, and its fio option
	fallocate -l 32M "$1" && ublkctl share bench "$1" >"$work/share" 2>&1 && fio_memory=--mem=$2:$1 && return
	why="ublkctl share: $(tail -n 1 "$work/share")"
	stop_daemon
	return 1
}
share_tmpfs() {
	rm -f "$shmem"
	share_memory "$shmem" mmapshared
}
share_huge() {
	echo 32 >/proc/sys/vm/nr_hugepages
	mkdir -p "$shmem.huge"
	mountpoint -q "$shmem.huge" || mount -t hugetlbfs none "$shmem.huge" || { why="no huge pages" && stop_daemon && return 1; }
	rm -f "$shmem.huge/file"
	share_memory "$shmem.huge/file" mmaphuge
}
# nbd takes a memfd alone: fio gets at it by the path of a process that holds it.
share_sealed() {
	python3 "$here/../../bench/share_memfd.py" /run/ublkd/control.sock bench $((32 << 20)) >"$work/share" 2>&1 &
	share_pid=$!
	wait_for 20 grep -q / "$work/share" && fio_memory=--mem=mmapshared:$(cat "$work/share") && return
	why="share_memfd.py: $(tail -n 1 "$work/share")"
	stop_daemon
	stop_nbdkit
	return 1
}
# The same memory, not shared: what is to be compared.
own_huge() {
	mkdir -p "$shmem.huge"
	echo 32 >/proc/sys/vm/nr_hugepages
	mountpoint -q "$shmem.huge" || mount -t hugetlbfs none "$shmem.huge" || { why="no huge pages" && stop_daemon && return 1; }
	rm -f "$shmem.huge/file"
	fallocate -l 32M "$shmem.huge/file" && fio_memory=--mem=mmaphuge:$shmem.huge/file
}
own_tmpfs() {
	rm -f "$shmem"
	fallocate -l 32M "$shmem" && fio_memory=--mem=mmapshared:$shmem
}
start_ublkd_null_huge() { start_ublkd_null "$1" && own_huge; }
start_ublkd_mem_huge() { start_ublkd_mem "$1" && own_huge; }
start_ublkd_file_huge() { start_ublkd_file "$1" && own_huge; }
start_ublkd_mem_tmpfs() { start_ublkd_mem "$1" && own_tmpfs; }
start_ublkd_file_tmpfs() { start_ublkd_file "$1" && own_tmpfs; }
start_ublkd_nbd_unix_tmpfs() { start_ublkd_nbd unix && own_tmpfs; }
start_ublkd_mem_shmem() { start_ublkd_mem "$1" && share_tmpfs; }
start_ublkd_mem_shmem_huge() { start_ublkd_mem "$1" && share_huge; }
start_ublkd_file_shmem() { start_ublkd_file "$1" && share_tmpfs; }
start_ublkd_file_shmem_huge() { start_ublkd_file "$1" && share_huge; }
start_ublkd_nbd_unix_shmem() { start_ublkd_nbd unix && share_sealed; }
start_ublkd_null_shmem() { start_ublkd_null "$1" && share_tmpfs; }
# Each other page is there: as many runs as there can be.
start_ublkd_mem_fragmented() {
	start_ublkd_mem "$1" || return
	fio --name=fragments --filename=$device --rw=write:4k --bs=4k --iodepth=32 --ioengine=io_uring --direct=1 --io_size=128M \
		>"$work/fragments" 2>&1 && return
	why="fio: $(tail -n 1 "$work/fragments")"
	stop_daemon
	return 1
}

# --- NBD: one server for all clients, nbdkit's memory plugin, in this guest

nbd_socket=$work/nbd.sock
start_nbdkit() { # unix|tcp
	ip link set lo up
	case $1 in
	unix) nbdkit -U "$nbd_socket" -P "$work/nbdkit.pid" memory 256M ;;
	tcp) nbdkit -i 127.0.0.1 -P "$work/nbdkit.pid" memory 256M ;;
	esac
}

stop_nbdkit() {
	kill "$(cat "$work/nbdkit.pid")"
	wait_for 5 eval '! pidof nbdkit >/dev/null'
	rm -f "$nbd_socket" "$work/nbdkit.pid"
}

start_nbd_ko() { # unix|tcp
	local place=(127.0.0.1)
	if [ "$1" = unix ]; then place=(-unix "$nbd_socket"); fi
	modprobe nbd nbds_max=1 || { why="no module nbd"; return 1; }
	start_nbdkit "$1" || { why="nbdkit does not start"; return 1; }
	device=/dev/nbd0
	nbd-client "${place[@]}" $device >"$work/nbd-client" 2>&1 && return
	why="nbd-client: $(tail -n 1 "$work/nbd-client")"
	stop_nbdkit
	return 1
}

start_nbd_ko_unix() { start_nbd_ko unix; }
start_nbd_ko_tcp() { start_nbd_ko tcp; }

start_ublkd_nbd() { # unix|tcp
	local uri=nbd://127.0.0.1/
	if [ "$1" = unix ]; then uri="nbd+unix:///?socket=$nbd_socket"; fi
	start_nbdkit "$1" || { why="nbdkit does not start"; return 1; }
	start_ublkd auto "{type: nbd, uri: \"$uri\"}" && return
	stop_nbdkit
	return 1
}

start_ublkd_nbd_unix() { start_ublkd_nbd unix; }
start_ublkd_nbd_tcp() { start_ublkd_nbd tcp; }

# Without a block device: the server, the sockets and a minimal client.
start_nbd_floor() { # unix|tcp
	start_nbdkit "$1" || { why="nbdkit does not start"; return 1; }
	device=10809
	if [ "$1" = unix ]; then device=$nbd_socket; fi
}

start_nbd_floor_unix() { start_nbd_floor unix; }
start_nbd_floor_tcp() { start_nbd_floor tcp; }

# --- NVMe/TCP: the kernel's target on null_blk, in this guest, for both clients

nvme_nqn=nqn.2026-01.org.example:bench
start_nvme_target() {
	if start_null_blk && nvmet_up && nvmet_subsystem $nvme_nqn "$device" && nvmet_port 1 127.0.0.1 4420 &&
		nvmet_link 1 $nvme_nqn; then return; fi
	why="the kernel's NVMe/TCP target does not start: $(cat "$work/modprobe")"
	stop_nvme_target
	return 1
}

stop_nvme_target() {
	nvmet_down && modprobe -r null_blk || { echo "the NVMe/TCP target cannot be removed" >&2; exit 1; }
}

# One I/O queue of the depth of all others here.
start_nvme_kernel() { # [OPTION,...]
	start_nvme_target || return
	if kernel_connect $nvme_nqn 127.0.0.1 4420 "nr_io_queues=1,queue_size=128${1:+,$1}" 2>"$work/connect" &&
		wait_for 20 kernel_node $nvme_nqn >/dev/null && device=$(kernel_node $nvme_nqn); then return; fi
	why="nvme-tcp does not connect: $(cat "$work/connect")"
	stop_nvme_kernel
	return 1
}

stop_nvme_kernel() {
	kernel_disconnect $nvme_nqn
	stop_nvme_target
}

start_nvme_tcp() { start_nvme_kernel; }
start_nvme_tcp_digest() { start_nvme_kernel hdr_digest,data_digest; }

start_nvme_ublkd() { # DIGESTS
	start_nvme_target || return
	start_ublkd auto "{type: nvme-tcp, host: 127.0.0.1, port: 4420, subsystem: \"$nvme_nqn\", namespace: 1,
     header_digest: $1, data_digest: $1}" && return
	stop_nvme_target
	return 1
}

start_ublkd_nvme() { start_nvme_ublkd false; }
start_ublkd_nvme_digest() { start_nvme_ublkd true; }

# --- Ceph RBD: a cluster in memory, in this guest, and one image for all clients. What the OSD and the monitor use
# does not count.

start_ceph() {
	ceph_up memstore || { why=$ceph_why; return 1; }
	# no cache, as ublkd without one and krbd: with it librbd answers writes before the cluster does
	printf '[client]\nrbd cache = false\n' >>"$ceph_dir/ceph.conf"
	rbd create --size 256M rbd/bench 2>"$work/rbd" && return
	why="no image: $(tail -n 1 "$work/rbd")"
	stop_ceph
	return 1
}

stop_ceph() {
	cluster kill >"$work/cluster" 2>&1 || { cat "$work/cluster" >&2; exit 1; }
	rm -rf "$ceph_dir"
}

start_rbd_kernel() {
	start_ceph || return
	if modprobe rbd 2>"$work/rbd" && device=$(rbd map --options noudev,ms_mode=crc rbd/bench 2>"$work/rbd"); then return; fi
	why="the kernel's rbd: $(tail -n 1 "$work/rbd") $(dmesg | grep -E 'rbd:|libceph:' | tail -n 1)"
	stop_ceph
	return 1
}

start_rbd_nbd() {
	start_ceph || return
	modprobe nbd nbds_max=1
	if device=$(CEPH_CONF=$ceph_dir/ceph.conf rbd-nbd map --keyring "$ceph_dir/keyring" --device /dev/nbd0 rbd/bench \
		2>"$work/rbd"); then return; fi
	why="rbd-nbd: $(tail -n 1 "$work/rbd")"
	stop_ceph
	return 1
}

# fio's own client of librbd, without a block device: $device is the image.
start_rbd_fio() { start_ceph && device=bench; }

start_ublkd_rbd() { # MODE
	start_ceph || return
	start_ublkd "$1" "{type: rbd, pool: rbd, image: bench, conf: $ceph_dir/ceph.conf, keyring: $ceph_dir/keyring}" && return
	stop_ceph
	return 1
}

stop() { # SYSTEM
	case $1 in
	scale-*) stop_scale "$1" ;;
	*-qcow2*) stop_qcow2 "$1" ;;
	nbdkit-curl*) nbd-client -d "$device" >/dev/null; stop_nbdkit; stop_http_server ;;
	ublkd-http*) stop_daemon; stop_http_server; rm -f "${file%/*}/cache" ;;
	nbd-floor-*) stop_nbdkit ;;
	nbd-ko-*) nbd-client -d "$device" >/dev/null; stop_nbdkit ;;
	ublkd-nbd-unix-shmem) stop_daemon; stop_nbdkit; kill "$share_pid" ;;
	ublkd-nbd-*) stop_daemon; stop_nbdkit ;;
	rbd-kernel) rbd unmap --options noudev "$device"; stop_ceph ;;
	rbd-nbd) rbd-nbd unmap "$device"; stop_ceph ;;
	rbd-fio) stop_ceph ;;
	ublkd-rbd) stop_daemon; stop_ceph ;;
	nvme-tcp*) stop_nvme_kernel ;;
	ublkd-nvme*) stop_daemon; stop_nvme_target ;;
	null_blk) modprobe -r null_blk ;;
	loop) losetup -d "$device" ;;
	kublk-*) stop_kublk ;;
	ublkd-*) stop_daemon ;;
	esac
}

# --- cells ----------------------------------------------------------------------------------------

# run_fio RW BS QD MILLISECONDS [OPTIONS]: writes its report to $work/fio.json. When a server hangs, fio waits
# forever and cannot be killed; so the server is killed, and its other cells fail.
run_fio() {
	local dog code=0
	(
		real_time
		end=$((real_seconds + 60))
		while [ "$real_seconds" -lt $end ]; do
			sleep 5
			real_time
		done
		echo "the server hung and was killed" >"$work/hung"
		kill_servers
	) &
	dog=$!
	fio_alone "$@" || code=$?
	kill $dog 2>/dev/null
	wait $dog 2>/dev/null
	return $code
}

fio_alone() {
	[ "$system" = rbd-fio ] || [ -e "$device" ] || { echo "$device is gone" >"$work/fio.err"; return 1; }
	local on=(--filename="$device" --ioengine=io_uring --direct=1 --ramp_time="${ramp_ms}ms")
	# all that the servers use is to be of the cell itself
	if is_ceph; then on=(--filename="$device" --ioengine=io_uring --direct=1); fi
	if [ -n "$fio_memory" ]; then on+=("$fio_memory"); fi
	if [ -n "${UBLKD_BENCH_CLIENT_CPU:-}" ]; then on+=(--cpus_allowed="$UBLKD_BENCH_CLIENT_CPU"); fi
	if [ "$system" = rbd-fio ]; then on=(--ioengine=rbd --clientname=admin --pool=rbd --rbdname="$device"); fi
	# shellcheck disable=SC2086 # $5: words
	CEPH_CONF=$ceph_dir/ceph.conf CEPH_KEYRING=$ceph_dir/keyring fio --name=bench "${on[@]}" --rw="$1" --bs="$2" \
		--iodepth="$3" --size=256M --norandommap=1 --randrepeat=1 --time_based=1 --runtime="$4ms" \
		--output-format=json ${5:-} >"$work/fio.json" 2>"$work/fio.err"
}

# row INSTRUCTIONS IOS RUNTIME NOTE: writes the row of the current cell.
row() {
	printf '%s,%s,%s,%s,%s,%s,%s,%s,"%s"\n' "$system" "$mode" "$rw" "$bs" "$qd" "$1" "$2" "$3" \
		"$(tr '"\n' "' " <<<"$4" | sed 's/ *$//')" >>"$rows"
	printf '%-10s %-16s %-9s %4s QD%-3s %9s  %s\n' "$system" "$mode" "$rw" "$bs" "$qd" "$1" "$4" >&2
}

# Runs the load; sets $ios and $ms from fio's JSON, because the IOPS there are rounded.
load() {
	local ns
	if [[ $system == nbd-floor-* ]]; then
		timeout -k 1 100 "$UBLKD_BENCH_FLOOR" "$device" "$(awk "BEGIN { print $UBLKD_BENCH_MS / 1000 }")" \
			"$qd" "${rw#rand}" >"$work/floor" 2>"$work/fio.err" || return
		read -r ios _ ns <"$work/floor"
		ms=$((ns / 1000000))
		return
	fi
	run_fio "$rw" "$bs" "$qd" "$UBLKD_BENCH_MS" "$(qcow2_load "$system") $(http_load "$system" "$rw") $(scale_load)" || return
	read -r ios ms < <(jq -r '.jobs[0] | "\(.read.total_ios + .write.total_ios) \(.read.runtime + .write.runtime)"' \
		"$work/fio.json")
}

# thread_times FILE: a line per thread that runs now: its number, ns of CPU, name.
thread_times() {
	local task ns
	for task in /proc/[0-9]*/task/[0-9]*; do
		{ read -r ns _ <"$task/schedstat" && echo "${task##*/} $ns $(<"$task/comm")"; } 2>/dev/null
	done >"$1"
}

is_ceph() { [[ $system == rbd-* || $system == ublkd-rbd ]]; }

# Sets $server_ns: the CPU time of the cluster's daemons.
ceph_time() {
	local pid task ns
	server_ns=0
	is_ceph || return 0
	for pid in $(pidof ceph-osd ceph-mon); do
		for task in /proc/"$pid"/task/*; do
			read -r ns _ <"$task/schedstat" && server_ns=$((server_ns + ns))
		done
	done
}

# With --threads: what each thread used of the cell's instructions per I/O, the ramp's with it. An interrupt
# counts for the thread that it interrupts; fio's own threads have ended.
print_threads() { # I/Os
	thread_times "$work/threads.after"
	awk -v ios="$1" -v ms="$UBLKD_BENCH_MS" -v ramp_ms=$ramp_ms '
		NR == FNR { before[$1] = $2; next }
		{ each = ($2 - before[$1]) * ms / (ms + ramp_ms) / ios }
		each >= 500 { printf "%20d  %s\n", each, $3 }
	' "$work/threads.before" "$work/threads.after" | sort -rn >&2
}

# A millisecond is 1,000,000 instructions.
measure() {
	local ios ms before_ns
	ceph_time
	before_ns=$server_ns
	if [ -n "$UBLKD_BENCH_THREADS" ]; then thread_times "$work/threads.before"; fi
	if [ -e "$work/hung" ] || ! load; then
		row - - - "failed: $(cat "$work/hung" "$work/fio.err" "$work/fio.json" 2>/dev/null | grep -m 1 .)"
		return
	fi
	if [ -n "$UBLKD_BENCH_THREADS" ]; then print_threads "$ios"; fi
	ceph_time
	row $(((ms * 1000000 - server_ns + before_ns + ios / 2) / ios)) "$ios" "$ms" "$note"
}

# The first I/Os through a new device cost more, so they are not measured.
warm_up() {
	[[ $system != nbd-floor-* ]] || return 0
	# what is written to an overlay no longer comes from below; an object of a web server is only read
	! is_cold "$system" "$rw" || return 0
	if [[ $system == *-cache ]]; then run_fio read 1M 8 60000 "$(http_load "$system" read)"; fi
	[[ $system == *-backing || $system == nbdkit-curl* || $system == ublkd-http* || $system == ublkd-shared || $system == *-fragmented ]] || run_fio randwrite 4k 32 $warm_ms "$(scale_load)"
	run_fio randread 4k 32 $warm_ms "$(http_load "$system" randread) $(scale_load)"
}

start_system() {
	case $system in
	scale-*) start_scale "$system" "$mode" ;;
	*-qcow2*) start_qcow2 "$system" "$mode" ;;
	*) "start_${system//-/_}" "$mode" ;;
	esac
}

# Cells of one group share a device. Those that use up an image have each their own.
group_of_cell() {
	case $system in
	*-qcow2-alloc) echo "$system $mode $rw $bs $qd" ;;
	*-http-cache | *-curl-cache) if is_cold "$system" "$rw"; then echo "$system $mode $rw $bs $qd"; else echo "$system $mode"; fi ;;
	*) echo "$system $mode" ;;
	esac
}

begin_group() {
	device='' why='' note='' fio_memory=''
	started=no
	rm -f "$work/hung"
	if start_system; then
		started=yes
		warm_up
	fi
}

end_group() {
	if [ "$started" = yes ]; then stop "${group%% *}" || true; fi
	started=no
}

declare -A mode_path
for mode in copy zero_copy auto_zc user_copy get_data; do
	mode_path[$mode]=$mode
	mode_path[$mode+batch]=$mode
done

modprobe ublk_drv || exit 1
ram_disk 400 2 || exit 1
dd if=/dev/zero of="$file" bs=1M count=256 status=none || exit 1
sync
group='' started=no
while read -r system mode rw bs qd; do
	if [ "$(group_of_cell)" != "$group" ]; then
		end_group
		group=$(group_of_cell)
		begin_group
	fi
	if [ $started = yes ]; then measure; else row - - - "refused: $why"; fi
done <"$plan"
end_group
