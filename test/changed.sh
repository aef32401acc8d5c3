# shellcheck shell=bash
# What has changed lately, for checks that look at that alone. Sourced.

# changed HOURS: names of files that the commits of the last hours and the working tree have changed. The hours end at
# HEAD's own date, so that a commit has the same on each day. With UBLKD_FAST what HEAD and the working tree have changed.
# Fails when nobody can say.
changed() {
	local end base
	if [ -n "${UBLKD_FAST:-}" ]; then
		base=$(git rev-parse -q --verify HEAD^) || return
	else
		end=$(git log -1 --format=%ct) || return
		base=$(git rev-list -1 --first-parent --before="@$((end - $1 * 3600))" HEAD) && [ -n "$base" ] || return
	fi
	git diff --name-only "$base" && git ls-files -o --exclude-standard
}
