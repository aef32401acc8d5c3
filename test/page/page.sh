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
for _ in {1..100}; do
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

# browse OPTION...: five seconds of the page's own time.
browse() {
	HOME=$tmp timeout 25 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--no-first-run --user-data-dir="$tmp/profile" --enable-logging=stderr \
		--hide-scrollbars --window-size=1200,700 --virtual-time-budget=5000 "$@" \
		"http://127.0.0.1:$port/" 2>"$tmp/browser.err"
}

data() { sed -nE "s/.*<canvas[^>]* data-$1=\"([0-9]+)\".*/\1/p" "$tmp/dom"; }

# Three reads between two polls, each in a row of its own.
painted() {
	browse --dump-dom >"$tmp/dom" || { cat "$tmp/browser.err"; return 1; }
	cat "$tmp/dom"
	echo "columns $(data columns), cells $(data cells), requests $(data requests)"
	[ "$(data columns)" -ge 2 ] && [ "$(data cells)" = $((3 * $(data columns))) ] &&
		[ "$(data requests)" = 3 ]
}

silent() { ! grep -E 'CONSOLE' "$tmp/browser.err"; }

told() { grep -F '3 requests in the last interval' "$tmp/dom" && grep -F 'value="disk-1"' "$tmp/dom"; }

# Pixels of the colors that only cells have (blue to yellow, not grey), inside of the picture.
pixels() {
	browse --screenshot="$tmp/shot.png" || { cat "$tmp/browser.err"; return 1; }
	python3 "$top/test/page/pixels.py" "$tmp/shot.png" >"$tmp/pixels"
	cat "$tmp/pixels"
	[ "$(cat "$tmp/pixels")" -ge 200 ]
}

prom() {
	get /metrics text/plain | body >"$tmp/metrics"
	[ -s "$tmp/metrics" ] && promtool check metrics <"$tmp/metrics"
}

ok "the page's policy forbids what is not its own" policy
ok "page and script name nothing outside" self_contained
if command -v chromium >/dev/null; then
	ok "the heatmap is painted: three cells a column" painted
	ok "no error on the console" silent
	ok "the words below say the same" told
	if command -v python3 >/dev/null; then
		ok "the picture has them" pixels
	else
		skip "the picture has them" "needs python3"
	fi
else
	for name in "the heatmap is painted" "no error on the console" "the words below" "the picture"; do
		skip "$name" "needs chromium"
	done
fi
if command -v promtool >/dev/null; then
	ok "promtool check metrics" prom
else
	skip "promtool check metrics" "needs promtool, of the package prometheus"
fi
echo "1..$n"
exit $bad
