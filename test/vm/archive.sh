# shellcheck shell=bash
# Installs packages of other Debian suites than the machine's, which the tests need, into the cache.
# The machine's own apt sources are not changed: every suite has its own package lists in the cache.
# Sourced; the caller sets errexit.

cache=${UBLKD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ublkd/guest}

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# The archive is reached as the machine reaches it: a mirror or a proxy there is there for a reason.
machine_uris() {
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
		sed -nE 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p'
	sed -nE 's/^URIs:[[:space:]]*//p' /etc/apt/sources.list.d/*.sources 2>/dev/null |
		tr -s '[:blank:]' '\n'
}

archive_uri() { # SUITE
	local tail=debian uri
	[[ $1 == *-security ]] && tail=debian-security
	uri=$(machine_uris | grep -E "/$tail/?\$" | head -n 1) || true
	# A machine without a security mirror: the same archive mostly has it beside.
	[ -n "$uri" ] || uri=$(machine_uris | grep -E '/debian/?$' | head -n 1 | sed "s|/debian/*\$|/$tail|") || true
	[ -n "$uri" ] || die "no Debian archive in /etc/apt/sources.list(.d)"
	printf '%s\n' "$uri"
}

keyring_option() {
	local ring=/usr/share/keyrings/debian-archive-keyring.gpg
	if [ -e "$ring" ]; then echo "[arch=amd64 signed-by=$ring]"; else echo "[arch=amd64]"; fi
}

apt_options() { # SUITE: sets the array apt
	local dir=$cache/apt/$1
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	printf 'deb %s %s %s main\n' "$(keyring_option)" "$(archive_uri "$1")" "$1" >"$dir/sources.list"
	apt=(-qq -oDir::Etc::sourcelist="$dir/sources.list" -oDir::Etc::sourceparts=/dev/null
		-oDir::State::Lists="$dir/lists" -oDir::Cache="$dir/cache" -oDir::State::status=/dev/null
		-oAPT::Architecture=amd64 -oAPT::Sandbox::User=root -oAcquire::Languages=none
		-oAcquire::Retries=2 -oAPT::Update::Error-Mode=any)
}

# find_suite WHAT "SUITE..." TEST...: updates the lists until TEST prints a package; sets package, suite and
# the array apt, which the caller has as its own.
find_suite() {
	local what=$1 suites=$2
	shift 2
	for suite in $suites; do
		apt_options "$suite"
		say "asking $suite for $what"
		apt-get "${apt[@]}" update >&2 || { say "cannot read $suite"; continue; }
		package=$("$@") || package=
		if [ -n "$package" ]; then return 0; fi
	done
	return 1
}

download() { # DIR PACKAGE...
	local dir=$1
	shift
	say "downloading $*"
	(cd "$dir" && apt-get "${apt[@]}" download "$@" >&2)
}

# Two runs must not fill the cache at once; a killed run leaves only folders that begin with a dot.
lock() {
	mkdir -p "$cache" || die "cannot make $cache: set UBLKD_CACHE to a folder that can be written"
	exec 9>"$cache/lock"
	flock -n 9 || { say "waiting for another run that fetches packages"; flock 9; }
}
