# shellcheck shell=bash
# One TAP line per check, for the host's test scripts; sourced. The caller has a folder $tmp.

n=0 bad=0

# What a failed check printed; a script whose output is long has its own.
show_log() { sed 's/^/# /' "$tmp/log"; }

# ok NAME COMMAND...
ok() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/log" 2>&1; then
		echo "ok $n - $name"
	else
		bad=1
		echo "not ok $n - $name"
		show_log
	fi
}

skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}
