#!/bin/bash
# A real Ceph cluster for tests: one monitor, one OSD, no manager, cephx on, all of it in one folder.
#
#   cluster.sh start DIR [--store memstore|bluestore] [--size BYTES] [--from PREBUILT]
#                         ready when it returns: DIR/ceph.conf, DIR/keyring, the pool rbd
#   cluster.sh stop DIR   both daemons end in order; what was written stays for the next `start DIR`
#   cluster.sh kill DIR   both are killed (SIGKILL)
#   cluster.sh kill-osd DIR | start-osd DIR | pause-osd DIR | resume-osd DIR
#   cluster.sh kill-mon DIR | start-mon DIR | pause-mon DIR | resume-mon DIR
#   cluster.sh fill DIR | unfill DIR
#                         the OSD says that it is full: writes wait, without an error, as they do when it is
#                         (more written than --size); and that it is not: they go on within 2 s
#   cluster.sh mon DIR JSON...
#                         commands to the monitor, as client.admin (mon_command.c)
#   cluster.sh env DIR [USER]
#                         CEPH_CONF and CEPH_ARGS, to be evaluated; USER: admin (default) or ublkd
#   cluster.sh prebuild [--store memstore|bluestore]
#                         makes a cluster for --from, if it is not there, and prints its folder
#   cluster.sh check      fails where no cluster can be started, and says why
#   cluster.sh private COMMAND...
#                         runs it in a network namespace of its own, where one can be made
#
# memstore: in memory, for speed; a killed OSD has lost all. bluestore: in a sparse file; what was
# acknowledged is there after a kill. --size: of the OSD, 1 GiB and 8 GiB by default. DIR/*.log: what the
# daemons say. The monitor is on 127.0.0.1:3300 or, where that is in use, on another port of the namespace
# of the caller.
#
# The settings that nobody would use in earnest are those of speed (paxos), of one copy (pool size), and of a
# small disk (full ratios). Users beside admin: client.ublkd, with the capabilities "profile rbd".
set -euo pipefail

# In the guest a program takes a fifth of a second to start: what `start --from` runs through starts few.
here=$(readlink -f "${BASH_SOURCE[0]}") here=${here%/*} top=${here%/*/*}
exec {nothing}<> <(:) {errors}>&2

