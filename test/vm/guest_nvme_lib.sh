# shellcheck shell=bash
# Shared by what needs NVMe over TCP in the guest: the kernel's target (nvmet, by its folders in configfs), and
# the kernel's initiator, the rival of ublkd's own. Sourced after guest_lib.sh. Neither nvmetcli nor nvme-cli
# is needed.

configfs=/sys/kernel/config
nvmet=$configfs/nvmet

# Fails where the kernel has no NVMe/TCP target; $work/modprobe says why.
nvmet_up() {
	modprobe -a nvmet-tcp loop 2>"$work/modprobe" || return
	mountpoint -q $configfs || mount -t configfs none $configfs
}

# put FILE VALUE: with the names when the kernel refuses it.
put() {
	# The error of a write is that of echo.
	echo "$2" >"$1" || { echo "$1 does not take $2" >&2; return 1; }
}

# ---- subsystems and their namespaces ----

# nvmet_subsystem NQN BACKING [NSID [ANA_GROUP]]: one more namespace of a subsystem, which is made with its first.
# BACKING: a block device, whose blocks the namespace has, or a file: blocks of 4 KiB.
nvmet_subsystem() {
	local subsystem=$nvmet/subsystems/$1 namespace=$nvmet/subsystems/$1/namespaces/${3:-1}
	if [ ! -d "$subsystem" ]; then
		mkdir "$subsystem" && put "$subsystem/attr_allow_any_host" 1 || return
	fi
	mkdir "$namespace" && put "$namespace/device_path" "$2" || return
	if [ -n "${4:-}" ]; then put "$namespace/ana_grpid" "$4" || return; fi
	nvmet_namespace_on "$1" "${3:-1}"
}

# nvmet_namespace_off NQN [NSID]: it vanishes for all who are connected, who are told so. _on: it is back.
nvmet_namespace_off() { put "$nvmet/subsystems/$1/namespaces/${2:-1}/enable" 0; }
nvmet_namespace_on() { put "$nvmet/subsystems/$1/namespaces/${2:-1}/enable" 1; }

nvmet_backing() { cat "$nvmet/subsystems/$1/namespaces/${2:-1}/device_path"; } # NQN [NSID]

# loop_disk FILE SIZE: a block device with blocks of 512 bytes that can grow. Prints its path.
loop_disk() { truncate -s "$2" "$1" && losetup --find --show --direct-io=off "$1"; }

