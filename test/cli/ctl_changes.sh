# shellcheck shell=bash
# For cli.sh, which has fake, ctl, told, printed and said: commands that change a device that serves.

ctl_snapshot() {
	local one='{"id":"1","name":"before\u001b[2J","size_bytes":1073741824,"vm_state_bytes":0,"time_s":1000000000,"time_ns":5}'
	fake "{\"ok\":true,\"data\":{\"name\":\"a\",\"node\":\"a\",\"snapshots\":[$one],\"change\":{\"action\":\"create\",\"name\":\"after\",\"done_permille\":437}}}"$'\n' \
		'{"ok":true,"data":{"name":"a"}}'$'\n' '{"ok":true,"data":{"name":"a"}}'$'\n' \
		'{"ok":false,"error":"in use: mounted on /mnt"}'$'\n'
	TZ=UTC ctl 0 snapshot list a &&
		printed out 'ID  NAME        SIZE  VM STATE  CREATED
1   before?[2J  1GiB        0B  2001-09-09 01:46:40
under way: create after, 43 %' &&
		ctl 0 snapshot create a after --node a/data && [ ! -s "$tmp/out" ] &&
		ctl 0 snapshot apply a 1 --force && ctl 1 snapshot delete a before && said err 'in use' &&
		printed asked '{"command":"snapshot","name":"a","action":"list"}
{"command":"snapshot","name":"a","action":"create","snapshot":"after","node":"a/data"}
{"command":"snapshot","name":"a","action":"apply","force":true,"snapshot":"1"}
{"command":"snapshot","name":"a","action":"delete","snapshot":"before"}'
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
