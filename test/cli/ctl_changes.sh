# shellcheck shell=bash
# For cli.sh, which has fake, ctl, told, printed and said: commands that change a device that serves.

ctl_snapshot() {
	local rest='"size_bytes":1073741824,"vm_state_bytes":0,"time_s":1000000000,"time_ns":5'
	local some="{\"id\":\"1\",\"name\":\"before\\u001b[2J\",$rest},{\"id\":\"2\",\"name\":\"漢字é\",$rest}"
	fake "{\"ok\":true,\"data\":{\"name\":\"a\",\"node\":\"a\",\"snapshots\":[$some],\"change\":{\"action\":\"create\",\"name\":\"after\",\"done_permille\":437}}}"$'\n' \
		'{"ok":true,"data":{"name":"a"}}'$'\n' '{"ok":true,"data":{"name":"a"}}'$'\n' \
		'{"ok":false,"error":"in use: mounted on /mnt"}'$'\n'
	TZ=UTC ctl 0 snapshot list a &&
		printed out 'ID  NAME           SIZE  VM STATE  CREATED
1   before\x1b[2J  1GiB        0B  2001-09-09 01:46:40
2   漢字é          1GiB        0B  2001-09-09 01:46:40
under way: create after, 43 %' &&
		ctl 0 snapshot create a after --node a/data && [ ! -s "$tmp/out" ] &&
		ctl 0 snapshot apply a 1 --force && ctl 1 snapshot delete a before && said err 'in use' &&
		printed asked '{"command":"snapshot","name":"a","action":"list"}
{"command":"snapshot","name":"a","action":"create","snapshot":"after","node":"a/data"}
{"command":"snapshot","name":"a","action":"apply","force":true,"snapshot":"1"}
{"command":"snapshot","name":"a","action":"delete","snapshot":"before"}'
	unfake
}

printable() { python3 "$top/test/cli/printable.py" "$tmp/$1"; }

# What a server or an image may have in it: an escape, a bell, a line of its own, C1, an override.
hostile='a\u001b]0;owned\u0007b\nublkctl: all is well\r\t\u007f\u009b31m\u202ec漢'
shown='a\x1b]0;owned\x07b\x0aublkctl: all is well\x0d\x09\x7f\u009b31m\u202ec漢'

ctl_hostile_words() {
	local device=${device_b/no such file/"$hostile"}
	told 0 list "{\"ok\":true,\"data\":[$device]}" && printable out && said out "long-name: $shown" &&
		[ "$(wc -l <"$tmp/out")" = 3 ] &&
		told 0 list "{\"ok\":true,\"data\":[$device_b, {\"name\":\"$hostile\",\"backend\":\"$hostile\"}]}" &&
		printable out && [ "$(wc -l <"$tmp/out")" = 4 ] && said out "$shown  " &&
		told 0 show x "{\"ok\":true,\"data\":{\"name\":\"x\",\"error\":\"$hostile\",\"more\":[\"$hostile\"],\"options\":{\"type\":\"file\",\"path\":\"$hostile\"}}}" &&
		printable out && said out "error                 $shown" && said out "file.path             $shown" &&
		said out "more                  $shown" &&
		told 1 del x "{\"ok\":false,\"error\":\"$hostile\"}" && printable err && printed err "ublkctl: $shown" &&
		told 1 del x "{\"ok\":false,\"error\":\"two\",\"errors\":[\"$hostile\",\"$hostile\"]}" && printable err &&
		[ "$(wc -l <"$tmp/err")" = 3 ] &&
		run 2 ublkctl list $'x\e[31m' && said err 'unexpected argument: x\x1b[31m'
}

# For programs: nothing is lost, and nothing in it does something to a terminal.
ctl_hostile_json() {
	local data="{\"name\":\"$hostile\",\"ascii\":\"\\\\x1b\"}"
	told 0 --json show x "{\"ok\":true,\"data\":$data}" && printable out && said out '漢' &&
		python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1])) != json.loads(sys.argv[2]))' "$tmp/out" "$data"
}

