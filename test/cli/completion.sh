# shellcheck shell=bash
# For cli.sh: what the completion of ublkctl offers, with a ublkctl that knows two devices.

complete_words() {
	(
		. ublkctl/completion/ublkctl.bash
		ublkctl() {
			case " $* " in
			*' snapshot list beta '*) printf 'ID  NAME\n1   before\n2   after\n' ;;
			*) printf 'NAME STATE\nalpha live\nbeta failed\nbeta: no such file\n' ;;
			esac
		}
		COMP_WORDS=(ublkctl "$@") COMP_CWORD=$#
		_ublkctl
		echo "${COMPREPLY[*]}"
	)
}

completion() {
	[ "$(complete_words s)" = 'show s3-gc snapshot share stats' ] &&
		[ "$(complete_words snapshot d)" = 'delete' ] &&
		[ "$(complete_words snapshot apply b)" = 'beta' ] &&
		[ "$(complete_words --socket x snapshot delete beta '')" = 'before after' ] &&
		[ "$(complete_words snapshot apply beta a)" = 'after' ] &&
		[ "$(complete_words snapshot create beta '')" = '' ] &&
		[ "$(complete_words cache '')" = 'stats warm drop store' ] &&
		[ "$(complete_words cache store examples/mini)" = 'examples/minimal.yaml' ] &&
		[ "$(complete_words cache store examples/minimal.yaml --d)" = '--discard' ] &&
		[ "$(complete_words cache warm '')" = 'alpha beta --json --offset --length --node' ] &&
		[ "$(complete_words --socket x cache drop alpha --)" = '--json --node' ] &&
		[ "$(complete_words cache stats b)" = 'beta' ] &&
		[ "$(complete_words cache warm alpha --offset '')" = '' ] &&
		[ "$(complete_words show '')" = 'alpha beta' ] &&
		[ "$(complete_words --socket x del a)" = 'alpha' ] &&
		[ "$(complete_words del alpha --)" = '--force' ] &&
		[ "$(complete_words detach a)" = 'alpha' ] &&
		[ "$(complete_words detach beta --)" = '--force' ] &&
		[ "$(complete_words unshare a)" = 'alpha' ] &&
		[ "$(complete_words share --)" = '--read-only --json' ] &&
		[ "$(complete_words at)" = 'attach' ] &&
		[ "$(complete_words attach --)" = '--read-only --name --queues --show --persist --raw --size --backing --backing-format --backing-folder --json' ] &&
		[ "$(complete_words attach --name x examples/mini)" = 'examples/minimal.yaml' ] &&
		[ "$(complete_words attach --queues '')" = '' ] &&
		[ "$(complete_words s3-gc --)" = '--device --dry-run --json' ] &&
		[ "$(complete_words s3-gc --device x examples/mini)" = 'examples/minimal.yaml' ] &&
		[ "$(complete_words s3-gc --device '')" = '' ] &&
		[ "$(complete_words stats --w)" = '--watch' ] &&
		[ "$(complete_words top --)" = '--interval --batch --count' ] &&
		[ "$(complete_words top --interval 2 b)" = 'beta' ] &&
		[ "$(complete_words nbd-info --l)" = '--list' ] &&
		[ "$(complete_words nvme-discover --)" = '--host-nqn --timeout --json' ] &&
		[ "$(complete_words nvme-discover --timeout '')" = '' ] &&
		[ "$(complete_words udev-name --st)" = '--state-dir' ] &&
		[ "$(complete_words udev-owner --)" = '--set' ] &&
		[ "$(complete_words add -f examples/mini)" = 'examples/minimal.yaml' ]
}
