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
#                         the OSD says that it is full: writes wait; and that it is not
#   cluster.sh mon DIR JSON...
#                         commands to the monitor, as client.admin (mon_command.c)
#   cluster.sh env DIR [USER]
#                         CEPH_CONF and CEPH_ARGS, to be evaluated; USER: admin (default) or ublkd
#   cluster.sh prebuild [--store memstore|bluestore]
#                         makes a cluster for --from, if it is not there, and prints its folder
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

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$(dirname "$(dirname "$here")")

say() { printf 'cluster.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$here/cluster.sh" | head -n -1; }

# --- programs -----------------------------------------------------------------------------------

check_programs() {
	local name
	for name in ceph-mon ceph-osd ceph-authtool monmaptool rbd; do
		command -v $name >/dev/null || die "$name is missing: ./dev check installs it"
	done
	commander=$(find_mon_command)
	[ -n "$commander" ] || die "no mon_command in build: install librados-dev and build"
}

# The release build first: the others check themselves, which takes time.
find_mon_command() {
	local build
	for build in release clang asan; do
		if [ -x "$top/build/$build/test/mon_command" ]; then
			echo "$top/build/$build/test/mon_command"
			return
		fi
	done
}

mon_command() { # JSON or option...
	CEPH_CONF=$dir/ceph.conf CEPH_ARGS='' "$commander" "$@" >>"$dir/mon_command.log" 2>&1 || {
		tail -n 3 "$dir/mon_command.log" >&2
		die "the monitor does not do that: $*"
	}
}

# --- files --------------------------------------------------------------------------------------

uuid() { cat /proc/sys/kernel/random/uuid; }

# An absolute socket path has at most 107 bytes.
admin_sockets() {
	if [ ${#dir} -le 90 ]; then echo "admin socket = $dir/\$type.asok"; else echo 'admin socket ='; fi
}

write_conf() {
	cat >"$dir/ceph.conf" <<-END
		[global]
		fsid = $(cat "$dir/fsid")
		mon host = [v2:127.0.0.1:$(cat "$dir/port")]
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
		debug memstore = -1/-1
		log max recent = 500
		mon client hunt interval = 1
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
		$(admin_sockets)
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
		$(admin_sockets)
		osd objectstore = $(cat "$dir/store")
		memstore device bytes = $(cat "$dir/size")
		bluestore block size = $(cat "$dir/size")
		bluestore cache autotune = false
		bluestore cache size = 33554432
		osd journal =
		osd crush initial weight = 1
		osd op queue = wpq
		osd op num shards = 2
		osd op num threads per shard = 1
		# memstore writes what it has into its folder when it ends in order
		osd fast shutdown = false
		# how soon it says that it is full
		osd heartbeat interval = 1
	END
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

# --- processes ----------------------------------------------------------------------------------

# The start time goes with the number, which another process may have later.
pid_of() { cut -d ' ' -f 1 "$dir/$1.pid"; } # mon or osd

start_time() { { cut -d ' ' -f 22 "/proc/$1/stat"; } 2>/dev/null; } # PID

# Not a zombie, which nobody may have waited for yet.
runs() {
	local pid began state
	{ read -r pid began <"$dir/$1.pid"; } 2>/dev/null || return 1
	[ "$(start_time "$pid")" = "$began" ] || return 1
	{ read -r _ _ state _ <"/proc/$pid/stat"; } 2>/dev/null && [ "$state" != Z ]
}

# until_true SECONDS COMMAND...
until_true() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		if [ $SECONDS -gt $deadline ]; then return 1; fi
		sleep 0.03
	done
}
is_gone() { ! runs "$1"; }

# port_used HEX: somebody listens there, in this network namespace
port_used() { grep -q "^ *[0-9]*: [0-9A-F]*:$1 [0-9A-F:]* 0A " /proc/net/tcp; }
port_hex() { printf '%04X' "$1"; }
free_port() {
	local port=3300
	while port_used "$(port_hex $port)"; do port=$((20000 + RANDOM % 10000)); done
	echo $port
}

daemon() { # mon or osd, OPTIONS
	local name=$1
	shift
	# of its own session: what ends the caller's does not end it
	setsid "ceph-$name" -c "$dir/ceph.conf" "$@" -f </dev/null >>"$dir/$name.out" 2>&1 &
	echo "$! $(start_time $!)" >"$dir/$name.pid"
}

why_not() {
	tail -n 5 "$dir/$1.out" "$dir/$1.log" >&2 || true
	die "ceph-$1 does not start"
}

mon_listens() { is_gone mon || port_used "$(port_hex "$(cat "$dir/port")")"; }

start_mon() {
	if runs mon; then return; fi
	daemon mon -i a
	if ! until_true 60 mon_listens || is_gone mon; then why_not mon; fi
}

launch_osd() {
	if runs osd; then return; fi
	daemon osd -i 0
}

# The OSD answers the pool's users. That it is "up" says less: it may be what the monitor still believes of
# the one that was killed. A client that saw the OSD down looks again after a tick, of 5 s as a rule.
pool_answers() {
	local deadline=120
	CEPH_CONF=$dir/ceph.conf CEPH_ARGS=--objecter-tick-interval=0.1 timeout $deadline rados -p rbd stat rbd_info >>"$dir/rados.log" 2>&1 || {
		runs osd || why_not osd
		die "the pool does not answer within $deadline s"
	}
}

end() { # SIGNAL NAME
	if is_gone "$2"; then return; fi
	kill "-$1" "$(pid_of "$2")"
	# one that is paused ends as well
	kill -CONT "$(pid_of "$2")" 2>/dev/null || true
	until_true 60 is_gone "$2" || die "ceph-$2 does not end"
}

must_run() { runs "$1" || die "ceph-$1 does not run"; }

# --- a new cluster ------------------------------------------------------------------------------

default_size() { if [ "$1" = memstore ]; then echo $((1 << 30)); else echo $((8 << 30)); fi; }

make_mon() {
	local port
	port=$(cat "$dir/port")
	monmaptool --create --fsid "$(cat "$dir/fsid")" --addv a "[v2:127.0.0.1:$port]" "$dir/monmap"
	ceph-mon -c "$dir/ceph.conf" --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/mon.keyring"
}

make_osd() {
	local id
	id=$(uuid)
	mon_command "{\"prefix\": \"osd new\", \"uuid\": \"$id\", \"id\": 0}"
	# it says on stderr that it finds no label and no journal yet
	ceph-osd -c "$dir/ceph.conf" -i 0 --mkfs --osd-uuid "$id"
	launch_osd
	mon_command -u '"num_up_osds":1' '{"prefix": "osd stat", "format": "json"}'
}

make_pool() {
	mon_command '{"prefix": "osd pool create", "pool": "rbd", "pg_num": 8, "pgp_num": 8, "pool_type": "replicated"}'
	CEPH_CONF=$dir/ceph.conf CEPH_ARGS='' rbd pool init rbd
}

logged() { "$@" >>"$dir/make.log" 2>&1 || { tail -n 5 "$dir/make.log" >&2; die "failed: $*"; }; }

make_cluster() {
	uuid >"$dir/fsid"
	free_port >"$dir/port"
	write_conf
	logged make_keyrings
	logged make_mon
	start_mon
	logged make_osd
	logged make_pool
}

# --- one that was made before -------------------------------------------------------------------

# The monitor's address is in its store.
move_mon() {
	local port
	port=$(free_port)
	if [ "$port" = "$(cat "$dir/port")" ]; then return; fi
	echo "$port" >"$dir/port"
	write_conf
	rm -f "$dir/monmap"
	monmaptool --create --fsid "$(cat "$dir/fsid")" --addv a "[v2:127.0.0.1:$port]" "$dir/monmap"
	ceph-mon -c "$dir/ceph.conf" -i a --inject-monmap "$dir/monmap"
}

start_again() {
	if ! runs mon; then
		write_conf
		logged move_mon
	fi
	start_mon
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
	[[ $store == memstore || $store == bluestore ]] || die "no such store: $store"
}

cmd_start() {
	parse_options "$@"
	mkdir -p "$dir"
	if [ -n "$from" ] && [ ! -e "$dir/made" ]; then cp -r --sparse=always "$from/." "$dir"; fi
	if [ -e "$dir/made" ]; then
		start_again
		return
	fi
	echo "$store" >"$dir/store"
	echo "${size:-$(default_size "$store")}" >"$dir/size"
	make_cluster
	touch "$dir/made"
}

cmd_stop() { end TERM osd; end TERM mon; }
cmd_kill() { end KILL osd; end KILL mon; }
cmd_kill-osd() { must_run osd; end KILL osd; }
cmd_kill-mon() { must_run mon; end KILL mon; }
cmd_start-osd() { launch_osd; pool_answers; }
cmd_start-mon() { start_mon; mon_command '{"prefix": "mon stat"}'; }
cmd_pause-osd() { must_run osd; kill -STOP "$(pid_of osd)"; }
cmd_pause-mon() { must_run mon; kill -STOP "$(pid_of mon)"; }
cmd_resume-osd() { must_run osd; kill -CONT "$(pid_of osd)"; }
cmd_resume-mon() { must_run mon; kill -CONT "$(pid_of mon)"; }

cmd_mon() { CEPH_CONF=$dir/ceph.conf CEPH_ARGS='' exec "$commander" "$@"; }

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
	rm -rf "$kept"
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
