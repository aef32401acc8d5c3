# shellcheck shell=bash
# The lines of ./dev bench --scale, for bench/guest.sh, which sources this. The mode of such a system is a number: of
# devices, children, filters or connections.

scale_children=(/mnt/children/{0..7})

start_scale() { # SYSTEM NUMBER
	case $1 in
	scale-devices) start_scale_devices "$2" "{type: file, path: $file}" ;;
	scale-spread) start_scale_devices "$2" '{type: null, size: 256MiB}' ;;
	scale-stripe) start_scale_stripe "$2" ;;
	scale-filters) start_ublkd auto "$(scale_filters "$2" "{type: file, path: $file}")" ;;
	scale-nbd) start_scale_nbd "$2" ;;
	esac
}

stop_scale() { # SYSTEM
	stop_daemon
	if [ "$1" = scale-nbd ]; then stop_nbdkit; fi
}

# What fio needs to know of the current cell.
scale_load() {
	local i
	case $system in
	scale-stripe) echo --size=32M ;;
	scale-spread)
		# fio's statistics of each device take it longer than all I/Os
		echo --disk_util=0
		for ((i = 1; i < mode; i++)); do echo "--filename=/dev/ublkb$i"; done
		;;
	esac
}

# The device that is measured comes last: a walk over all would come to it last.
start_scale_devices() { # NUMBER BACKEND
	local i others=''
	for ((i = 1; i < $1; i++)); do
		others+="  - {name: other$i, id: $i, queues: 1, depth: 32, backend: {type: null, size: 256MiB}}"$'\n'
	done
	start_ublkd auto "$2" "$others" && wait_for 60 scale_all_live "$1" && return
	why=${why:-not all of $1 devices are live}
	stop_daemon 2>/dev/null
	return 1
}

scale_all_live() { [ "$(ublkctl --json list 2>/dev/null | jq '[.[] | select(.state == "live")] | length')" = "$1" ]; }

# A stripe has two children at least: one is the file alone.
start_scale_stripe() { # NUMBER
	local backends i
	make_files /mnt/children 40 "${scale_children[@]}" || return
	backends="{type: file, path: ${scale_children[0]}}"
	if [ "$1" = 1 ]; then start_ublkd auto "$backends" && return; fi
	for ((i = 1; i < $1; i++)); do backends+=", {type: file, path: ${scale_children[i]}}"; done
	start_ublkd auto "{type: stripe, backends: [$backends]}"
}

# Limits that nothing reaches: each request passes the arithmetic of all of them.
scale_filters() { # NUMBER BACKEND
	local i backend=$2
	for ((i = 0; i < $1; i++)); do backend="{type: throttle, total_iops_sec: 1000000000, backend: $backend}"; done
	echo "$backend"
}

start_scale_nbd() { # NUMBER
	start_nbdkit unix || { why="nbdkit does not start"; return 1; }
	start_ublkd auto "{type: nbd, uri: \"nbd+unix:///?socket=$nbd_socket\", connections: $1}" && return
	stop_nbdkit
	return 1
}
