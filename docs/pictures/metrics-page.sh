#!/bin/bash
# Draws docs/pictures/metrics-page.png: the web page at the metrics port, of a real run. In the test guest ublkd
# serves five devices under load by fio, and all that the page asks is recorded for three minutes; on this machine
# headless Chromium gets the same answers in the same order. Usage:
#   metrics-page.sh            record, then draw (six minutes)
#   metrics-page.sh draw       draw what was recorded before (build/out/metrics-page)
#   metrics-page.sh guest      what vm.sh runs in the guest
# Needs build/release, fio, nbdkit, python3, chromium and pngquant.
# shellcheck disable=SC2154 # work, reactors: of guest_lib.sh
set -u
pictures=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$(dirname "$(dirname "$pictures")")
self=$pictures/metrics-page.sh
width=1200 height=1790 seconds=190

# load NAME [fio options]: on that device, in the background, for as long as the guest lives.
load() {
	local name=$1
	shift
	fio --name="$name" --filename="$(node "$name")" --ioengine=io_uring --direct=1 --bs=4k --rw=randrw \
		--time_based --runtime=1h "$@" >"$work/fio-$name.log" 2>&1 &
}

# serve NAME: an NBD server in memory; sets $server.
serve() {
	nbdkit -f --unix "$work/$1.sock" memory 256M >"$work/$1.log" 2>&1 &
	server=$!
	wait_for 20 test -S "$work/$1.sock"
}

served() { [ -b "$(node "$1")" ]; }

# Memory, a file, a file behind a throttle, two NBD servers; the server of vm-2 is stopped while the page looks.
guest() {
	# shellcheck disable=SC1091
	. "$top/test/vm/guest_lib.sh"
	local answering
	ram_disk 600 && ip link set lo up && serve vm-1 && serve vm-2 || exit 1
	answering=$server
	cat >"$work/page.yaml" <<-YAML
		daemon: {reactors: $reactors, metrics: "127.0.0.1:9740"}
		devices:
		  - {name: scratch, queues: 2, backend: {type: mem, size: 256MiB}}
		  - {name: db, queues: 2, backend: {type: file, path: /mnt/ram/db.img, size: 128MiB, create: true}}
		  - name: backup
		    queues: 1
		    backend:
		      type: throttle
		      total_iops_sec: 40
		      backend: {type: file, path: /mnt/ram/backup.img, size: 128MiB, create: true}
		  - name: vm-1
		    queues: 2
		    backend:
		      type: throttle
		      total_iops_sec: 400
		      total_iops_sec_max: 800
		      total_iops_sec_max_length: 2
		      backend: {type: nbd, uri: "nbd+unix:///?socket=$work/vm-1.sock", connections: 2}
		  - {name: vm-2, queues: 1, backend: {type: nbd, uri: "nbd+unix:///?socket=$work/vm-2.sock"}}
	YAML
	start_daemon "$work/page.yaml" && wait_for 30 served vm-2 || exit 1
	ublkctl list
	load scratch --rw=randread --iodepth=8 --rate_iops=300
	load db --iodepth=4 --rate_iops=100 --bs=16k
	load backup --rw=write --bs=64k --iodepth=2
	load vm-1 --iodepth=4 --rate_iops=60 --rwmixread=70
	load vm-1 --iodepth=16 --rw=randwrite --bs=8k --thinktime=20s --thinktime_blocks=3000
	load vm-2 --iodepth=3 --rate_iops=40
	{
		until [ "$(wc -l </out/metrics-page/answers)" -ge $((seconds - 12)) ]; do rest 1; done
		kill -STOP "$answering"
	} 2>/dev/null &
	/usr/bin/python3 "$pictures/metrics_page.py" record 127.0.0.1:9740 "$seconds" /out/metrics-page
	local code=$?
	kill -CONT "$answering"
	# shellcheck disable=SC2046
	kill $(jobs -p) 2>/dev/null
	exit $code
}

record() {
	rm -rf "$top/build/out/metrics-page"
	"$top/test/vm/vm.sh" -m 3G -t 900 -- "$self" guest
}

draw() {
	local tmp server port
	tmp=$(mktemp -d /tmp/metrics-page.XXXXXX)
	python3 "$pictures/metrics_page.py" replay "$top/build/out/metrics-page" "$top/daemon/metrics" >"$tmp/port" &
	server=$!
	# shellcheck disable=SC2064
	trap "kill $server 2>/dev/null; rm -rf $tmp" EXIT
	until [ -s "$tmp/port" ]; do
		kill -0 $server || exit 1
		sleep 0.1
	done
	port=$(cat "$tmp/port")
	# The page's own time: as fast as it is answered.
	HOME=$tmp timeout 300 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
		--user-data-dir="$tmp/profile" --hide-scrollbars --window-size=$width,$height \
		--blink-settings=preferredColorScheme=0 --virtual-time-budget=$((seconds * 1050)) \
		--screenshot="$pictures/metrics-page.png" "http://127.0.0.1:$port/#vm-1" 2>"$tmp/chromium.err" ||
		{ cat "$tmp/chromium.err"; exit 1; }
	grep CONSOLE "$tmp/chromium.err" && exit 1
	pngquant --force --strip --ext .png --speed 1 64 "$pictures/metrics-page.png"
	ls -l "$pictures/metrics-page.png"
}

case ${1:-} in
'') record && draw ;;
draw) draw ;;
guest) guest ;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "$self" >&2 && exit 1 ;;
esac
