# shellcheck shell=bash
# Shared by the guest suites about Ceph RBD: a cluster (test/ceph/cluster.sh), started from the one that
# `cluster.sh prebuild` made on the host, or made here, which takes two to three times as long. Sourced after
# guest_lib.sh. The clients of the suite are client.ublkd.

if ! why=$("$here/../ceph/cluster.sh" check 2>&1); then
	skip "devices on Ceph RBD" "$why"
	finish
fi
ip link set lo up
ceph=$work/ceph # the cluster's folder

# cluster COMMAND [OPTION...]: as cluster.sh, which is told the folder
cluster() { "$here/../ceph/cluster.sh" "$1" "$ceph" "${@:2}"; }

# start_cluster [memstore|bluestore]: ready when it returns
start_cluster() {
	local store=${1:-memstore} kept
	kept=$(readlink -f "$here/../..")/build/ceph/$store
	if [ -e "$kept/made" ]; then
		cluster start --from "$kept"
	else
		cluster start --store "$store"
	fi && eval "$(cluster env ublkd)"
}

# Instead of finish: stops the cluster, and prints its output if a test failed.
finish_rbd() {
	if [ "$bad" -gt 0 ]; then tail -n 5 "$ceph"/*.out | sed 's/^/# ceph: /'; fi
	ok "the cluster stops" cluster stop
	finish
}
