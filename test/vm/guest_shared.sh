#!/bin/bash
# In the guest: four devices that share one cache over an image of nginx, two of them below overlays that are written.
# One request for what all of them ask for at once; the death and the upgrade of the daemon under loads, while the cache
# is dropped again and again; a reload with another tree; a server that is gone; devices that leave, and who has the
# store after the last one.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_devices.sh"

nginx=$(dirname "$(dirname "$here")")/build/vm/nginx/nginx
if [ ! -x "$nginx" ]; then
	echo "ok 1 - shared # SKIP $(cat "${nginx%/*}/why" 2>/dev/null || echo 'no build/vm/nginx: test/vm/nginx.sh')"
	echo 1..1
	exit 0
fi

kills=1 upgrades=1
[ -z "${UBLKD_SOAK:-}" ] || kills=50 upgrades=5
ram_disk 700 || exit 1
ip link set lo up
www=/mnt/ram/www image=/mnt/ram/www/disk.img
mkdir -p $www /mnt/ram/nginx
block=65536 blocks=768
cpus=$(nproc)
last_cpu=$((cpus - 1))

# ---- the server ----

# One worker: what it has answered before it answers another request is in the log by then.
cat >"$work/nginx.conf" <<NGINX
daemon off;
worker_processes 1;
pid $work/nginx.pid;
error_log /mnt/ram/nginx/error.log;
events {}
http {
	log_format ranges '\$request_method \$status \$body_bytes_sent \$http_range';
	access_log /mnt/ram/nginx/access.log ranges;
	client_body_temp_path /mnt/ram/nginx/1; proxy_temp_path /mnt/ram/nginx/2; fastcgi_temp_path /mnt/ram/nginx/3;
	uwsgi_temp_path /mnt/ram/nginx/4; scgi_temp_path /mnt/ram/nginx/5;
	server {
		listen 127.0.0.1:8080;
		root $www;
	}
}
NGINX
start_nginx() {
	"$nginx" -p /mnt/ram/nginx -e /mnt/ram/nginx/error.log -c "$work/nginx.conf" >"$work/nginx.log" 2>&1 &
	nginx_pid=$!
	wait_for 20 test -s "$work/nginx.pid"
}
signal_nginx() { # SIGNAL
	local found
	read -ra found <<<"$(pids nginx)"
	kill "-$1" "$nginx_pid" "${found[@]}"
}
stop_nginx() {
	signal_nginx KILL 2>/dev/null
	wait "$nginx_pid" 2>/dev/null
	rm -f "$work/nginx.pid"
}
get() { # PORT PATH
	exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' "$2" >&3 && cat <&3
	exec 3>&-
}
# Sets $requests and $bytes: what nginx has answered that has a byte of this range of the image. Who opens it asks for
# its first byte alone.
asked_for() { # [OFFSET LENGTH]
	get 8080 /nothing >/dev/null
	read -r requests bytes <<<"$(awk -v from="${1:-0}" -v end="$((${1:-0} + ${2:-$blocks * $block}))" '
		$2 != 206 || $4 == "bytes=0-0" { next }
		{ split($4, range, "[=-]") }
		range[2] < end && range[3] >= from { requests++; bytes += $3 }
		END { printf "%d %d\n", requests, bytes }' /mnt/ram/nginx/access.log)"
	echo "$requests requests, $bytes bytes"
}
# nothing_asked COMMAND...: the command is done without a byte of the image from nginx.
nothing_asked() {
	local before
	asked_for
	before=$bytes
	"$@" && asked_for && [ "$bytes" = "$before" ]
}

# ---- the devices ----

origin='{type: http, url: "http://127.0.0.1:8080/disk.img", timeout: 60s, on_disconnect: {queue: 60s}}'
store='{type: file, path: /mnt/ram/store, size: 80MiB, create: true}'
base="{type: shared, name: base, backend: {type: cache, backend: $origin, store: $store}}"
overlay() { # NAME
	echo "{type: qcow2, create: true, data: {type: file, path: /mnt/ram/$1.qcow2, create: true}, backing: *base}"
}
cat >"$work/shared.yaml" <<YAML
daemon: {reactors: $reactors, metrics: "127.0.0.1:9740"}
devices:
  - {name: one, queues: $cpus, backend: &base $base}
  - {name: two, queues: $cpus, backend: *base}
  - {name: vm1, queues: $cpus, backend: $(overlay vm1)}
  - {name: vm2, queues: $cpus, backend: $(overlay vm2)}
  - {name: alike, backend: {type: qcow2, create: true, size: 16MiB, data: {type: file, path: /mnt/ram/alike.qcow2, create: true}}}
YAML
plain='one two' overlays='vm1 vm2'
all="$plain $overlays"

serve() { dd if=/dev/urandom of=$image bs=$block count=$blocks status=none && start_nginx; }
ok "nginx serves an image" serve
ok "they start, with an alias of what they share" start_daemon "$work/shared.yaml"
# shellcheck disable=SC2086 # words
ok "... and are live" are_live $all
# One of them is the home of what they share; from the other its requests go there.
by_each_reactor() {
	local name
	for name in $all; do
		ublkctl --json show "$name" | jq -c .queue_reactors | tee "$work/said"
		[ "$(jq 'unique | length' "$work/said")" = "$cpus" ] || return
	done
}
ok "... each with a queue on each reactor" by_each_reactor
opened() { [ "$(grep -c 'shared backend opened' "$work/ublkd.log")" = "$1" ]; } # TIMES
# What comes from below goes through a buffer then.
same_path() { # NAME
	ublkctl --json show "$1" | jq -r .data_path | tee "$work/said"
	[ "$(cat "$work/said")" = "$(ublkctl --json show alike | jq -r .data_path)" ]
}
for name in $overlays; do ok "$name: has the data path of its own file" same_path $name; done
ok "... and its device is deleted" delete alike 20
ok "it was opened once" opened 1

# ---- one request for all ----

shared_offset=$((blocks / 2 * block))
sixty_four_reads() {
	local name jobs=()
	for name in $all; do jobs+=(--name="$name" --filename="$(blk "$name")"); done
	exec fio --name=global --readonly --thread --ioengine=psync --direct=1 --rw=read --bs=$block --size=$block \
		--offset=$shared_offset --numjobs=16 --cpus_allowed="0-$last_cpu" --cpus_allowed_policy=split --minimal \
		"${jobs[@]}" >"$work/fio.log" 2>&1
}
all_wait() { # REQUESTS
	local name nr=0
	for name in $all; do
		nr=$((nr + $(ublkctl --json inflight "$name" | jq '[.. | objects | select(has("tag"))] | length')))
	done
	echo "$nr wait"
	[ $nr = "$1" ]
}
# While the server stands still, so that all are there before one is answered.
one_request() {
	local fio waits=0
	asked_for "$shared_offset" $block
	[ "$requests" = 0 ] && signal_nginx STOP || return
	sixty_four_reads &
	fio=$!
	wait_for 60 all_wait 64 || waits=1
	signal_nginx CONT
	wait $fio || { grep '^fio:' "$work/fio.log" | head -4 && return 1; }
	asked_for "$shared_offset" $block
	[ $waits = 0 ] && [ "$requests" = 1 ] && [ "$bytes" = $block ]
}
ok "64 reads of one block by all devices: one request" one_request

# read_by CPU NAME SKIP COUNT: of 512 KiB each, by one of its queues.
read_by() {
	taskset -c "$1" dd if="$(blk "$2")" bs=512k skip="$3" count="$4" iflag=direct status=none
}
half=$((blocks / 16))
# whole_image NAME: a half of it by each queue.
whole_image() { cmp <(read_by 0 "$1" 0 $half && read_by $last_cpu "$1" $half $half) $image; }
# same_as_image NAME: 4 MiB at each end, which tell much and take little.
same_as_image() {
	cmp <(read_by 0 "$1" 0 8) <(head -c 4M $image) &&
		cmp <(read_by $last_cpu "$1" $((2 * half - 8)) 8) <(tail -c 4M $image)
}
all_same() {
	local name readers=() code=0
	for name in $all; do
		whole_image "$name" &
		readers+=($!)
	done
	for name in "${readers[@]}"; do wait "$name" || code=1; done
	return $code
}
ok "all of them at once, by each of their queues, read the image" all_same
once() {
	asked_for
	[ "$bytes" -ge $((blocks * block)) ] && [ "$bytes" -le $((blocks * block * 105 / 100)) ]
}
ok "nginx was asked for the image once" once
ok "what one has read is there for all" nothing_asked whole_image two

# ---- what is said of it ----

caches() { ublkctl --json show "$1" | jq "[.. | objects | select(has(\"hit_ratio\"))][0].$2"; } # NAME KEY
shows() {
	local name
	for name in $all; do ublkctl --json show "$name"; done
}
one_counts() {
	shows | jq -sc '[.[] | .. | objects | select(has("hit_ratio"))]' >"$work/said"
	cat "$work/said"
	[ "$(jq "length == $(wc -w <<<"$all") and (map(del(.repeated)) | unique | length) == 1 and
		(map(select(.repeated | not)) | length) == 1" "$work/said")" = true ]
}
ok "show has the same cache at each device, repeated at all but one" one_counts
connections_counted() {
	shows | jq -sc '[.[] | .. | objects | select(has("server") and has("state")) | .repeated == true] | group_by(.) |
		map(length)' >"$work/said"
	cat "$work/said"
	[ "$(jq 'length == 2 and .[0] > 0 and .[1] == 3 * .[0]' "$work/said")" = true ]
}
ok "... and so it is with its connections" connections_counted
metrics_count_once() {
	get 9740 /metrics >"$work/metrics"
	grep '^ublkd_cache_' "$work/metrics"
	[ "$(grep -c '^ublkd_cache_blocks{' "$work/metrics")" = 1 ] &&
		[ "$(sed -nE 's/^ublkd_cache_hits_total\{.*\} //p' "$work/metrics")" = "$(caches one hits)" ] &&
		[ "$(sed -nE 's/^ublkd_connection_up\{device="([^"]*)".*/\1/p' "$work/metrics" | sort -u | wc -l)" = 1 ]
}
ok "the metrics count it once" metrics_count_once

