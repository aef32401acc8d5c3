#!/bin/bash
# The web page at / as a browser sees it, and the metrics as Prometheus sees them: the daemon's own
# server over devices that are not there. Prints TAP. Usage: page.sh [BUILD_FOLDER]
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
build=$(readlink -f "${1:-$top/build/release}")
tmp=$(mktemp -d /tmp/ublkd-page.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$tmp"' EXIT
. "$top/test/tap.sh"
show_log() { head -n 40 "$tmp/log" | cut -c 1-300 | sed 's/^/# /'; }

"$build/test/page_server" >"$tmp/port" 2>"$tmp/server.err" &
server=$!
for _ in {1..1200}; do
	[ ! -s "$tmp/port" ] || break
	sleep 0.05
done
port=$(cat "$tmp/port")

# get PATH [ACCEPT]: the answer with its head.
get() {
	exec 3<>"/dev/tcp/127.0.0.1/$port" || return
	printf 'GET %s HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nConnection: close\r\n\r\n' "$1" "${2:-*/*}" >&3
	cat <&3
	exec 3>&-
}

body() { sed '1,/^\r$/d'; }

policy() {
	get / | tee "$tmp/page" | grep -F "Content-Security-Policy: default-src 'none'; script-src 'self';"
}

# No address of anywhere else, and nothing inline that the policy would forbid.
self_contained() {
	get /page.js >"$tmp/script"
	cat "$tmp/page" "$tmp/script"
	! grep -nE '(https?:)?//[a-zA-Z]|@import|url\(' "$tmp/page" "$tmp/script" &&
		! grep -nE '<script>|[^a-z]on[a-z]+="' "$tmp/page" && grep -q '<canvas' "$tmp/page"
}

# browse ADDRESS OPTION...: five seconds of the page's own time.
browse() {
	local address=$1
	shift
	HOME=$tmp timeout 150 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--no-first-run --user-data-dir="$tmp/profile" --enable-logging=stderr \
		--hide-scrollbars --window-size=1200,1500 --virtual-time-budget=5000 "$@" \
		"http://127.0.0.1:$port/$address" 2>"$tmp/browser.err"
}

# data ID NAME: what the page says of an element for tests.
data() { sed -nE "s/.*<(canvas|svg) id=\"$1\"[^>]* data-$2=\"([0-9]+)\".*/\2/p" "$tmp/dom"; }

# Twelve reads between two polls (page_server.c), each in a row of its own.
painted() {
	browse "" --dump-dom >"$tmp/dom" || { cat "$tmp/browser.err"; return 1; }
	cat "$tmp/dom"
	echo "columns $(data map columns), cells $(data map cells), requests $(data map requests)"
	[ "$(data map columns)" -ge 2 ] && [ "$(data map cells)" = $((12 * $(data map columns))) ] &&
		[ "$(data map requests)" = 12 ] && grep -F '12 requests in the last interval' "$tmp/dom"
}

# The console also tells of what the policy forbade.
silent() { ! grep -E 'CONSOLE' "$tmp/browser.err"; }

# row NAME: the row of a device.
row() { grep -oE '<tr[^>]*><th[^>]*><button[^>]*>'"$1"'</button>.*' "$tmp/dom" | sed 's/<\/tr>.*//'; }

devices() {
	local device
	for device in disk-1 net-1 stuck-1; do
		row "$device"
		row "$device" | grep -E '>live<.*>/dev/ublkb7<.*>1 MiB<.*>mem<' >/dev/null || return
	done
	row net-1 | grep -F '>1 of 2 up<'
}

# Lines of IOPS, bandwidth and latency, with as many points as there are samples, and with words.
charts() {
	local nr chart
	nr=$(data map columns)
	for chart in iops:3 bandwidth:2 latency:2 inflight:1; do
		echo "$chart $(data "${chart%:*}" points) of $nr"
		[ "$(data "${chart%:*}" points)" = $((${chart#*:} * nr)) ] || return
	done
	[ "$(grep -oE '<path class="line c[0-9][^>]* d="M' "$tmp/dom" | wc -l)" = 8 ] &&
		grep -E '<svg id="iops"[^>]* aria-label="IOPS in the last three minutes; now: read [0-9]' "$tmp/dom"
}

# In the list of what needs attention and in the table; not of the others.
verdict() {
	row stuck-1 && grep -E 'Needs attention: stuck-1<' "$tmp/dom" &&
		grep -E '<b>stuck-1</b><span>: the write of 4KiB at sector 8 .*the backend mem does not answer \(thinking\)<' \
			"$tmp/dom" && grep -F 'To do: look at what is below the backend' "$tmp/dom" &&
		row stuck-1 | grep -F '>backend does not answer<' && row disk-1 | grep -F '>nothing stuck<'
}

# Each header cell has a scope, each table its role and caption, each picture words.
accessible() {
	local all named
	all=$(grep -oE '<th( |>)|<canvas|<svg|<table' "$tmp/dom" | wc -l)
	named=$(grep -oE '<th [^>]*scope="|<(canvas|svg) [^>]*role="img"[^>]* aria-label="[^"]{9,}|<table [^>]*role="table"' \
		"$tmp/dom" | wc -l)
	echo "$named of $all"
	[ "$named" = "$all" ] && [ "$(grep -c '^<caption>[^<]' "$tmp/dom")" = 4 ]
}

# A name is text, whatever is in it.
harmless() {
	grep -F '&lt;img src=x onerror=' "$tmp/dom" && ! grep -F '<img' "$tmp/dom" &&
		! grep -F '<title>owned' "$tmp/dom" && grep -F "<title>ublkd 127.0.0.1:$port<" "$tmp/dom"
}

# A bookmark of a device: its connections are there.
bookmark() {
	browse '#net-1' --dump-dom >"$tmp/dom" || { cat "$tmp/browser.err"; return 1; }
	cat "$tmp/dom"
	grep -F '<h2 id="chosen">net-1, /dev/ublkb7</h2>' "$tmp/dom" &&
		grep -E '>1\.0</th><td[^>]*>waiting</td>' "$tmp/dom" && silent
}

# pixels SCHEME BACKGROUND CELL: the page has that background, and the heat map cells in the color of the fullest.
pixels() {
	local background cells
	browse "" --blink-settings=preferredColorScheme="$1" --screenshot="$tmp/shot.png" ||
		{ cat "$tmp/browser.err"; return 1; }
	read -r background cells < <(python3 "$top/test/page/pixels.py" "$tmp/shot.png" "$2" "$3")
	echo "$background pixels of the background, $cells of cells"
	[ "$background" -ge 10000 ] && [ "$cells" -ge 200 ]
}

# metrics TYPE OPTION...: what that reader gets, with the hostile name as a value, is what the format allows.
metrics() {
	get /metrics "$1" | body >"$tmp/metrics"
	grep -F 'device="<img src=x onerror=\"' "$tmp/metrics" >/dev/null &&
		python3 "$top/test/page/exposition.py" "${@:2}" "$tmp/metrics"
}

ok "the page's policy forbids what is not its own" policy
ok "page and script name nothing outside" self_contained
if command -v chromium >/dev/null; then
	ok "the heat map is painted: twelve cells a column" painted
	ok "no error on the console, nothing that the policy forbids" silent
	ok "the devices with state, path, size, backend and connections" devices
	ok "the charts are drawn and say in words what they show" charts
	ok "a stuck device has its verdict" verdict
	ok "tables and pictures can be read aloud" accessible
	ok "a hostile name is shown and does nothing" harmless
	ok "a bookmark opens its device, with its connections" bookmark
	if command -v python3 >/dev/null; then
		ok "the picture has them, dark" pixels 0 15,19,23 241,163,85
		ok "the picture has them, light" pixels 1 246,247,249 13,23,119
	else
		skip "the picture has them, dark" "needs python3"
		skip "the picture has them, light" "needs python3"
	fi
else
	for name in "the heat map is painted" "no error on the console" "the devices" "the charts" \
		"a stuck device has its verdict" "read aloud" "a hostile name" "a bookmark" "the picture, dark" "the picture, light"; do
		skip "$name" "needs chromium"
	done
fi
ok "the checker of the metrics' format refuses each fault" python3 "$top/test/page/exposition.py"
ok "the metrics are in the text format of Prometheus" metrics text/plain
ok "... and in that of OpenMetrics" metrics application/openmetrics-text --openmetrics
echo "1..$n"
exit $bad
