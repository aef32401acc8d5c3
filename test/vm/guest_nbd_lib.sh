# shellcheck shell=bash
# Shared by the guest suites about NBD: servers on files of a RAM disk, devices on them, fio. Sourced
# after guest_lib.sh, with guest_devices.sh.

for program in nbdkit qemu-nbd nbd-server; do
	if ! command -v $program >/dev/null; then
		skip "devices on NBD servers" "no $program: ./dev check installs it"
		finish
	fi
done
. "$here/guest_devices.sh"
ram_disk 700 || exit 1
ip link set lo up
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

# device NAME QUEUES URI [CONNECTIONS [MORE BACKEND OPTIONS [MORE DEVICE OPTIONS]]]
device() {
	echo "  - {name: $1, queues: $2, ${6:-}backend: {type: nbd, uri: \"$3\", connections: ${4:-1}, ${5:-timeout: 60s, on_disconnect: {queue: 60s\}, cache: kept}}}"
}

# configure ...: as device(), into the file that start_nbd starts the daemon on
printf 'daemon: {reactors: %s, stop_timeout: 3s}\ndevices:\n' "$reactors" >"$work/nbd.yaml"
configure() { device "$@" >>"$work/nbd.yaml"; }

# start_nbd NAME...: starts the daemon; these devices must be there
start_nbd() {
	start_daemon "$work/nbd.yaml" && wait_for 90 are_live "$@"
}

# add_device: as device(), to the daemon that runs
add_device() {
	device "$@" | sed 's/^ *- //' | ublkctl add -f - >/dev/null && ask_daemon
}

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
