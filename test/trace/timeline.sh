#!/bin/bash
# Traces of a made-up machine in both formats: read back by the strict readers, the protobuf also by
# npm's protobufjs (skipped without npm or network); a trace that is broken must not pass.
# Usage: timeline.sh BUILD_FOLDER
set -u
here=$(dirname "$(readlink -f "$0")")
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$here/../tap.sh"

synth=$build/test/synth

made() { "$synth" "$tmp/t.pftrace" "$@" && "$synth" "$tmp/t.fxt" "$@"; }
reads() { "$here/perfetto_read.py" "$tmp/t.pftrace" && "$here/fxt_read.py" "$tmp/t.fxt"; }

# Both formats say the same.
agree() {
	"$here/perfetto_read.py" "$tmp/t.pftrace" --json >"$tmp/p" && "$here/fxt_read.py" "$tmp/t.fxt" --json >"$tmp/f" || return
	diff <(jq -S '{processes, tracks, slices, first_ns, last_ns, names, links, lost, flows}' "$tmp/p") \
		<(jq -S '{processes, tracks, slices, first_ns, last_ns, names, links, lost, flows}' "$tmp/f")
}

said() { jq -e "$1" "$tmp/f" >/dev/null || { cat "$tmp/f"; return 1; }; }

renamed() {
	for reader in "perfetto_read.py $tmp/t.pftrace" "fxt_read.py $tmp/t.fxt"; do
		# shellcheck disable=SC2086
		"$here"/$reader --dump >"$tmp/dump" || return
		jq -e '[.tracks[][1]] | index("prog 400") and index("prog 400 off CPU") and (map(select(test("env|ublktrace"))) == [])' "$tmp/dump" &&
			jq -e '[.processes[]] | index("prog (400)")' "$tmp/dump" || return
	done
}

# A byte in the middle is another one: some rule of some reader must find most of them.
broken() {
	python3 - "$tmp" "$here" <<'PY'
import importlib, pathlib, random, sys
tmp, here = sys.argv[1:]
sys.path.insert(0, here)
random.seed(5)
for ending, module in ("pftrace", "perfetto_read"), ("fxt", "fxt_read"):
    reader, data = importlib.import_module(module), pathlib.Path(tmp, f"t.{ending}").read_bytes()
    found = 0
    for _ in range(60):
        bad = bytearray(data)
        bad[random.randrange(8, len(bad))] ^= 1 << random.randrange(8)
        path = pathlib.Path(tmp, f"bad.{ending}")
        path.write_bytes(bad)
        m = reader.read(str(path))
        found += any(rule() for rule in (lambda: m.errors, m.known_tracks, m.sane_times, m.nesting, m.flows,
                                         m.sorted_counters, m.limits))
    print(ending, found)
    if found < 20:
        sys.exit(1)
    path.write_bytes(data[: len(data) // 2 | 5])
    if not reader.read(str(path)).errors:
        sys.exit(f"{ending}: half a file passes")
PY
}

full() {
	ln -sf /dev/full "$tmp/full.$1"
	! "$synth" "$tmp/full.$1" 400 4 2>"$tmp/err" && cat "$tmp/err" && grep -q 'No space' "$tmp/err"
}

ok "a trace is made" made 64 4
ok "both are read back" reads
ok "both say the same" agree
ok "what happened is in it" said '.names.read == 64 and .names["backend read"] == 64 and .names.daemon == 64 and
	.links["thread -> ublk request"] == 64 and .links["complete -> ublk reap"] == 64 and
	.links["submit -> submit"] == 8 and .links["waiting -> io-wq"] == 8 and .links["io-wq -> complete"] == 8 and
	.links["waiting -> complete"] == 8 and .links["complete -> reaped"] == 62 and (.names | has("not seen to be taken") | not)'
ok "the last name of a thread is its name" renamed
ok "it counts from its start" said '.first_ns == 0 and .last_ns < 1e9'
ok "losses are in it" said '.lost["lost: ring buffer full"] == 3 and .lost["lost: unmatched"] == 2'
ok "a broken file is found" broken
ok "more threads than FXT has numbers for" made 8 1 huge
ok "they are read back" reads
ok "both say the same of them" agree
ok "all numbers are used, the rest spelled out" said '.thread_refs == 255 and .inline_threads > 45'
ok "a full disk is told (pftrace)" full pftrace
ok "a full disk is told (fxt)" full fxt
ok "a long trace is made" made 12000 128
ok "it is read back" reads

ok "the sample of the docs is read back" "$here/perfetto_read.py" "$here/../../docs/trace/sample.pftrace.gz"

# protobufjs is kept in the build folder.
modules=$build/node_modules
protobufjs() {
	[ -d "$modules/protobufjs" ] && return
	command -v npm >/dev/null && command -v node >/dev/null || return
	timeout 60 npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$build" protobufjs@7 >"$tmp/npm" 2>&1
}
decoded() {
	node "$here/protobufjs.js" "$(readlink -f "$modules")" "$here/perfetto.proto" "$tmp/t.pftrace" >"$tmp/js" || return
	"$here/perfetto_read.py" "$tmp/t.pftrace" --json >"$tmp/p" || return
	jq -e '.error == null and .flows_open == 0 and .slices == .ends and .bytes == .bytes_again' "$tmp/js" || { cat "$tmp/js"; return 1; }
	diff <(jq -S '{slices, tracks, names, packets, flows}' "$tmp/js") <(jq -S '{slices, tracks, names, packets, flows}' "$tmp/p")
}
if protobufjs; then
	made 64 4 >/dev/null
	ok "protobufjs decodes it, and says the same" decoded
else
	skip "protobufjs decodes it, and says the same" "no npm (./dev check --all installs it), or no network"
fi
echo "1..$n"
exit $bad
