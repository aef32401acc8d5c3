# Completion of ublkctl(1) for bash.

# Names of the devices of the daemon that the command line so far would talk to.
_ublkctl_names() {
	ublkctl "$@" list 2>/dev/null | awk 'NR > 1 && $1 !~ /:$/ { print $1 }'
}

_ublkctl_nodes() { compgen -G '/dev/ublkb*'; }

_ublkctl_limits() {
	local what
	for what in {total,read,write}_{bytes,iops}_sec{,_max,_max_length} size_iops_sec; do
		echo "$what="
	done
}

# Behind the action: a device, then one of its snapshots, but for a new one.
_ublkctl_snapshot_words() {
	local action='' device='' word

	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case $word in
		-* | snapshot | "${socket[1]-}") ;;
		*)
			device=${action:+$word}
			action=${action:-$word}
			[ -z "$device" ] || break
			;;
		esac
	done
	if [ -z "$device" ]; then
		echo "$(_ublkctl_names "${socket[@]}") --node --json"
	elif [ "$action" = delete ] || [ "$action" = apply ]; then
		ublkctl "${socket[@]}" snapshot list "$device" 2>/dev/null | awk 'NR > 1 { print $2 }'
		if [ "$action" = apply ]; then echo --force; fi
	fi
}

# Behind the action: a device, and the options of that action.
_ublkctl_cache_words() {
	local word words

	words="$(_ublkctl_names "${socket[@]}") --json"
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case $word in
		warm) words="$words --offset --length --node" ;;
		drop) words="$words --node" ;;
		store) words="$(compgen -f -- "$cur") --discard --force --json" ;;
		esac
	done
	echo "$words"
}

_ublkctl() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local commands='list show add del attach detach create-image s3-gc resize snapshot cache share unshare throttle stats top histogram inflight why-stuck flight gc upgrade reactors nbd-info nvme-discover doctor udev-name udev-owner version'
	local command='' socket=() i

	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s | --socket)
			socket=(--socket "${COMP_WORDS[i + 1]}")
			i=$((i + 1))
			;;
		-f | --file | --state-dir | --watch | --interval | --count | --perfetto | -w | -n | --layer | --op | --device | --name | --queues | --host-nqn | --timeout | --node | --offset | --length | --size | --backing | --backing-format | --backing-folder | --cluster-size | --refcount-bits | --compat | --data-file | --boundaries*) i=$((i + 1)) ;;
		-*) ;;
		*) if [ -z "$command" ]; then command=${COMP_WORDS[i]}; fi ;;
		esac
	done

	COMPREPLY=()
	case $prev in
	-s | --socket | -f | --file | --perfetto | --backing | --data-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--state-dir | --backing-folder)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--watch | --interval | --count | -w | -n | --device | --name | --queues | --host-nqn | --timeout | --node | --offset | --length | --size | --cluster-size | --refcount-bits | --boundaries*) return ;;
	--layer)
		mapfile -t COMPREPLY < <(compgen -W 'total throttle daemon backend' -- "$cur")
		return
		;;
	--op)
		mapfile -t COMPREPLY < <(compgen -W 'read write flush discard write_zeroes' -- "$cur")
		return
		;;
	snapshot)
		mapfile -t COMPREPLY < <(compgen -W 'list create delete apply' -- "$cur")
		return
		;;
	cache)
		mapfile -t COMPREPLY < <(compgen -W 'stats warm drop store' -- "$cur")
		return
		;;
	--backing-format)
		mapfile -t COMPREPLY < <(compgen -W 'qcow2 raw' -- "$cur")
		return
		;;
	--compat)
		mapfile -t COMPREPLY < <(compgen -W '0.10 1.1' -- "$cur")
		return
		;;
	histogram)
		mapfile -t COMPREPLY < <(compgen -W 'get set reset' -- "$cur")
		return
		;;
	esac

	local words
	case $command in
	'') words="$commands --socket --json --version --help" ;;
	inflight | why-stuck) words="$(_ublkctl_names "${socket[@]}") --json" ;;
	upgrade)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	flight)
		mapfile -t COMPREPLY < <(compgen -f -W '--count --perfetto --json' -- "$cur")
		return
		;;
	show) words=$(_ublkctl_names "${socket[@]}") ;;
	attach)
		mapfile -t COMPREPLY < <(compgen -f -W '--read-only --name --queues --show --persist --raw --size --backing --backing-format --backing-folder --json' -- "$cur")
		return
		;;
	share)
		mapfile -t COMPREPLY < <(compgen -f -W "$(_ublkctl_names "${socket[@]}") --read-only --json" -- "$cur")
		return
		;;
	unshare) words=$(_ublkctl_names "${socket[@]}") ;;
	create-image)
		mapfile -t COMPREPLY < <(compgen -f -W '--size --backing --backing-format --cluster-size --extended-l2
			--refcount-bits --compat --lazy-refcounts --data-file --data-file-raw --force --json' -- "$cur")
		return
		;;
	s3-gc)
		mapfile -t COMPREPLY < <(compgen -f -W '--device --dry-run --json' -- "$cur")
		return
		;;
	detach) words="$(_ublkctl_names "${socket[@]}") $(_ublkctl_nodes) --force" ;;
	del | resize) words="$(_ublkctl_names "${socket[@]}") --force" ;;
	snapshot) words=$(_ublkctl_snapshot_words) ;;
	cache) words=$(_ublkctl_cache_words) ;;
	throttle) words="$(_ublkctl_names "${socket[@]}") $(_ublkctl_limits)" ;;
	stats) words="$(_ublkctl_names "${socket[@]}") --watch --count --layers" ;;
	top) words="$(_ublkctl_names "${socket[@]}") --interval --batch --count" ;;
	histogram)
		words="$(_ublkctl_names "${socket[@]}") --layer --op --qmp-json --boundaries
			--boundaries-read --boundaries-write --boundaries-flush"
		;;
	nbd-info) words='--list --json' ;;
	nvme-discover)
		mapfile -t COMPREPLY < <(compgen -A hostname -W '--host-nqn --timeout --json' -- "$cur")
		return
		;;
	gc) words='--remove --json' ;;
	add) words='-f' ;;
	udev-owner) words="$(cd /dev && echo ublk[bc][0-9]*) --set" ;;
	udev-name) words="$(cd /sys/block && echo ublkb[0-9]*) --state-dir" ;;
	*) words='--json' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _ublkctl ublkctl