say() { printf 'cluster.sh: %s\n' "$*" >&"$errors"; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$here/cluster.sh" | head -n -1; }

# --- programs -----------------------------------------------------------------------------------

check_programs() {
	local name
	for name in ceph-mon ceph-osd ceph-authtool monmaptool rados rbd; do
		command -v $name >/dev/null || die "$name is missing: ./dev check installs it"
	done
	find_mon_command || die "no mon_command in build: install librados-dev and build"
}

# The release build first: the others check themselves, which takes time.
find_mon_command() {
	local build
	for build in release clang asan; do
		commander=$top/build/$build/test/mon_command
		if [ -x "$commander" ]; then return; fi
	done
	return 1
}

mon_command() { CEPH_CONF=$dir/ceph.conf CEPH_ARGS='' "$commander" "$@"; }

# --- files --------------------------------------------------------------------------------------

# What does not change, and the monitor's port.
read_settings() { read -r fsid port store size <"$dir/settings"; }
write_settings() { echo "$fsid $port $store $size" >"$dir/settings"; }

write_conf() {
	local sockets=
	# a path of a socket has at most 107 bytes
	if [ ${#dir} -le 90 ]; then sockets="$dir/\$type.asok"; fi
	cat >"$dir/ceph.conf" <<-END
		[global]
		fsid = $fsid
		mon host = [v2:127.0.0.1:$port]
		keyring = $dir/keyring
		auth cluster required = cephx
		auth service required = cephx
		auth client required = cephx
		auth allow insecure global id reclaim = false
		ms bind msgr1 = false
		ms bind ipv6 = false
		ms async op threads = 2
		public addr = 127.0.0.1
		run dir = $dir
		crash dir = $dir
		log to stderr = false
		err to stderr = true
		debug rocksdb = 0
		log max recent = 500
		osd pool default size = 1
		osd pool default min size = 1
		osd pool default pg num = 8
		osd pool default pgp num = 8
		osd pool default pg autoscale mode = off
		osd crush chooseleaf type = 0
		[mon]
		mon data = $dir/mon
		keyring = $dir/mon/keyring
		log file = $dir/mon.log
		mon cluster log file = $dir/cluster.log
		admin socket = $sockets
		mon allow pool size one = true
		mon allow pool delete = true
		mon data avail crit = 1
		mon data avail warn = 1
		paxos propose interval = 0.05
		paxos min wait = 0.01
		[osd]
		osd data = $dir/osd
		keyring = $dir/osd/keyring
		log file = $dir/osd.log
		admin socket = $sockets
		osd objectstore = $store
		memstore device bytes = $size
		bluestore block size = $size
		bluestore cache autotune = false
		bluestore cache size = 33554432
		osd journal =
		# it is in the map from the beginning
		osd crush update on start = false
		osd class update on start = false
		# it is started together with the monitor
		mon client hunt interval = 0.3
		osd op queue = wpq
		osd op num shards = 2
		osd op num threads per shard = 1
		# memstore writes what it has into its folder when it ends in order
		osd fast shutdown = false
		# how soon it says that it is full
		osd heartbeat interval = 1
		osd mon report interval = 1
		# A lease of an hour (180 heartbeat graces), not of 16 s. With one copy, ceph-osd 16 lets requests that it
		# comes to after a pause, before it has renewed an expired lease of their PG, wait for ever (its issue 61650).
		osd pool default read lease ratio = 180
	END
}

# --- processes ----------------------------------------------------------------------------------

# start_time PID: goes with the number, which another process may have later. Sets $began and $state.
start_time() {
	local stat
	{ read -ra stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	state=${stat[2]} began=${stat[21]}
}

# runs NAME: sets $pid. Not a zombie, which nobody may have waited for yet.
runs() {
	local noted began state
	{ read -r pid noted <"$dir/$1.pid"; } 2>/dev/null || return 1
	start_time "$pid" && [ "$began" = "$noted" ] && [ "$state" != Z ]
}
is_gone() { ! runs "$1"; }

# daemon NAME OPTION...: unless it runs
started=()
daemon() {
	local name=$1 pid began state
	shift
	if runs "$name"; then return; fi
	# of its own session: what ends the caller's does not end it
	setsid "ceph-$name" -c "$dir/ceph.conf" "$@" -f </dev/null >>"$dir/$name.out" 2>&1 {nothing}<&- {errors}>&- &
	started+=($!)
	start_time $! && echo "$! $began" >"$dir/$name.pid"
}
launch_mon() { daemon mon -i a; }
launch_osd() { daemon osd -i 0; }

why_not() { # NAME
	tail -q -n 5 "$dir/$1.out" "$dir/$1.log" >&"$errors" || true
	die "ceph-$1 has ended"
}

# await COMMAND...: which waits for the daemons; in vain when one that was started here ends.
await() {
	local ended=0 code=0 waiter
	"$@" &
	waiter=$!
	wait -n -p ended $waiter "${started[@]}" || code=$?
	if [ "$ended" = $waiter ] && [ $code = 0 ]; then return; fi
	kill $waiter 2>/dev/null || true
	runs mon || why_not mon
	[ ! -e "$dir/osd.pid" ] || runs osd || why_not osd
	die "no success: $*"
}

# That the OSD is "up" says less: it may be what the monitor still believes of the one that was killed.
pool_answers() { await mon_command -p rbd; }

# Sets $now, in seconds. On the guest's instruction clock time may jump; the hardware clock does not.
real_time() { { read -r now </sys/class/rtc/rtc0/since_epoch; } 2>/dev/null || now=$SECONDS; }

until_gone() { # NAME
	local now begin
	real_time
	begin=$now
	until is_gone "$1"; do
		real_time
		if [ $((now - begin)) -gt 60 ]; then die "ceph-$1 does not end"; fi
		read -rt 0.03 -u "$nothing" || true
	done
}

end() { # SIGNAL NAME
	local pid
	if is_gone "$2"; then return; fi
	kill "-$1" "$pid"
	# one that is paused ends as well
	kill -CONT "$pid" 2>/dev/null || true
	until_gone "$2"
}

send() { # SIGNAL NAME
	local pid
	runs "$2" || die "ceph-$2 does not run"
	kill "-$1" "$pid"
}

# --- a new cluster ------------------------------------------------------------------------------

# free_port: sets $port. In the namespace of the caller.
free_port() {
	port=3300
	while listens $port; do port=$((20000 + RANDOM % 10000)); done
}
listens() { # PORT
	local hex local_address state
	printf -v hex %04X "$1"
	while read -r _ local_address _ state _; do
		if [[ $local_address == *:$hex && $state == 0A ]]; then return; fi
	done </proc/net/tcp
	return 1
}

# The users; the monitor learns them when its store is made.
make_keyrings() {
	mkdir -p "$dir/mon" "$dir/osd"
	ceph-authtool -C "$dir/mon.keyring" -g -n mon. --cap mon 'allow *'
	ceph-authtool -C "$dir/keyring" -g -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
	ceph-authtool "$dir/keyring" -g -n client.ublkd --cap mon 'profile rbd' --cap osd 'profile rbd'
	ceph-authtool -C "$dir/osd/keyring" -g -n osd.0 --cap mon 'profile osd' --cap osd 'allow *'
	ceph-authtool "$dir/mon.keyring" --import-keyring "$dir/keyring"
	ceph-authtool "$dir/mon.keyring" --import-keyring "$dir/osd/keyring"
}

make_monmap() {
	monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:127.0.0.1:$port]" "$dir/monmap"
}

make_mon() {
	make_keyrings
	make_monmap
	ceph-mon -c "$dir/ceph.conf" --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/mon.keyring"
}

# ceph-osd --mkfs asks the monitor, and complains of what it is about to make.
make_osd() {
	local uuid
	read -r uuid </proc/sys/kernel/random/uuid
	await mon_command "{\"prefix\": \"osd new\", \"uuid\": \"$uuid\", \"id\": 0}" \
		'{"prefix": "osd crush add", "id": 0, "weight": 1.0, "args": ["root=default", "host=ceph"]}'
	ceph-osd -c "$dir/ceph.conf" -i 0 --mkfs --osd-uuid "$uuid"
}

make_pool() {
	mon_command '{"prefix": "osd pool create", "pool": "rbd", "pg_num": 8, "pgp_num": 8, "pool_type": "replicated"}'
	pool_answers
	CEPH_CONF=$dir/ceph.conf CEPH_ARGS='' rbd pool init rbd
}

make_cluster() {
	read -r fsid </proc/sys/kernel/random/uuid
	free_port
	write_settings
	write_conf
	make_mon
	launch_mon
	make_osd
	launch_osd
	make_pool
	: >"$dir/made"
}

# --- one that was made before -------------------------------------------------------------------

# The monitor's address is in its store.
move_mon() {
	make_monmap
	ceph-mon -c "$dir/ceph.conf" -i a --inject-monmap "$dir/monmap"
}

start_again() {
	local made_on
	read_settings
	if is_gone mon; then
		made_on=$port
		free_port
		write_settings
		write_conf
		if [ "$port" != "$made_on" ]; then move_mon; fi
	fi
	launch_mon
	launch_osd
	pool_answers
}

# --- commands -----------------------------------------------------------------------------------

parse_options() {
	store=memstore size='' from=''
	while [ $# -gt 0 ]; do
		case $1 in
		--store) store=$2 ;;
		--size) size=$(numfmt --from=iec "$2") ;;
		--from) from=$2 ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift 2
	done
	case $store in
	memstore) size=${size:-$((1 << 30))} ;;
	bluestore) size=${size:-$((8 << 30))} ;;
	*) die "no such store: $store" ;;
	esac
}

