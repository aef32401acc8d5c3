#!/bin/bash
# The command lines of ublkd and ublkctl: what they print and exit with, without any ublk. Prints
# TAP. Usage: cli.sh [BIN_FOLDER]; some checks want root or socat and are skipped without.
set -u
umask 022 # what others may write is refused

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
bin=$(readlink -f "${1:-$top/build/release/bin}")
cd "$top" || exit 1
tmp=$(mktemp -d /tmp/ublkd-cli.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$tmp"' EXIT
export TERM=dumb PATH=$bin:$PATH
. "$top/test/tap.sh"

# run CODE COMMAND...: the exit code must be CODE; output is left in $tmp/out and $tmp/err.
run() {
	local want=$1 code=0
	shift
	timeout 120 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
	[ "$code" = "$want" ] || { echo "exit code $code, not $want: $*"; cat "$tmp/out" "$tmp/err"; return 1; }
}

# said FILE TEXT: the file holds the text, literally.
said() { grep -qF -- "$2" "$tmp/$1" || { echo "\"$2\" is not in std$1:"; cat "$tmp/$1"; return 1; }; }

# printed FILE TEXT: the file is exactly the text.
printed() { printf '%s\n' "$2" | diff - "$tmp/$1"; }

is_root() { [ "$(id -u)" = 0 ]; }

# ok_unless WHY NAME COMMAND...: skipped where there is a reason.
ok_unless() { if [ -n "$1" ]; then skip "$2" "$1"; else ok "${@:2}"; fi; }

# --- ublkd --------------------------------------------------------------------------------------

ublkd_version() { run 0 ublkd --version && grep -qE '^ublkd [0-9]+\.[0-9]+\.[0-9]+$' "$tmp/out"; }
ublkd_help() { run 0 ublkd --help && said out 'usage: ublkd'; }
ublkd_usage() {
	run 2 ublkd && said err 'FILE is missing' &&
		run 2 ublkd --nonsense && run 2 ublkd --config && said err 'requires an argument' &&
		run 2 ublkd -c examples/minimal.yaml extra && said err 'what is this: extra' &&
		run 2 ublkd -c examples/minimal.yaml --log-level loud && said err 'loud'
}

examples() {
	local file
	for file in examples/*.yaml; do
		run 0 ublkd --config "$file" --check-config || return
		said out "$file: " || return
		said out 'no errors' || return
		[ ! -s "$tmp/err" ] || return
	done
}

bad_config() {
	cat >"$tmp/bad.yaml" <<-'END'
		daemon: {log_levl: info}
		devices:
		  - name: a
		    backend: {type: mem, size: lots}
		  - name: a
		    id: -1
		    backend: {type: fille}
	END
	cat >"$tmp/want" <<-END
		$tmp/bad.yaml:1:10: unknown key "log_levl" (did you mean "log_level"?)
		$tmp/bad.yaml:4:32: size: "lots" is not a size (examples: 4096, 64k, 1MiB, 10G)
		$tmp/bad.yaml:5:11: name: "a" is taken already (line 3)
		$tmp/bad.yaml:6:9: id: -1 is below the minimum 0
	END
	run 1 ublkd --config "$tmp/bad.yaml" "$@" && head -4 "$tmp/err" | diff "$tmp/want" - &&
		said err "$tmp/bad.yaml:7:21: type: \"fille\" is not one of" &&
		said err '(did you mean "file"?)' && [ "$(wc -l <"$tmp/err")" = 5 ] && [ ! -s "$tmp/out" ]
}

no_config() {
	run 1 ublkd --config "$tmp/none.yaml" --check-config && said err "$tmp/none.yaml" &&
		run 1 ublkd --config "$tmp" --check-config && [ "$(wc -l <"$tmp/err")" = 1 ]
}

# Bounded time and memory, whatever is in the file.
hostile() {
	local start=$EPOCHREALTIME
	ulimit -v 400000
	run 1 ublkd --config "$1" --check-config && [ -s "$tmp/err" ] &&
		awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 1.5) }'
}

hostile_files() {
	local i
	head -c 100M /dev/zero | tr '\0' '#' >"$tmp/huge.yaml"
	printf 'devices:\n- name: \0\n' >"$tmp/nul.yaml"
	printf 'devices:\n- name: \xff\n' >"$tmp/utf8.yaml"
	head -c 100000 /dev/zero | tr '\0' '[' >"$tmp/deep.yaml"
	{
		echo 'a0: &a0 [x, x, x, x, x, x, x, x, x, x]'
		for i in 1 2 3 4 5 6 7 8 9; do
			echo "a$i: &a$i [*a$((i - 1)), *a$((i - 1)), *a$((i - 1)), *a$((i - 1)), *a$((i - 1))]"
		done
	} >"$tmp/bomb.yaml"
	for i in huge nul utf8 deep bomb; do
		(hostile "$tmp/$i.yaml") || { echo "$i"; return 1; }
		rm "$tmp/$i.yaml"
	done
}

own_config() {
	cat >"$tmp/own.yaml" <<-END
		daemon: {control: $tmp/run/deep/control.sock}
		devices: [{name: a, backend: {type: mem, size: 1MiB}}]
	END
}

no_module() {
	own_config
	run 1 ublkd --config "$tmp/own.yaml" && said err 'modprobe ublk_drv' &&
		said err 'error=ENOENT' && [ "$(grep -c level=error "$tmp/err")" = 1 ] &&
		[ ! -e "$tmp/run/deep/control.sock" ]
}

second_daemon() {
	own_config
	mkdir -p "$tmp/run/deep"
	echo 12345 >"$tmp/run/deep/control.sock.lock"
	run 1 flock "$tmp/run/deep/control.sock.lock" ublkd --config "$tmp/own.yaml" &&
		said err 'another ublkd runs with this control socket' && said err pid=12345
}

no_root() {
	cp "$(command -v ublkd)" "$tmp/ublkd"
	chmod 755 "$tmp" "$tmp/ublkd"
	printf 'daemon: {control: %s/nobody/control.sock, state_dir: %s/nobody/state}\n' "$tmp" "$tmp" >"$tmp/nobody.yaml"
	install -d -o 65534 "$tmp/nobody"
	run 1 setpriv --reuid 65534 --clear-groups env -i HOME=/nonexistent "$tmp/ublkd" --config "$tmp/nobody.yaml" &&
		said err 'no CAP_SYS_ADMIN: the devices are unprivileged' && said err 'cannot use the ublk driver'
}
no_runtime_dir() {
	run 1 setpriv --reuid 65534 --clear-groups env -i HOME=/nonexistent "$tmp/ublkd" &&
		said err 'control: XDG_RUNTIME_DIR is not set' && said err 'write control: PATH'
}

ok "ublkd --version" ublkd_version
ok "ublkd --help" ublkd_help
ok "ublkd: wrong command lines are exit code 2" ublkd_usage
ok "examples have no errors" examples
ok "all errors of a configuration at once, --check-config" bad_config --check-config
ok "all errors of a configuration at once, and nothing is started" bad_config
ok "no such configuration" no_config
ok "hostile files cost a second at most" hostile_files
cannot=
if ! is_root; then
	cannot='needs root'
elif ! unshare --mount --propagation slave true 2>/dev/null; then
	cannot='no mount namespace can be had here (a chroot?)'
fi
driver=$cannot
[ ! -e /dev/ublk-control ] || driver='the driver is here'
ok_unless "$driver" "ublkd without the driver: one line with the cure" no_module
ok_unless "$cannot" "a second ublkd on the same socket is refused" second_daemon
ok_unless "$cannot" "ublkd without root says so" no_root
ok_unless "$cannot" "... and needs a runtime folder" no_runtime_dir

# --- ublkctl ------------------------------------------------------------------------------------

ctl_usage() {
	local line
	while read -r line; do
		# shellcheck disable=SC2086
		run 2 ublkctl $line && said err usage: || { echo "ublkctl $line"; return 1; }
	done <<-'END'

		lost
		list extra
		show
		show a b
		add
		del
		list --force
		add -f x --force
		throttle
		throttle a total_iops_sec
		snapshot
		snapshot list
		snapshot list a b
		snapshot lost a
		snapshot create a
		snapshot create a b c
		snapshot create a b --force
		snapshot list a --op read
		cache
		cache stats
		cache store
		cache store a --discard --force
		cache store a --node b
		cache stats a --discard
		cache stats a b
		cache stats a --node a
		cache stats a --offset 1
		cache lose a
		cache drop a --length 1
		cache warm a --force
		snapshot list a --offset 1
		list --node a
		list a=b
		stats --count 2
		stats --watch 0
		stats --watch x
		stats --watch 1 --count 0
		stats --watch 1 --count -1
		top a b
		top --interval 0
		top --watch 1
		list --batch
		top --json
	END
	run 2 ublkctl --nonsense && run 0 ublkctl --help && run 0 ublkctl --version
}

no_daemon() {
	run 1 ublkctl --socket "$tmp/none.sock" list &&
		said err "no process serves $tmp/none.sock: start ublkd" &&
		run 1 ublkctl --socket "$tmp/$(printf 'x%.0s' {1..200})" list &&
		[ ! -s "$tmp/out" ]
}

no_file() {
	run 1 ublkctl add -f "$tmp/none.yaml" && said err "$tmp/none.yaml: No such file" &&
		printf '\xff' >"$tmp/utf8.yaml" && run 1 ublkctl add -f "$tmp/utf8.yaml" &&
		said err 'not valid UTF-8' && head -c 2000000 /dev/zero >"$tmp/long.yaml" &&
		run 1 ublkctl add -f "$tmp/long.yaml" && said err 'longer than 1 MiB'
}

doctor() {
	local code=0
	timeout 120 ublkctl doctor >"$tmp/out" || code=$?
	! grep -vE '^(OK  |WARN|FAIL)  [a-zA-Z]' "$tmp/out" && grep -q '^OK' "$tmp/out" &&
		grep -qE '^OK    (autogroup|pressure|scheduler) ' "$tmp/out" &&
		if grep -q '^FAIL' "$tmp/out"; then [ $code = 1 ]; else [ $code = 0 ]; fi &&
		{ ublkctl --json doctor || true; } | grep -q '"verdict": "OK"'
}

ok "ublkctl: wrong command lines are exit code 2" ctl_usage
ok "ublkctl without ublkd" no_daemon
ok "ublkctl add of no file, no text, too long a text" no_file
ok "ublkctl doctor" doctor

# Answers of a ublkd that does not exist: each connection gets the next file of $tmp/answers.
fake() {
	rm -rf "$tmp/answers" "$tmp/fake.sock" && mkdir "$tmp/answers"
	local i=0 answer
	for answer in "$@"; do
		i=$((i + 1))
		printf '%s' "$answer" >"$tmp/answers/$i"
	done
	cat >"$tmp/fake.sh" <<-END
		read -r line; echo "\$line" >>$tmp/asked
		file=\$(ls $tmp/answers | sort -n | head -1)
		mv "$tmp/answers/\$file" "$tmp/answer.\$\$"; cat "$tmp/answer.\$\$"
	END
	: >"$tmp/asked"
	socat "UNIX-LISTEN:$tmp/fake.sock,fork" "EXEC:bash $tmp/fake.sh" 2>/dev/null &
	server=$!
	until [ -S "$tmp/fake.sock" ]; do sleep 0.01; done
}

# unfake [SIGNAL]: keeps the exit code of what was done before.
unfake() {
	local code=$?
	kill "${1:--TERM}" "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
	return $code
}

ctl() { run "$1" ublkctl --socket "$tmp/fake.sock" "${@:2}"; }

# told CODE ARGUMENT... ANSWER: one command, one answer.
told() {
	local answer=${*: -1}
	fake "$answer"$'\n'
	ctl "${@:1:$#-1}"
	unfake
}

device_a='{"name":"a","state":"live","id":3,"path":"/dev/ublkb3","backend":"mem","size_bytes":1073741824,"queues":2,"depth":128,"block_bytes":512,"error":""}'
device_b='{"name":"long-name","state":"failed","id":-1,"path":null,"backend":"file","size_bytes":0,"queues":1,"depth":128,"block_bytes":4096,"error":"no such file"}'

ctl_list() {
	told 0 list "{\"ok\":true,\"data\":[$device_a,$device_b]}" &&
		printed out 'NAME       STATE   PATH         SIZE  BACKEND  QUEUES  DEPTH  BLOCK
a          live    /dev/ublkb3  1GiB  mem           2    128    512
long-name  failed  -              0B  file          1    128   4096
long-name: no such file' && printed asked '{"command":"list"}'
}

ctl_json() {
	told 0 --json list "{\"ok\":true,\"data\":[$device_a]}" &&
		said out '"path": "/dev/ublkb3"' && python3 -c 'import json,sys; json.load(sys.stdin)' <"$tmp/out"
}

# One that answers late, in pieces, or not at all.
ctl_broken_answers() {
	fake '' '{"ok":true' 'hello' '[]' '{"ok":true}'
	for _ in 1 2 3 4 5; do
		ctl 1 list || return
		[ -s "$tmp/err" ] || return
	done
	unfake
}

ctl_refused() {
	fake '{"ok":false,"error":"there is no device \"x\""}' \
		'{"ok":false,"error":"the configuration has errors","errors":["x.yaml:1:2: a","x.yaml:3:4: b"]}' \
		'{"ok":false,"error":"a: in use","errors":["a: in use"]}'
	ctl 1 show x && printed err 'ublkctl: there is no device "x"' &&
		ctl 1 add -f examples/minimal.yaml && printed err 'ublkctl: the configuration has errors
x.yaml:1:2: a
x.yaml:3:4: b' && ctl 1 del a && printed err 'a: in use'
	unfake && said asked '"file":"examples/minimal.yaml"' && said asked '"force":false'
}

ctl_show_stack() {
	local throttle='"type":"throttle","total_iops_sec":8000,"total_iops_sec_max":0,"total_iops_sec_max_length":1,"group":null'
	local error='"type":"error","errno":"EIO","op":["read","write"],"rate":0.25,"hang":false'
	told 0 show a "{\"ok\":true,\"data\":{\"name\":\"a\",\"backend\":\"throttle > error > mem\",\"options\":{$throttle,\"backend\":{$error,\"backend\":{\"type\":\"mem\",\"size\":4096}}}}}" &&
		printed out 'name                  a
backend               throttle > error > mem
throttle.total_iops_sec 8000
error.errno           EIO
error.op              read write
error.rate            0.25
error.hang            no
mem.size              4096'
}

# A map among the options, and one that was not given.
ctl_show_map() {
	fake '{"ok":true,"data":{"name":"a","backend":"nbd","options":{"type":"nbd","uri":"nbds://h/e","tls":{"psk_file":"/k","username":null,"verify_peer":true,"type":"auto"},"timeout":1}}}'$'\n' \
		'{"ok":true,"data":{"name":"a","backend":"nbd","options":{"type":"nbd","uri":"nbd://h/e","tls":null}}}'$'\n'
	ctl 0 show a && printed out 'name                  a
backend               nbd
nbd.uri               nbds://h/e
nbd.tls.psk_file      /k
nbd.tls.verify_peer   yes
nbd.tls.type          auto
nbd.timeout           1' && ctl 0 show a && printed out 'name                  a
backend               nbd
nbd.uri               nbd://h/e'
	unfake
}

ctl_show_connections() {
	local more='"connects":2,"lost":1,"failed_tries":3,"resent":4,"answered":1200,"sends":100,"sent_bytes":4096,"receives":600,"received_bytes":1048576'
	local times='"wait":{"count":9,"p50_ns":0,"p99_ns":2000},"answer":{"count":9,"p50_ns":70000,"p99_ns":1500000}'
	told 0 show a "{\"ok\":true,\"data\":{\"name\":\"a\",\"connections\":[{\"queue\":0,\"connection\":0,\"server\":\"h:1\",\"state\":\"connected\",\"state_ns\":5000000000,$more,\"last_end\":null,$times},{\"queue\":1,\"connection\":0,\"server\":\"[::1]:2\",\"state\":\"waiting\",\"state_ns\":9,\"next_try_in_ns\":2500000000,\"connects\":0,\"last_end\":\"unreachable\",\"wait\":{\"count\":0},\"answer\":{\"count\":0}}]}}" &&
		printed out 'name                  a
QUEUE  CONN  STATE               SINCE  CONNECTS  LOST  FAILED  LAST END     RESENT  ANSWERED  SENT  /CALL  RECEIVED  /CALL  WAIT P50 P99  ANSWER P50 P99  SERVER
    0     0  connected            5.0s         2     1       3  -                 4     1.20k  4KiB   12.0      1MiB    2.0     0ns 2.0us      70us 1.5ms  h:1
    1     0  waiting, 2.5s more    9ns         0     0       0  unreachable       0         0    0B    0.0        0B    0.0             -               -  [::1]:2'
}

ctl_show_library() {
	told 0 show a '{"ok":true,"data":{"name":"a","library":{"name":"librbd","threads":16,"clients":1,"images":3}}}' &&
		printed out 'name                  a
library               librbd: 16 threads in the process, of 1 client for 3 images'
}

ctl_show_images() {
	local tables='"tables":{"slices":3,"slices_max":64,"slice_bytes":4096,"misses":1,"dirty":true}'
	told 0 show a "{\"ok\":true,\"data\":{\"name\":\"a\",\"images\":[{\"node\":\"a\",\"format\":\"qcow2\",\"file\":\"/a.qcow2\",\"read_only\":false,\"size_bytes\":1073741824,\"stored_bytes\":4096,\"allocated_clusters\":12,\"copies\":13,\"compressed_reads\":14,$tables},{\"node\":\"a/backing\",\"format\":\"qcow2\",\"file\":null,\"read_only\":true,\"size_bytes\":0,\"stored_bytes\":null}]}}" &&
		said out 'a          qcow2   1GiB    4KiB  dirty      12KiB of 256KiB       1         12      13          14  /a.qcow2' &&
		said out 'a/backing  qcow2     0B       -  read-only         0B of 0B       0          0       0           0'
}

. "$top/test/cli/ctl_changes.sh"

op='"failed":0,"sum_ns":0,"buckets":[]'
stats() {
	echo "{\"ok\":true,\"data\":{\"time_ns\":$1,\"devices\":[{\"name\":\"a\",\"inflight\":4,\"ops\":{
		\"read\":{\"done\":$2,\"failed\":1,\"bytes\":$(($2 * 4096)),\"sum_ns\":$(($2 * 80000)),\"buckets\":[[79872,$2]]},
		\"write\":{\"done\":0,\"bytes\":0,$op},\"flush\":{\"done\":7,\"bytes\":0,$op},
		\"discard\":{\"done\":0,\"bytes\":0,$op},\"write_zeroes\":{\"done\":0,\"bytes\":0,$op}}}]}}" | tr -d '\n\t'
}

ctl_stats() {
	fake "$(stats 1000000000 1000)" "$(stats 1000000000 1000)" "$(stats 3000000000 51000)"
	ctl 0 stats && printed out 'DEVICE  OP       COUNT   BYTES  MEAN   P99  ERRORS  IN FLIGHT
a       read     1.00k  3.9MiB  80us  82us       1          4
        write        0      0B     -     -       0
        flush        7      0B   0ns   0ns       0
        discard      0      0B     -     -       0' &&
		ctl 0 stats a --watch 0.05 --count 1 && printed out 'DEVICE  OP        IOPS   MB/s  MEAN   P99  ERRORS  IN FLIGHT
a       read     25.0k  102.4  80us  82us       0          4
        write        0    0.0     -     -       0
        flush        0    0.0     -     -       0
        discard      0    0.0     -     -       0'
	unfake
}

layer() { printf '"%s":{"mean_ns":%s,"p99_ns":%s}' "$1" "$2" "$3"; }

ctl_stats_layers() {
	local none='{"done":0}'
	told 0 stats --layers "{\"ok\":true,\"data\":{\"time_ns\":1,\"devices\":[{\"name\":\"a\",\"inflight\":0,\"ops\":{
		\"read\":{\"done\":1000,\"layers\":{$(layer total 9000000 9500000),$(layer throttle 1000000 1500000),
		$(layer daemon 2000 8000),$(layer backend 7998000 8000000)}},\"write\":$none,\"flush\":$none,
		\"discard\":$none,\"write_zeroes\":$none}}]}}" &&
		printed out 'DEVICE  OP    COUNT  TOTAL    P99  THROTTLE    P99  DAEMON    P99  BACKEND    P99
a       read  1.00k  9.0ms  9.5ms     1.0ms  1.5ms   2.0us  8.0us    8.0ms  8.0ms'
}

ctl_errors_by_name() {
	local some='"done":5,"failed":5,"bytes":0,"sum_ns":0,"buckets":[]'
	told 0 stats "{\"ok\":true,\"data\":{\"time_ns\":1,\"devices\":[{\"name\":\"a\",\"inflight\":0,\"errors\":
		{\"EIO\":3,\"ENOSPC\":2},\"ops\":{\"read\":{$some},\"write\":{$some},\"flush\":{$some},
		\"discard\":{$some},\"write_zeroes\":{$some}}}]}}" &&
		said out 'a: errors since the start: EIO 3, ENOSPC 2'
}

ctl_histogram_set() {
	local no='{"ok":false,"error":"boundaries must ascend, each above the one before and above 0"}'
	fake '{"ok":true,"data":{}}' '{"ok":true,"data":{}}' '{"ok":true,"data":{}}' "$no"
	ctl 0 histogram set a --boundaries 10us,1500us,2ms,1s && [ ! -s "$tmp/out" ] &&
		ctl 0 histogram set a --boundaries-read 100 --boundaries-flush 1ms,10ms &&
		ctl 0 histogram set a && ctl 1 histogram set a --boundaries 2us,1us &&
		printed err 'ublkctl: boundaries must ascend, each above the one before and above 0' &&
		printed asked '{"command":"histogram_set","name":"a","boundaries":[10000,1500000,2000000,1000000000]}
{"command":"histogram_set","name":"a","boundaries_read":[100],"boundaries_flush":[1000000,10000000]}
{"command":"histogram_set","name":"a"}
{"command":"histogram_set","name":"a","boundaries":[2000,1000]}'
	unfake
}

# Nobody is asked.
ctl_histogram_usage() {
	local list
	for list in 10xs us 1,,2 -1 1.5ms 99999999999999999999; do
		run 2 ublkctl --socket "$tmp/none.sock" histogram set a "--boundaries=$list" &&
			said err 'is not a boundary: use a number of ns, or with us, ms, s' || { echo "$list"; return 1; }
	done
	run 2 ublkctl histogram get a --boundaries 1us && said err 'applies to histogram set' &&
		run 2 ublkctl histogram set a --qmp-json && said err 'applies to histogram get'
}

ctl_histogram_get() {
	told 0 histogram get a --op read '{"ok":true,"data":{"name":"a","histograms":[{"op":"read","layer":"total","sum_ns":50,"count":7,"mean_ns":7,"p50_ns":5,"p99_ns":9,"p999_ns":9,"max_ns":9,"buckets":[[4,7]],"boundaries":[10000,1500000],"bins":[4,2,1]}]}}' &&
		said out '[0, 10us)' && said out '[10us, 1500us)' && said out '[1500us, ...)' &&
		said asked '"op":"read"' && said out 'count 7'
}

refused_connection() {
	fake ''
	unfake -9
	ctl 1 list && said err 'no process answers at'
}

no_permission() {
	fake ''
	chmod 700 "$tmp"
	cp "$bin/ublkctl" /tmp/ublkctl.$$
	run 1 setpriv --reuid 65534 --clear-groups /tmp/ublkctl.$$ --socket "$tmp/fake.sock" list
	local code=$?
	rm /tmp/ublkctl.$$
	unfake
	[ $code = 0 ] && said err 'run as root'
}

cannot=
command -v socat >/dev/null || cannot='needs socat'
ok_unless "$cannot" "ublkctl list" ctl_list
ok_unless "$cannot" "ublkctl --json" ctl_json
ok_unless "$cannot" "ublkctl: answers that are none" ctl_broken_answers
ok_unless "$cannot" "ublkctl: refusals" ctl_refused
ok_unless "$cannot" "ublkctl show: options of a stack by the name of the backend" ctl_show_stack
ok_unless "$cannot" "ublkctl show: an option that is a map" ctl_show_map
ok_unless "$cannot" "ublkctl show: connections" ctl_show_connections
ok_unless "$cannot" "ublkctl show: a library and its threads" ctl_show_library
ok_unless "$cannot" "ublkctl show: images" ctl_show_images
ok_unless "$cannot" "ublkctl throttle" ctl_throttle
ok_unless "$cannot" "ublkctl snapshot" ctl_snapshot
ok_unless "$cannot" "ublkctl: hostile words do nothing to a terminal" ctl_hostile_words
ok_unless "$cannot" "ublkctl --json has them exactly" ctl_hostile_json
ok_unless "$cannot" "ublkctl cache" ctl_cache
ok_unless "$cannot" "ublkctl stats, with and without --watch" ctl_stats
ok_unless "$cannot" "ublkctl stats --layers" ctl_stats_layers
ok_unless "$cannot" "ublkctl stats: errors by name" ctl_errors_by_name
ok_unless "$cannot" "ublkctl histogram set: what is asked, refusals" ctl_histogram_set
ok_unless "$cannot" "ublkctl histogram set of nonsense" ctl_histogram_usage
ok_unless "$cannot" "ublkctl histogram get with boundaries" ctl_histogram_get
ok_unless "$cannot" "ublkctl: a socket that nobody listens on" refused_connection
is_root || cannot='needs root to become somebody else'
ok_unless "$cannot" "ublkctl: no permission" no_permission

# --- completion, manual, installation -----------------------------------------------------------

. "$top/test/cli/completion.sh"

manual() {
	local page=$bin/../man/ublkd.yaml.5 word
	for word in stop_timeout block_size max_io 'type: mem' 'type: file' huge_pages direct \
		'type: stripe' 'fBbackends\fR (list of 2 to 32 backends; required)' 'fBbackend\fR (backend; required)'; do
		grep -qF "$word" "$page" || { echo "no $word in $page"; return 1; }
	done
	! grep -q '^@' "$page" || return
	! command -v mandoc >/dev/null || mandoc -T lint -W error "$page"
}

# state FILE JSON: in the state directory.
state() { printf '%s' "$2" >"$tmp/state/$1.json"; }
udev_name() { run "$1" ublkctl udev-name "$2" --state-dir "$tmp/state" && [ ! -s "$tmp/err" ]; }
names_for_udev() {
	mkdir -p "$tmp/state"
	state disk.1_A '{"version": 1, "name": "disk.1_A", "phase": "serving", "id": 3, "size_bytes": 7}'
	state other '{"version": 1, "name": "other", "phase": "recovering", "id": 12}'
	udev_name 0 ublkb3 && printed out disk.1_A && udev_name 0 /dev/ublkb12 && printed out other &&
		udev_name 1 ublkb1 && [ ! -s "$tmp/out" ]
}
no_names_for_udev() {
	local name
	rm -rf "$tmp/state"
	mkdir "$tmp/state"
	state adding '{"version": 1, "name": "adding", "phase": "adding", "id": 3}'
	state newer '{"version": 2, "name": "newer", "phase": "serving", "id": 3}'
	state another '{"version": 1, "name": "file", "phase": "serving", "id": 3}'
	state text '{"version": 1, "name": "text", "phase": "serving", "id": "3"}'
	state half '{"version": 1, "name": "half", "phase"'
	state array '[3]'
	for name in '' .. .hidden a234567890123456789012345678901b 'a b' 'a;b' "a'b" 'a$b' $'a\nb' 'ä'; do
		state "$name" "$(jq -n --arg name "$name" '{version: 1, name: $name, phase: "serving", id: 3}')"
	done
	state slash '{"version": 1, "name": "../slash", "phase": "serving", "id": 3}'
	mkfifo "$tmp/state/fifo.json"
	echo '{"version": 1, "name": "link", "phase": "serving", "id": 3}' >"$tmp/link"
	ln -s "$tmp/link" "$tmp/state/link.json"
	mkdir "$tmp/state/folder.json"
	{ echo '{"version": 1, "name": "long", "phase": "serving", "id": 3}'; head -c 1100000 /dev/zero | tr '\0' ' '; } \
		>"$tmp/state/long.json"
	# what others may write, or have written under another name
	state writable '{"version": 1, "name": "writable", "phase": "serving", "id": 3}'
	chmod 666 "$tmp/state/writable.json"
	state twice '{"version": 1, "name": "twice", "phase": "serving", "id": 3}'
	ln "$tmp/state/twice.json" "$tmp/twice"
	udev_name 1 ublkb3 && [ ! -s "$tmp/out" ] || { cat "$tmp/out"; return 1; }
	state good '{"version": 1, "name": "good", "phase": "serving", "id": 3}'
	udev_name 0 ublkb3 && printed out good || return
	chmod 777 "$tmp/state" && udev_name 1 ublkb3 && [ ! -s "$tmp/out" ] && chmod 755 "$tmp/state" &&
		ln -s state "$tmp/state_link" && run 1 ublkctl udev-name ublkb3 --state-dir "$tmp/state_link" || return
	for name in ublkb ublkb3p1 ublkbx sda3 'ublkb 3' ublkb-3 ublkb99999999999999999999; do
		udev_name 1 "$name" && [ ! -s "$tmp/out" ] || return
	done
	run 1 ublkctl udev-name ublkb3 --state-dir "$tmp/none" && [ ! -s "$tmp/out" ]
}

# All that is installed, and nothing else, below DESTDIR.
installation() {
	local file config
	config=$(sed -nE 's/^ExecStart=.* --config (.*)/\1/p' "$bin/../deploy/ublkd.service")
	DESTDIR=$tmp/root cmake --install "$bin/.." --prefix /usr || return
	# A second time it leaves alone what is the user's.
	echo mine >"$tmp/root$config"
	DESTDIR=$tmp/root cmake --install "$bin/.." --prefix /usr || return
	[ "$(cat "$tmp/root$config")" = mine ] || return
	[ "$(stat -c %a "$tmp/root${config%/*}/devices.d")" = 755 ] || return
	rm "$tmp/root$config"
	{
		printf '%s\n' lib/systemd/system/ublkd.service lib/systemd/user/ublkd.service \
			lib/udev/rules.d/59-ublkd-owner.rules lib/udev/rules.d/60-ublkd.rules \
			lib/tmpfiles.d/ublkd.conf lib/modules-load.d/ublkd.conf share/ublkd/ublk-control-for-users.rules
		printf '%s\n' sbin/ublkd bin/ublkctl libexec/ublkd/ublkd-keeper share/man/man8/ublkd.8 share/man/man1/ublkctl.1 \
			share/man/man5/ublkd.yaml.5 share/bash-completion/completions/ublkctl \
			share/ublkd/grafana-dashboard.json
		if [ -x "$bin/ublktrace" ]; then
			printf '%s\n' sbin/ublktrace share/man/man8/ublktrace.8 \
				share/bash-completion/completions/ublktrace
		fi
		for file in examples/*.yaml; do echo "share/doc/ublkd/$file"; done
		for file in ublktrace/bpftrace/*.bt; do echo "share/ublkd/${file#ublktrace/}"; done
	} | sort >"$tmp/wanted"
	(cd "$tmp/root/usr" && find . -type f -size +0 | sed 's,^./,,' | sort) | diff "$tmp/wanted" - &&
		[ -x "$tmp/root/usr/sbin/ublkd" ] && [ -x "$tmp/root/usr/bin/ublkctl" ]
}

ok "bash completion" completion
ok "udev-name: the device of a node" names_for_udev
ok "udev-name: what is no state file of it is passed over" no_names_for_udev
ok "ublkd.yaml(5) has the options" manual
cannot=
command -v cmake >/dev/null || cannot='needs cmake'
ok_unless "$cannot" "cmake --install into a DESTDIR" installation

echo "1..$n"
exit $bad