# ---- commands: by any of the devices ----

is_there() { [ "$(caches "$1" used_blocks)" -ge "$2" ]; } # NAME BLOCKS
stats() { said 'readthrough' ublkctl cache stats "$1"; }
drops() { ublkctl cache drop "$1" && [ "$(caches two used_blocks)" = 0 ]; }
warms() { ublkctl cache warm "$1" && is_there one $blocks; }
for name in $all; do
	ok "$name: stats of the cache" stats $name
done
for name in $plain; do ok "$name: dropped by it" drops $name; done
ok "vm2: warmed by it" warms vm2
ok "... for all" nothing_asked eval "whole_image one && whole_image vm1"
ok "vm1: dropped by it" drops vm1
ok "two: warmed by it" warms two

# ---- who may use it, and who not ----

added() { printf '%s\n' "$1" | ublkctl add -f -; }            # DEVICE
refused() { ! answers "$1" added "$2"; }                      # WORDS DEVICE
joins() { added "{name: five, backend: $base}" && are_live five && same_as_image five; }
ok "a fifth device is added, and has all at once" nothing_asked joins
ok "... and is deleted" delete five 20
ok "another backend under the name is refused" refused 'shared: "base" has another backend in device "one"' \
	"{name: five, backend: {type: shared, name: base, backend: {type: file, path: $image}}}"
