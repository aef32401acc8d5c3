# Completion of ublktrace(8) for bash.

_ublktrace_words() {
	case $1 in
	probes) echo '--json --help' ;;
	selftest) echo '--json --device --help' ;;
	record) echo '-p -c --all --duration --sample --rings --from-boot --buffer -o --help' ;;
	latency) echo '-p -c --all --by --duration --interval --json --help' ;;
	stacks) echo '--at -d --duration -o --svg --help' ;;
	control) echo '-p --duration --json --help' ;;
	*) echo 'probes selftest record latency stacks control --version --help' ;;
	esac
}

_ublktrace() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]}

	COMPREPLY=()
	if [ "$COMP_CWORD" -gt 1 ]; then
		case $prev in
		-p) mapfile -t COMPREPLY < <(compgen -W "$(pgrep -x ublkd)" -- "$cur") && return ;;
		-o) mapfile -t COMPREPLY < <(compgen -f -- "$cur") && return ;;
		-d) mapfile -t COMPREPLY < <(cd /sys/block && compgen -d -- "$cur") && return ;;
		-c) mapfile -t COMPREPLY < <(compgen -c -- "$cur") && return ;;
		--by) mapfile -t COMPREPLY < <(compgen -W 'op ring opcode device' -- "$cur") && return ;;
		--at) mapfile -t COMPREPLY < <(compgen -W 'queue dispatch complete nvme_queue' -- "$cur") && return ;;
		--device) mapfile -t COMPREPLY < <(compgen -f -- "${cur:-/dev/ublkb}") && return ;;
		--duration | --interval | --sample | --rings | --buffer) return ;;
		esac
	else
		command=
	fi
	mapfile -t COMPREPLY < <(compgen -W "$(_ublktrace_words "$command")" -- "$cur")
}
complete -F _ublktrace ublktrace