cmd_start() {
	parse_options "$@"
	[ -d "$dir" ] || mkdir -p "$dir"
	if [ -n "$from" ] && [ ! -e "$dir/made" ]; then cp -r --sparse=always "$from/." "$dir"; fi
	trap start_failed EXIT
	if [ -e "$dir/made" ]; then start_again; else make_cluster; fi >>"$dir/make.log" 2>&1
	trap - EXIT
}
start_failed() {
	tail -n 5 "$dir/make.log" >&"$errors"
	cmd_kill
}

cmd_stop() { end TERM osd; end TERM mon; }
cmd_kill() { end KILL osd; end KILL mon; }
cmd_kill-osd() { send KILL osd; until_gone osd; }
cmd_kill-mon() { send KILL mon; until_gone mon; }
cmd_start-osd() { launch_osd; pool_answers; }
cmd_start-mon() { launch_mon; await mon_command '{"prefix": "mon stat"}' >/dev/null; }
cmd_pause-osd() { send STOP osd; }
cmd_pause-mon() { send STOP mon; }
cmd_resume-osd() { send CONT osd; }
cmd_resume-mon() { send CONT mon; }

# full_ratios NEARFULL BACKFILLFULL FULL: of the OSD's size
full_ratios() {
	mon_command "{\"prefix\": \"osd set-nearfull-ratio\", \"ratio\": $1}" \
		"{\"prefix\": \"osd set-backfillfull-ratio\", \"ratio\": $2}" \
		"{\"prefix\": \"osd set-full-ratio\", \"ratio\": $3}" "${@:4}"
}
# An OSD is never empty. With the number, because "nearfull osd(s)" comes first. Pool quotas do nothing without a manager.
cmd_fill() { full_ratios 0.0000001 0.0000002 0.0000003 -u '1 full osd(s)' '{"prefix": "health"}' >/dev/null; }
cmd_unfill() { full_ratios 0.85 0.9 0.95; }

