#!/bin/bash
# In the guest: disks of nginx. Content, a writable overlay with a file system, a server that ends and comes back
# under a load, the death of the daemon, an object that is replaced, TLS.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

nginx=$(dirname "$(dirname "$here")")/build/vm/nginx/nginx
if [ ! -x "$nginx" ]; then
	echo "ok 1 - http # SKIP $(cat "${nginx%/*}/why" 2>/dev/null || echo 'no build/vm/nginx: test/vm/nginx.sh')"
	echo 1..1
	exit 0
fi

ram_disk 500 || exit 1
ip link set lo up
www=/mnt/ram/www
mkdir -p $www /mnt/ram/nginx

# ---- the server ----

# A certificate of the machine's own, for 127.0.0.1.
printf '%s\n' 'cn = test' 'ip_address = 127.0.0.1' tls_www_server 'expiration_days = 2' >"$work/template"
certtool --generate-privkey --ecc --outfile "$work/key.pem" 2>/dev/null
certtool --generate-self-signed --load-privkey "$work/key.pem" --template "$work/template" --outfile "$work/cert.pem" 2>/dev/null
cat >"$work/nginx.conf" <<NGINX
daemon off;
pid $work/nginx.pid;
error_log /mnt/ram/nginx/error.log;
events {}
http {
	access_log /mnt/ram/nginx/access.log;
	client_body_temp_path /mnt/ram/nginx/1; proxy_temp_path /mnt/ram/nginx/2; fastcgi_temp_path /mnt/ram/nginx/3;
	uwsgi_temp_path /mnt/ram/nginx/4; scgi_temp_path /mnt/ram/nginx/5;
	server {
		listen 127.0.0.1:8080;
		listen 127.0.0.1:8443 ssl http2;
		ssl_certificate $work/cert.pem;
		ssl_certificate_key $work/key.pem;
		root $www;
		location = /moved.img { return 302 http://127.0.0.1:8080/disk.img; }
	}
}
NGINX
start_nginx() {
	"$nginx" -p /mnt/ram/nginx -e /mnt/ram/nginx/error.log -c "$work/nginx.conf" >"$work/nginx.log" 2>&1 &
	nginx_pid=$!
	wait_for 20 test -s "$work/nginx.pid"
}
stop_nginx() {
	local all
	read -ra all <<<"$(pids nginx)"
	kill -KILL "$nginx_pid" "${all[@]}" 2>/dev/null
	wait "$nginx_pid" 2>/dev/null
	rm -f "$work/nginx.pid"
}

# ---- the disks ----

make_disk() { # an ext4 with files
	mkdir -p "$work/files" && cp -r "$here" "$work/files/" &&
		dd if=/dev/urandom of="$work/files/random" bs=1M count=20 status=none &&
		truncate -s 64M $www/disk.img && mkfs.ext4 -Fq -d "$work/files" $www/disk.img
}

cat >"$work/one.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: base, queues: 2, backend: {type: http, url: "http://127.0.0.1:8080/disk.img", on_disconnect: {queue: 60s}}}
  - name: vm
    queues: 2
    backend:
      type: qcow2
      create: true
      data: {type: file, path: /mnt/ram/vm.qcow2, create: true}
      backing: {type: http, url: "http://127.0.0.1:8080/moved.img"}
YAML

serve() { make_disk && start_nginx; }
ok "nginx serves an image" serve
two_devices() { start_daemon "$work/one.yaml" && [ -b "$(node base)" ] && [ -b "$(node vm)" ]; }
ok "two devices on it" two_devices
base=$(node base)
ok "the size is the object's" test "$(blockdev --getsize64 "$base")" = $((64 << 20))
ok "it is read-only" test "$(blockdev --getro "$base")" = 1
ok "the content is the object's" cmp "$base" $www/disk.img
# direct, of any size, many at a time, each compared
reads() {
	fio --name=read --filename="$base" --readonly --ioengine=io_uring --direct=1 --rw=randread --bsrange=512-1M \
		--blockalign=512 --bs_unaligned=0 --iodepth=32 --io_size=32M --size=100% --minimal >"$work/fio.log" 2>&1 || cat "$work/fio.log"
	cmp <(dd if="$base" bs=1M iflag=direct status=none) $www/disk.img
}
ok "direct reads of any size" reads
ok "show has a line for each queue" said 'http://127.0.0.1:8080' ublkctl show base
connected() { [ "$(ublkctl --json show base | jq -r '[.connections[].state] | unique | join(" ")')" = connected ]; }
ok "... which are connected" connected

# ---- the overlay ----

overlay() {
	mkdir -p /mnt/vm && mount "$(node vm)" /mnt/vm && diff -r "$here" "/mnt/vm/${here##*/}" &&
		cp /mnt/vm/random /mnt/vm/copy && sync -f /mnt/vm && cmp /mnt/vm/random /mnt/vm/copy
}
ok "a writable overlay, over an object that has moved" overlay
stored() { [ "$(stat -c %b /mnt/ram/vm.qcow2)" -lt $((110 << 11)) ]; }
ok "it stores what was written alone" stored