ok "... and so is another block_size" refused 'shared: "base" has another block_size in device "one"' \
	"{name: five, block_size: 4096, backend: $base}"
ok "the store alone, or under another name, is refused" refused 'is the file of device "one"' \
	"{name: five, backend: {type: shared, name: others, backend: {type: cache, backend: $origin, store: $store}}}"
ok "none of them has come" gone five
# shellcheck disable=SC2086 # words
ok "... and the others live" are_live $all
ok "it is still what was opened first" opened 1

# ---- the daemon dies, or is upgraded, under loads ----

# reads NAME: as load, of a device that is only read.
reads() {
	mkdir -p "$work/load/$1"
	while [ ! -e "$work/load/enough" ]; do
		same_as_image "$1" >"$work/load/$1/fio.log" 2>&1 || exit 1
	done &
	loads[$1]=$!
}
# Nginx is asked again and again. There may be no daemon at times.
drops_go_on() {
	while [ -e "$work/goes_on" ]; do
		for name in $all; do
			ublkctl cache drop "$name"
			rest 0.5
		done
	done >/dev/null 2>&1
}
for name in $overlays; do load $name; done
for name in $plain; do reads $name; done
touch "$work/goes_on"
drops_go_on &
drops=$!
asked_for >/dev/null
before=$requests
# shellcheck disable=SC2086 # words
ok "killed $kills times under load, it serves again" kill_and_start $kills "$work/shared.yaml" $all
rm "$work/goes_on"
wait $drops
asked_for >/dev/null
ok "nginx was asked meanwhile" test "$requests" -gt "$before"
if driver_has QUIESCE; then
	ok "upgraded under load" upgrade $upgrades
