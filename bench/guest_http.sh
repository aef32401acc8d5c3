# shellcheck shell=bash
# An object of nginx, in this guest, for bench/guest.sh, which sources this: ublkd's backend http, and nbdkit's curl
# plugin behind nbd.ko. What nginx needs counts for both.

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

start_nbdkit_curl() {
	start_http_server || return
	modprobe nbd nbds_max=1 || { why="no module nbd"; return 1; }
	device=/dev/nbd0
	if nbdkit -U "$nbd_socket" -P "$work/nbdkit.pid" curl url=$http_url >"$work/nbdkit" 2>&1 &&
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