# nvmet_resize NQN SIZE [NSID]: of a file or a loop device; who is connected is told. No other can grow.
nvmet_resize() {
	local backing
	backing=$(nvmet_backing "$1" "${3:-1}") || return
	case $backing in
	/dev/loop*) truncate -s "$2" "$(losetup --noheadings --output BACK-FILE "$backing")" && losetup -c "$backing" ;;
	/dev/*) echo "$backing cannot grow" >&2 && false ;;
	*) truncate -s "$2" "$backing" ;;
	esac && put "$nvmet/subsystems/$1/namespaces/${3:-1}/revalidate_size" 1
}

# ---- ports ----

# nvmet_port ID ADDRESS PORT [INLINE_DATA_BYTES]: it listens from its first link on. INLINE_DATA_BYTES: the largest
# write that travels in its command, at least 1024: below, the target takes no Connect either. Default: the kernel's,
# 16 KiB.
nvmet_port() {
	local port=$nvmet/ports/$1
	mkdir "$port" && put "$port/addr_trtype" tcp && put "$port/addr_adrfam" ipv4 &&
		put "$port/addr_traddr" "$2" && put "$port/addr_trsvcid" "$3" || return
	[ -z "${4:-}" ] || put "$port/param_inline_data_size" "$4"
}

# nvmet_link PORT_ID NQN; nvmet_unlink PORT_ID NQN: all its connections of that port end at once. A port without
# any subsystem does not listen; one that has another answers Connect with an error.
nvmet_link() { ln -s "$nvmet/subsystems/$2" "$nvmet/ports/$1/subsystems/$2"; }
nvmet_unlink() { rm "$nvmet/ports/$1/subsystems/$2"; }

# nvmet_ana PORT_ID GROUP STATE: optimized, non-optimized, inaccessible, persistent-loss or change.
nvmet_ana() {
	local group=$nvmet/ports/$1/ana_groups/$2
	[ -d "$group" ] || mkdir "$group" || return # all ports have group 1
	put "$group/ana_state" "$3"
}

nvmet_listens() { # PORT: of 127.0.0.1
	grep -q "$(printf '0100007F:%04X 00000000:0000 0A' "$1")" /proc/net/tcp
}

# ---- the wire ----

# wire_cut: all packets on lo get lost, so a peer is silent; wire_mend.
wire_cut() { tc qdisc replace dev lo root netem loss 100%; }
wire_mend() { tc qdisc del dev lo root; }

# ---- the end ----

# All of it is removed. Fails when anything cannot be: something still uses it.
nvmet_down() {
	local it
	[ -d $nvmet ] || return 0
	for it in $nvmet/ports/*/subsystems/*; do [ ! -L "$it" ] || rm "$it" || return; done
	# a group other than the first stands for a folder that somebody made
	for it in $nvmet/ports/*/ana_groups/*; do [ "${it##*/}" = 1 ] || [ ! -d "$it" ] || rmdir "$it" || return; done
	for it in $nvmet/ports/* $nvmet/subsystems/*/namespaces/* $nvmet/subsystems/*; do
		[ ! -d "$it" ] || rmdir "$it" || return
	done
	modprobe -r nvmet-tcp nvmet
}

# ---- the kernel's initiator ----

# kernel_connect NQN ADDRESS PORT [OPTION,...]: as /dev/nvme-fabrics takes them: hdr_digest, data_digest,
# nr_io_queues=N, reconnect_delay=S, ctrl_loss_tmo=S, keep_alive_tmo=S, queue_size=N. Sets $kernel_controller, as
# nvme0. Returns when the controller answers; its namespaces appear a little later (kernel_node).
kernel_controller=
kernel_connect() {
	local fabrics line code=1
	modprobe nvme-tcp || return
	exec {fabrics}<>/dev/nvme-fabrics || return
	if echo "transport=tcp,nqn=$1,traddr=$2,trsvcid=$3${4:+,$4}" >&$fabrics && read -r line <&$fabrics; then
		kernel_controller=nvme${line#instance=}
		kernel_controller=${kernel_controller%%,*}
		code=0
	fi
	exec {fabrics}>&-
	return $code
}

# kernel_controllers NQN: their folders.
kernel_controllers() {
	local it
	for it in /sys/class/nvme/nvme*; do
		if [ "$(cat "$it/subsysnqn" 2>/dev/null)" = "$1" ]; then echo "$it"; fi
	done
}

kernel_disconnect() { # NQN: all its controllers
	local it
	for it in $(kernel_controllers "$1"); do put "$it/delete_controller" 1 || return; done
}

# kernel_node NQN [NSID]: the block device; fails as long as there is none. A kernel with multipath has it below the
# subsystem, with all paths, another one below the controller.
kernel_node() {
	local subsystem it
	for subsystem in /sys/class/nvme-subsystem/*; do
		[ "$(cat "$subsystem/subsysnqn" 2>/dev/null)" = "$1" ] || continue
		for it in "$subsystem"/nvme*n*/nsid "$subsystem"/nvme*/nvme*n*/nsid; do
			[[ $it =~ /(nvme[0-9]+n[0-9]+)/nsid$ ]] && [ "$(cat "$it" 2>/dev/null)" = "${2:-1}" ] || continue
			[ -b "/dev/${BASH_REMATCH[1]}" ] || continue
			echo "/dev/${BASH_REMATCH[1]}"
			return
		done
	done
	return 1
}