ctl_cache() {
	local cache='{"node":"a","mode":"writeback","off":false,"block_bytes":65536,"blocks":1000,"used_blocks":100,"dirty_bytes":8192,"hits":30,"misses":10,"hit_bytes":3000,"miss_bytes":1000,"filled_bytes":2000,"passed_by":0,"prefetched_blocks":0,"evicted_blocks":7,"cleaned_bytes":0,"hit_ratio":0.75}'
	local warm='"total_bytes":1073741824,"fetched_bytes":268435456,"present_bytes":1048576,"passed_bytes":4096'
	fake "{\"ok\":true,\"data\":{\"name\":\"a\",\"caches\":[$cache],\"command\":{\"action\":\"warm\",\"node\":\"a\",$warm}}}"$'\n' \
		"{\"ok\":true,\"data\":{\"name\":\"a\",\"caches\":[$cache],\"command\":null}}"$'\n' \
		'{"ok":true,"data":{"total_bytes":8192,"fetched_bytes":8192,"present_bytes":0,"passed_bytes":0,"full":false}}'$'\n' \
		"{\"ok\":true,\"data\":{$warm,\"full\":true}}"$'\n' \
		'{"ok":true,"data":{"dropped_bytes":1048576,"dirty_bytes":0}}'$'\n' \
		'{"ok":true,"data":{"dropped_bytes":1048576,"dirty_bytes":12288}}'$'\n' \
		'{"ok":false,"error":"the device has no cache"}'$'\n'
	ctl 0 cache stats a &&
		printed out 'CACHE  MODE                    USED  DIRTY  HITS  MISSES  HIT BYTES  FILLED  EVICTED  CLEANED
a      writeback  6.2MiB of 62.5MiB   8KiB    30      10      75.0%  2.0KiB        7       0B
under way: warm a, 257.0MiB of 1GiB, 25 %' &&
		ctl 0 cache stats a --json && said out '"command": null' &&
		ctl 0 cache warm a && printed out '8KiB fetched, 0B there already' &&
		ctl 0 cache warm a --offset 1MiB --length 1G --node a/data &&
		printed out '256MiB fetched, 1MiB there already, 4KiB passed over as they were being changed
the cache is full: 257.0MiB of 1GiB, 25 %; ublkctl cache drop makes room, a larger store keeps more' &&
		ctl 0 cache drop a && printed out '1MiB dropped' &&
		ctl 0 cache drop a --node a && printed out '1MiB dropped
12KiB stay dirty: the storage behind the cache does not have them yet' &&
		ctl 1 cache drop a && said err 'has no cache' &&
		printed asked '{"command":"cache","name":"a","action":"stats"}
{"command":"cache","name":"a","action":"stats"}
{"command":"cache","name":"a","action":"warm"}
{"command":"cache","name":"a","action":"warm","node":"a/data","offset":"1MiB","length":"1G"}
{"command":"cache","name":"a","action":"drop"}
{"command":"cache","name":"a","action":"drop","node":"a"}
{"command":"cache","name":"a","action":"drop"}'
	unfake
}

ctl_throttle() {
	local some='{"ok":true,"data":{"total_bytes_sec":1048576,"total_iops_sec":8000,"total_iops_sec_max":9000,"total_iops_sec_max_length":60,"read_iops_sec":0,"read_iops_sec_max_length":1,"group":null}}'
	fake "$some"$'\n' '{"ok":true,"data":{"read_iops_sec":0,"group":null}}'$'\n'
	ctl 0 throttle a total_iops_sec=8000 total_bytes_sec=1M &&
		printed out 'total_bytes_sec       1MiB
total_iops_sec        8000
total_iops_sec_max    9000
total_iops_sec_max_length 60' && ctl 0 throttle a && printed out 'no limits' && printed asked \
		'{"command":"throttle","name":"a","set":{"total_iops_sec":"8000","total_bytes_sec":"1M"}}
{"command":"throttle","name":"a"}'
	unfake
}
