# shellcheck shell=bash
# Shared by the guest suites about NBD: servers on files of a RAM disk, devices on them, fio. Sourced
# after guest_lib.sh. Loops that poll fork little: a process costs 50 ms or more in the guest.

for program in nbdkit qemu-nbd nbd-server; do
	if ! command -v $program >/dev/null; then
		skip "devices on NBD servers" "no $program: ./dev check installs it"
		finish
	fi
done
ram_disk 700 || exit 1
ip link set lo up
disks=/mnt/ram
run=$work/nbd
mkdir -p $run

# ---- servers ----

declare -A server_pid

# serve NAME COMMAND...: a server that stays in the foreground, on the socket $run/NAME or on a port. The
# socket of a killed server is removed first, because nbdkit does not start on it.
serve() {
	local name=$1
	shift
	rm -f "$run/$name"
	"$@" >>"$run/$name.log" 2>&1 &
	server_pid[$name]=$!
}

# nbd_server NAME WHERE: one process per connection, all of them children of the one that listens.
nbd_server() {
	printf '[generic]\n%s\nallowlist = true\n[disk]\nexportname = %s\nflush = true\nfua = true\ntrim = true\n' \
		"$2" "$disks/$1" >"$run/$1.conf"
	rm -f "$run/$1" "$run/$1.pid"
	# nbd-server closes all possible descriptors
	(ulimit -n 1024 && exec nbd-server -C "$run/$1.conf" -p "$run/$1.pid") >>"$run/$1.log" 2>&1
	wait_for 20 test -s "$run/$1.pid"
	server_pid[$1]=$(cat "$run/$1.pid")
}

# family PID: the process and its children, which a killed parent cannot stop.
family() {
	local children=
	read -r children 2>/dev/null <"/proc/$1/task/$1/children"
	echo "$1 $children"
}

unserve() {
	[ -n "${server_pid[$1]:-}" ] || return 0
	# shellcheck disable=SC2046
	kill -9 $(family "${server_pid[$1]}") 2>/dev/null
	# a child that was forked meanwhile has its sockets, and accepts nothing
	[ ! -e "$run/$1.conf" ] || pkill -9 -f "nbd-server -C $run/$1.conf"
	# bash prints "Killed" at any later time
	{ wait "${server_pid[$1]}"; } 2>/dev/null
	unset "server_pid[$1]"
}
unserve_all() {
	local name
	for name in "${!server_pid[@]}"; do unserve "$name"; done
}

# listens NAME: a server listens on its socket (on a stale one, none does); listening PORT
listens() {
	local line
	[ -S "$run/$1" ] || return
	while read -r line; do [[ $line != *" $run/$1" ]] || return 0; done </proc/net/unix
	return 1
}
listening() { grep -q "$(printf '0100007F:%04X 00000000:0000 0A' "$1")" /proc/net/tcp; }
# all_listen NAME_OR_PORT...
all_listen() {
	local name
	for name; do
		if [[ $name == [0-9]* ]]; then wait_for 60 listening "$name"; else wait_for 60 listens "$name"; fi ||
			{ echo "$name does not listen"; return 1; }
	done
}
unix() { echo "nbd+unix:///${2:-}?socket=$run/$1"; }

disk() { [ -e "$disks/$1" ] || truncate -s "${2:-24M}" "$disks/$1"; }

# ---- devices ----

declare -A node_of

# device NAME QUEUES URI [CONNECTIONS [MORE BACKEND OPTIONS [MORE DEVICE OPTIONS]]]
device() {
	echo "  - {name: $1, queues: $2, ${6:-}backend: {type: nbd, uri: \"$3\", connections: ${4:-1}, ${5:-timeout: 60s, on_disconnect: {queue: 60s\}, cache: kept}}}"
}

# configure ...: as device(), into the file that start_nbd starts the daemon on
printf 'daemon: {reactors: %s, stop_timeout: 3s}\ndevices:\n' "$reactors" >"$work/nbd.yaml"
configure() { device "$@" >>"$work/nbd.yaml"; }

# Fills node_of with the devices that are live.
ask_daemon() {
	local name id state
	node_of=()
	ublkctl --json list | jq -r '.. | objects | select(has("name") and has("id")) | "\(.name) \(.id) \(.state)"' \
		>"$work/list" || return
	while read -r name id state; do
		[ "$state" = live ] && node_of[$name]=/dev/ublkb$id
	done <"$work/list"
	cat "$work/list"
}
are_live() { # NAME...
	local name
	ask_daemon || return
	for name; do [ -b "${node_of[$name]:-}" ] || { echo "$name is not live"; return 1; }; done
}
# start_nbd NAME...: starts the daemon; these devices must be there
start_nbd() {
	start_daemon "$work/nbd.yaml" && wait_for 90 are_live "$@"
}
# blk NAME: its block device, or a path that cannot be written.
blk() { echo "${node_of[$1]:-/proc/no-device-$1}"; }

# add_device: as device(), to the daemon that runs
add_device() {
	device "$@" | sed 's/^ *- //' | ublkctl add -f - >/dev/null && ask_daemon
}

gone() { ! ublkctl show "$1" >/dev/null; }
# delete NAME LIMIT [OPTION...]: within so many seconds.
delete() {
	local start
	real_time
	start=$real_seconds
	# It says when that takes longer than it should.
	ublkctl del "$1" "${@:3}"
	wait_for "$2" gone "$1" || return
	real_time
	echo "took $((real_seconds - start)) s"
	[ $((real_seconds - start)) -le "$2" ]
}

# ---- data ----

# Two jobs at QD32, each on a half of a disk of 24 MiB; those of one queue: one job.
two_jobs="--iodepth=32 --numjobs=2 --size=8M --io_size=2M --offset_increment=12M --blockalign=4k"
one_job="--iodepth=32 --size=16M --io_size=2M --blockalign=4k"
# shellcheck disable=SC2086
verify_two() { verify "$(blk "$1")" $two_jobs --bsrange=4k-256k "${@:2}"; }
# shellcheck disable=SC2086
verify_one() { verify "$(blk "$1")" $one_job --bsrange=4k-64k "${@:2}"; }
same_bytes() { cmp "$disks/$1" "$(blk "${2:-$1}")"; }

daemon_lives() { kill -0 "$daemon_pid"; }

# Instead of finish: stops the servers, and prints their output if a test failed.
finish_nbd() {
	local name
	ok "the daemon lives" daemon_lives
	if [ "$bad" -gt 0 ]; then
		grep -h 'level=fatal' "$work/ublkd.log" | sed 's/^/# ublkd: /'
		for name in "$run"/*.log; do tail -n 3 "$name" | sed "s|^|# $(basename "$name"): |"; done
	fi
	unserve_all
	finish
}
