# shellcheck shell=bash
# An object of nginx, in this guest, for bench/guest.sh, which sources this: ublkd's backend http, and nbdkit's curl
# plugin behind nbd.ko, both also with a cache on the RAM disk. What nginx needs counts for both.

http_nginx=$(dirname "$(dirname "$here")")/build/vm/nginx/nginx
http_url=http://127.0.0.1:8080/file

start_http_server() {
	why="$(cat "${http_nginx%/*}/why" 2>/dev/null || echo "no build/vm/nginx: test/vm/nginx.sh")"
	[ -x "$http_nginx" ] || return
	ip link set lo up
	mkdir -p "$work/nginx"
	cat >"$work/nginx.conf" <<NGINX
pid $work/nginx.pid;
error_log $work/nginx/error.log;
events {}
http {
	access_log off; sendfile on;
	client_body_temp_path $work/nginx/1; proxy_temp_path $work/nginx/2; fastcgi_temp_path $work/nginx/3;
	uwsgi_temp_path $work/nginx/4; scgi_temp_path $work/nginx/5;
	keepalive_requests 1000000000;
	server { listen 127.0.0.1:8080; root ${file%/*}; }
}
NGINX
	"$http_nginx" -p "$work/nginx" -e "$work/nginx/error.log" -c "$work/nginx.conf" >"$work/nginx.log" 2>&1 && return
	why="nginx: $(tail -n 1 "$work/nginx.log")"
	return 1
}

stop_http_server() {
	kill "$(cat "$work/nginx.pid")"
	wait_for 5 eval '! pidof nginx >/dev/null'
}

# The part of the object that is read through a cache.
http_cache_mib=64

start_nbdkit_curl() { # MODE [FILTER [PARAMETER...]]
	start_http_server || return
	modprobe nbd nbds_max=1 || { why="no module nbd"; return 1; }
	device=/dev/nbd0
	if nbdkit -U "$nbd_socket" -P "$work/nbdkit.pid" ${2:+--filter=$2} curl url=$http_url "${@:3}" >"$work/nbdkit" 2>&1 &&
		nbd-client -unix "$nbd_socket" $device >"$work/nbd-client" 2>&1; then return; fi
	why="nbdkit: $(tail -qn 1 "$work/nbdkit" "$work/nbd-client")"
	stop_http_server
	return 1
}

start_ublkd_http() { # MODE
	start_http_server || return
	start_ublkd "$1" "{type: http, url: \"$http_url\"}" && return
	stop_http_server
	return 1
}

# Its file is in TMPDIR, and gone with it.
start_nbdkit_curl_cache() { # MODE
	TMPDIR=${file%/*} start_nbdkit_curl "$1" cache cache-on-read=true
}

start_ublkd_http_cache() { # MODE
	start_http_server || return
	start_ublkd "$1" "{type: cache, backend: {type: http, url: \"$http_url\"}, store: {type: file, path: ${file%/*}/cache, size: $((http_cache_mib + 16))MiB, create: true}}" &&
		return
	stop_http_server
	return 1
}

# is_cold SYSTEM RW: nothing of it has been read before.
is_cold() { [[ $1 == *-http-cache || $1 == *-curl-cache ]] && [ "$2" = read ]; }

# Options of fio: once through it, or all over what is there.
http_load() { # SYSTEM RW
	[[ $1 == *-cache ]] || return 0
	echo "--size=${http_cache_mib}M"
	if is_cold "$1" "$2"; then echo "--time_based=0 --ramp_time=0"; fi
}