# ---- outages ----

outage() {
	local fio
	fio --name=read --filename="$base" --readonly --ioengine=io_uring --direct=1 --rw=randread --bs=16k --iodepth=16 \
		--time_based --runtime=6 --minimal >"$work/fio.log" 2>&1 &
	fio=$!
	rest 1
	stop_nginx
	rest 2
	ublkctl show base
	start_nginx
	wait $fio || { cat "$work/fio.log" && return 1; }
}
ok "the server is killed under a load and comes back: no error" outage
ok "the content is still the object's" cmp "$base" $www/disk.img

crash() {
	local fio
	fio --name=read --filename="$base" --readonly --ioengine=io_uring --direct=1 --rw=randread --bs=16k --iodepth=16 \
		--time_based --runtime=5 --minimal >"$work/fio.log" 2>&1 &
	fio=$!
	rest 1
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	start_daemon "$work/one.yaml" || return
	wait $fio || { cat "$work/fio.log" && return 1; }
	cmp "$base" $www/disk.img && cmp /mnt/vm/random /mnt/vm/copy
}
ok "the daemon is killed under a load: adopted, no error" crash

# ---- another object ----

ok "the overlay is unmounted" umount /mnt/vm
replace() {
	cp $www/disk.img $www/new.img && printf new | dd of=$www/new.img conv=notrunc status=none &&
		touch -d '1 hour' $www/new.img && mv $www/new.img $www/disk.img
}
replaced() { replace && ! dd if="$base" of=/dev/null bs=64k count=1 iflag=direct status=none; }
ok "the object is replaced: reads fail" replaced
ok "... and list says why" said 'is not what it was' ublkctl --json list
anew() { stop_daemon && start_daemon "$work/one.yaml" && cmp "$(node base)" $www/disk.img; }
ok "anew it is the new one" anew
stop_daemon

# ---- attach, TLS, HTTP/2 ----

echo '{}' >"$work/none.yaml"
start_daemon "$work/none.yaml"
ok "attach of a URL" said 'is disk.img' ublkctl attach http://127.0.0.1:8080/disk.img
refused() { ! answers 'certificate' ublkctl attach https://127.0.0.1:8443/disk.img --name tls && grep -q certificate "$work/said"; }
ok "a certificate of nobody's is refused" refused
ublkctl del tls >/dev/null 2>&1
add_tls() {
	echo "{name: tls, backend: {type: http, url: 'https://127.0.0.1:8443/disk.img', ca_file: $work/cert.pem}}" |
		ublkctl add -f - && cmp -n $((8 << 20)) "$(node tls)" $www/disk.img && grep -q 'HTTP/2' /mnt/ram/nginx/access.log
}
ok "TLS and HTTP/2" add_tls
stop_daemon
stop_nginx
finish
