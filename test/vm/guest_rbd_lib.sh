# shellcheck shell=bash
# Shared by what needs Ceph in the guest: a cluster of test/ceph/cluster.sh, and images on it. Sourced after
# guest_lib.sh.

ceph_dir=$work/ceph

# cluster COMMAND [ARGUMENT...]
cluster() { "$here/../ceph/cluster.sh" "$1" "$ceph_dir" "${@:2}"; }

# ceph_up STORE: a cluster, from the one that cluster.sh prebuild has made on the host if it is there, as to make one
# takes three times as long here; $ceph_why: why not.
ceph_up() {
	local kept=$here/../../build/ceph/$1 from
	ceph_why=$("$here/../ceph/cluster.sh" check 2>&1) || return
	if [ -e "$kept/made" ]; then from=(--from "$(readlink -f "$kept")"); else from=(--store "$1"); fi
	ip link set lo up && cluster start "${from[@]}" >"$work/cluster" 2>&1 && return
	ceph_why="the cluster does not start: $(tail -n 1 "$work/cluster")"
	return 1
}

# The user of the images is client.admin. Without a cluster that answers it waits for ever, and does not mind SIGTERM.
rbd() { CEPH_CONF=$ceph_dir/ceph.conf timeout -k 1 300 rbd --keyring "$ceph_dir/keyring" "$@"; }

# Instead of finish: with what the cluster's daemons said last, if a test failed.
finish_rbd() {
	if [ "$bad" -gt 0 ]; then tail -n 30 "$ceph_dir"/{mon,osd}.{log,out} | cut -c1-200 | sed 's/^/# ceph: /'; fi
	finish
}
image_size() { rbd info --format json "rbd/$1" | jq -r .size; }
# watcher NAME: the address of the client that has the image open for writing.
watcher() { rbd status --format json "rbd/$1" | jq -r '.watchers[0].address'; }
# list_client ADDRESS: on the cluster's blocklist.
list_client() { cluster mon "{\"prefix\": \"osd blocklist\", \"blocklistop\": \"add\", \"addr\": \"$1\"}"; }
