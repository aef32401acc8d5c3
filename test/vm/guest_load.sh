# shellcheck shell=bash
# A load with verified content, which runs while a test does something else with the daemon. Sourced.

# A configuration: one device in memory, one in a file, both with two queues that a load can fill.
two_devices() {
	cat <<EOF
daemon: {reactors: $reactors}
devices:
  - {name: memory, queues: 2, depth: 32, backend: {type: mem, size: 64M}}
  - {name: file, queues: 2, depth: 32, backend: {type: file, path: /mnt/ram/f, size: 64M, create: true}}
EOF
}

# load NAME [FIO OPTION...]: writes and checks one device over and over until $work/enough is there. Its
# verdict is for loads_well, which waits for the last round.
loaded=()
nodes=
load() {
	local name=$1 device
	device=$(node "$name")
	shift
	(
		while [ ! -e "$work/enough" ]; do
			nice -n 19 fio --name=load --filename="$device" --ioengine=io_uring --direct=1 --rw=randwrite \
				--bs=4k-64k --size=16M --io_size=8M --numjobs=2 --offset_increment=32M --iodepth=32 \
				--verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=0 \
				--verify_state_save=0 --minimal "$@" >"$work/$name.fio" 2>&1 || exit 1
		done
	) &
	echo $! >"$work/$name.pid"
	loaded+=("$name")
	nodes+=" $device"
}

# Ends all of it: no request failed, and what was read is what was written.
loads_well() {
	local name pid failed=0
	touch "$work/enough"
	for name in "${loaded[@]}"; do
		read -r pid <"$work/$name.pid"
		wait "$pid" || { echo "$name:" && tail -5 "$work/$name.fio" && failed=1; }
	done
	rm -f "$work/enough"
	return $failed
}

# Hundreds of requests on each, or all of it proved nothing: the loads run until then, so before loads_well.
were_busy() { wait_for 60 are_busy; }
are_busy() {
	local node
	for node in $nodes; do
		awk -v node="$node" '{ print node, $1, $5; exit !($1 > 300 && $5 > 300) }' "/sys/block/${node#/dev/}/stat" ||
			return 1
	done
}
