# shellcheck shell=bash
# What `ublktrace record` needs, for test scripts that are skipped without; sourced behind tap.sh.
# $what: of the script. $build: the folder of the programs.

leave() { # WHY
	skip "$what" "$1"
	echo "1..$n"
	exit 0
}

[ "$(id -u)" = 0 ] || leave "tracing needs root"
[ -x "$build/bin/ublktrace" ] || leave "ublktrace was not built"
[ -r /sys/kernel/btf/vmlinux ] || leave "this kernel has no type information (BTF)"
