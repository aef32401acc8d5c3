#!/bin/bash
# In the guest: texts that others wrote. Paths so long that an error is cut within a letter; backing names, ETags and
# names of snapshots that are no UTF-8, or write to terminals. What fails says why; nothing that ublkctl prints does
# anything to a terminal; the other devices, the metrics and the next start of the daemon do not suffer.
# Runs on: uml
# With --all: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"

ip link set lo up
ram_disk 300 || exit 1
dir=/mnt/ram
truncate -s 4M $dir/good.img
config=$work/words.yaml
configure() { # LINE...: devices besides one
	{
		printf 'daemon: {reactors: %s, metrics: "127.0.0.1:9740"}\n' "$reactors"
		printf 'devices:\n  - {name: good, backend: {type: file, path: %s/good.img}}\n' $dir
		[ $# = 0 ] || printf '  - %s\n' "$@"
	} >"$config"
}
configure
ok "a device starts" start_daemon "$config"

printable() { python3 "$here/../cli/printable.py" "$1"; }
# refuses WORDS COMMAND...: exit code 1, and it says WORDS (an extended regular expression) and nothing unprintable.
refuses() {
	local code=0
	"${@:2}" >"$work/said" 2>&1 || code=$?
	lines_have "$work/said" "$1" && printable "$work/said" && [ $code = 1 ]
}
# says WORDS COMMAND...: the same, with exit code 0.
says() {
	"${@:2}" >"$work/said" 2>&1 || return
	lines_have "$work/said" "$1" && printable "$work/said"
}

# ---- an error is cut within a letter ----

# Three lengths in front: one of the three texts ends with a letter, the others within one.
cut_nr=0
for pad in a ab abc; do
	deep=$dir/$pad
	for _ in {1..8}; do deep=$deep/漢字のフォルダ漢字のフォルダ漢字のフォルダ; done
	mkdir -p "$deep"
	: >"$deep/empty.img"
	echo "{name: f$pad, backend: {type: file, path: \"$deep/missing.img\"}}" >"$work/f.yaml"
	ok "add of a missing file with a long path below $pad" refuses "^f$pad: .*/漢字の" ublkctl add -f "$work/f.yaml"
	if grep -q '\.\.\.$' "$work/said"; then cut_nr=$((cut_nr + 1)); fi
	ok "... attach of an empty one" refuses '漢字の' ublkctl attach "$deep/empty.img" --name "g$pad"
	ok "... attach of a folder" refuses '漢字の' ublkctl attach "$deep" --name "h$pad"
done
ok "two of them would have ended within a letter" test $cut_nr = 2

# ---- the header of an image ----

qemu-img create -q -f qcow2 $dir/s.qcow2 4M
# A name is printed as it is written here, but for [ in an expression.
for name in '/etc/\xffshadow' '/etc/\xff\x1b[31mshadow\x07' '/etc/a\x0aublkctl: all is well'; do
	shown=${name//\\/\\\\} shown=${shown//\[/\\[}
	# shellcheck disable=SC2059 # the bytes of the name
	python3 - $dir/s.qcow2 $dir/h.qcow2 "$(printf "$name" | od -An -v -tx1 | tr -d ' \n')" <<-'END'
		import struct, sys
		data, name = bytearray(open(sys.argv[1], "rb").read()), bytes.fromhex(sys.argv[3])
		struct.pack_into(">QI", data, 8, 2000, len(name))
		data[2000:2000 + len(name)] = name
		open(sys.argv[2], "wb").write(data)
	END
	echo "{name: h, backend: {type: qcow2, backing: auto, data: {type: file, path: $dir/h.qcow2}}}" >"$work/h.yaml"
	ok "add of an image over $name" refuses "^h: .*stands over $shown" ublkctl add -f "$work/h.yaml"
	ok "... attach" refuses "stands over $shown" ublkctl attach $dir/h.qcow2 --name x
done
qemu-img snapshot -c $'a\xff' $dir/s.qcow2
ok "a snapshot's name is no UTF-8" ublkctl attach $dir/s.qcow2 --name s
ok "... in the list" says '^1 +a\\xff +4MiB' ublkctl snapshot list s
ok "... in a refusal" refuses 'there is no snapshot .*a\\xff' ublkctl snapshot delete s nope
ok "a snapshot's name is too long" refuses 'the name has 300 bytes: at most 255' \
	ublkctl snapshot create s "$(printf 'x%.0s' {1..300})"
ok "... or has letters of three bytes" ublkctl snapshot create s 漢字
ok "... which are shown as they are" says '^2 +漢字 +4MiB' ublkctl snapshot list s
ok "the device goes" ublkctl del s

# ---- a server ----

cat >"$work/server.py" <<'END'
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_GET(self):
        first, last = map(int, self.headers.get("Range", "bytes=0-0")[6:].split("-"))
        tag = '"v"' if not os.path.exists(sys.argv[1]) else '"w\x1b]0;owned\x07\xff\x9b31m"'
        self.send_response(206)
        self.send_header("ETag", tag)
        self.send_header("Content-Range", f"bytes {first}-{last}/{1 << 20}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(b"q" * (last - first + 1))

http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
END
python3 "$work/server.py" "$work/changed" 2>"$work/server.err" &
web=$!
echo "{name: tag, backend: {type: http, url: 'http://127.0.0.1:8080/tag'}}" >"$work/tag.yaml"
adds_tag() { ublkctl add -f "$work/tag.yaml"; }
ok "a disk of a web server" wait_for 30 adds_tag
fails_to_read() { ! dd if="$(ublkctl --json show tag | jq -r .path)" of=/dev/null bs=4k count=1 skip=10 iflag=direct; }
: >"$work/changed"
ok "its ETag changes" wait_for 10 fails_to_read
ok "... which the list says" says '^tag: .*its ETag was "v", is "w\\x1b\]0;owned\\x07\\xff' ublkctl list
ok "... and show" says 'error +.*ETag was' ublkctl show tag
exact() { ublkctl --json list | jq -e '.[] | select(.name == "tag").error | contains("w\u001b]0;owned\u0007\\xff")'; }
ok "JSON has it exactly" exact
ok "the log has no control characters" printable "$work/ublkd.log"
ok "the device goes" ublkctl del tag
kill $web

# ---- by the configuration ----

configure "{name: h, backend: {type: qcow2, backing: auto, data: {type: file, path: $dir/h.qcow2}}}"
kill -HUP "$daemon_pid"
ok "a device of the configuration fails, in words" wait_for 30 says '^h: .*stands over .*/etc/' ublkctl list
ok "why-stuck goes on" says '^good' ublkctl why-stuck
ok "the metrics too" python3 -c 'import urllib.request as u; assert b"device=\"h\"" in u.urlopen("http://127.0.0.1:9740/metrics").read()'
stop_daemon
ok "the daemon starts with it" start_daemon "$config"
ok "... and says the same" wait_for 30 says '^h: .*stands over .*/etc/' ublkctl list
finish