else
	skip "upgraded under load" "an older driver cannot"
fi
ok "no error, no mismatch" load_ends
ok "no error has reached the block layer" no_io_error

# What the loads do not write.
base_is_below() { cmp -i 24MiB "$(blk "$1")" $image; } # NAME
for name in $overlays; do ok "$name: the image is where nothing was written" base_is_below $name; done
for name in $plain; do ok "$name: reads the image" whole_image $name; done

# ---- a reload with another tree ----

keep_content() { # NAME
	dd if="$(blk "$1")" of="/mnt/ram/$1.raw" bs=1M iflag=direct status=none
}
content() { cmp "/mnt/ram/$1.raw" <(dd if="$(blk "$1")" bs=1M iflag=direct status=none); } # NAME
for name in $overlays; do keep_content $name; done
has_prefetch() { # BLOCKS NAME...
	local name
	for name in "${@:2}"; do
		[ "$(ublkctl --json show "$name" | jq '[.. | objects | select(has("prefetch"))][0].prefetch')" = "$1" ] || return
	done
}
# The new tree is there when all have left the old one.
reload() {
	local opens
	opens=$(grep -c 'shared backend opened' "$work/ublkd.log")
	sed -i 's/type: cache,/type: cache, prefetch: 8,/' "$work/shared.yaml" && kill -HUP "$(server)" &&
		wait_for 60 opened $((opens + 1)) && wait_for 60 eval "are_live $all" >/dev/null &&
		eval "has_prefetch 8 $all" && opened $((opens + 1))
}
ok "a reload changes what they share: all are started again" reload
ok "no device has failed" eval "! log_has 'other devices use'"
for name in $plain; do ok "$name: reads the image" same_as_image $name; done
for name in $overlays; do ok "$name: has what was written" content $name; done

# ---- the server is gone, and devices go ----

ok "vm1: warmed by it" warms vm1
stop_nginx
for name in $plain; do ok "$name: what is cached is read without the server" same_as_image $name; done
for name in $overlays; do ok "$name: what is cached is read without the server" content $name; done
load vm1
reads two
leaves() { all_work && delete one 20 && all_work; }
ok "one leaves under load, the others go on" leaves
ok "no error, no mismatch" load_ends
all='two vm1 vm2'
ok "one of the others counts now" one_counts
for name in two vm1; do ok "$name leaves" delete $name 20; done
ok "vm2: reads what is cached, alone" content vm2
ok "vm2 leaves, the last of them" delete vm2 20

ok "nginx is back" start_nginx
alone() {
	added "{name: alone, backend: {type: cache, backend: $origin, store: $store}}" && are_live alone &&
		is_there alone $blocks && same_as_image alone
}
ok "a device has the store for itself, and it is warm" nothing_asked alone
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note

# ---- the end, while a device is being opened over what is shared ----

cat >"$work/opening.yaml" <<YAML
daemon: {reactors: $reactors}
devices:
  - {name: opening, read_only: true, backend: {type: stripe, backends: [{type: shared, name: image, backend: {type: file, path: $image}}, $origin]}}
YAML
signal_nginx STOP
ok "a device waits for a server that stands still" eval "start_daemon '$work/opening.yaml' && logs 'shared backend opened'"
ok "the daemon ends all the same" end_server
signal_nginx CONT
stop_nginx
finish