cmd_mon() { mon_command "$@"; }

cmd_env() {
	printf 'export CEPH_CONF=%q CEPH_ARGS=%q\n' "$dir/ceph.conf" "--id ${1:-admin}"
}

cmd_prebuild() {
	parse_options "$@"
	local kept=$top/build/ceph/$store
	if [ "$kept/made" -nt "$here/cluster.sh" ]; then
		echo "$kept"
		return
	fi
	mkdir -p "$top/build/ceph"
	dir=$(mktemp -d "$top/build/ceph/new.XXXXXX")
	cmd_start "$@"
	cmd_stop
	rm -rf "$kept" "$dir"/*.{log,out,pid}
	mv "$dir" "$kept"
	echo "$kept"
}

# loopback is down in a new namespace
cmd_private() {
	local user=()
	[ "$(id -u)" = 0 ] || user=(--map-root-user)
	if unshare "${user[@]}" --net true 2>/dev/null && command -v ip >/dev/null; then
		# shellcheck disable=SC2016 # for the inner shell
		exec unshare "${user[@]}" --net bash -c 'ip link set lo up && exec "$@"' private "$@"
	fi
	exec "$@"
}

main() {
	local command=${1:-help}
	[ $# -eq 0 ] || shift
	case $command in
	help | -h | --help) usage && exit ;;
	private) cmd_private "$@" ;;
	check) check_programs && exit ;;
	prebuild)
		check_programs
		cmd_prebuild "$@"
		exit
		;;
	esac
	if ! declare -F "cmd_$command" >/dev/null || [ -z "${1:-}" ]; then usage >&2 && exit 2; fi
	dir=$(readlink -m "$1")
	shift
	check_programs
	"cmd_$command" "$@"
}

main "$@"
