#!/bin/bash
# Builds the kernel of the quick guest: User-mode Linux 7.2, a kernel that is a program of this machine, from Debian's
# source package with fixes.patch and the options of uml.config. Five minutes on two CPUs, once: it is kept by the hash
# of its inputs.
#
#   kernel.sh get         print its folder, and build it only if it is not there
#   kernel.sh is_built    exit code 0 when it is there
#
# The folder holds linux (the program), modules/ and release.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
. "$here/../archive.sh"
. "$here/../source.sh"

inputs=$(cat "$here"/{kernel.sh,fixes.patch,uml.config} | sha256sum | cut -c -16)
place=$cache/uml-$inputs
# Always the same folder: ccache compares the paths of what is compiled.
work=$cache/uml-build

is_built() { [ -s "$place/release" ]; }

check_tools() {
	local tool
	[ "$(uname -m)" = x86_64 ] || die "the quick guest is for x86_64; this machine is $(uname -m)"
	for tool in gcc make flex bison bc patch xz depmod; do
		command -v "$tool" >/dev/null || die "$tool is missing: run ./dev vm --uml"
	done
}

# What no option of ours compiles stays in the package, but for what is read to configure.
unpack() {
	unpack_source "$work/source" --exclude '*/Documentation/*.rst' --exclude '*/Documentation/*.yaml' \
		--exclude '*/tools/testing/*' --exclude '*/drivers/gpu/*.[ch]' --exclude '*/drivers/net/*/*.[ch]' \
		--exclude '*/drivers/media/*.[ch]' --exclude '*/drivers/staging/*.[ch]' --exclude '*/sound/*.[ch]' \
		--exclude '*/arch/[abcdhlmnop]*/*.[chS]' --exclude '*/arch/[rsx][3ihpt]*/*.[chS]' --exclude '*.dts*'
	patch -s -p1 -d "$work/source" <"$here/fixes.patch"
}

# With CCACHE_DEPEND, ccache does not see what an assembler file includes (.incbin).
make_compiler() {
	local ccache=''
	if command -v ccache >/dev/null; then ccache='CCACHE_DEPEND=1 ccache '; fi
	printf '#!/bin/sh\ncase $* in *.S) exec gcc "$@" ;; esac\n%sgcc "$@"\n' "$ccache" >"$work/cc"
	chmod 755 "$work/cc"
}

# Each word is an argument of make. The names and the time make the program the same each time. -O1 takes the compiler a
# sixth less than -Os.
compile() {
	export KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' KBUILD_BUILD_USER=ublkd KBUILD_BUILD_HOST=ublkd
	make -s -C "$work/source" ARCH=um O="$work/build" CC="$work/cc" KCFLAGS=-O1 -j "$(nproc)" "$@"
}

# An option that the source does not take (its dependency is missing, or its name has changed) is an error.
configure() {
	mkdir -p "$work/build"
	compile KCONFIG_ALLCONFIG="$here/uml.config" alldefconfig
	local lost
	lost=$(grep '^CONFIG_' "$here/uml.config" | grep -vxFf "$work/build/.config") || true
	[ -z "$lost" ] || die "the kernel's configuration does not take: $lost"
}

build() {
	rm -rf "$work"
	mkdir -p "$work"
	unpack
	make_compiler
	configure
	say "building the kernel of the quick guest"
	compile linux modules
	compile INSTALL_MOD_PATH="$work/tree" INSTALL_MOD_STRIP=1 modules_install
	mkdir "$work/new"
	cp "$work/build/linux" "$work/new/linux"
	strip --strip-debug "$work/new/linux"
	rm -f "$work"/tree/lib/modules/*/{build,source}
	mv "$work/tree/lib/modules" "$work/new/modules"
	ls "$work/new/modules" >"$work/new/release"
	mv -T "$work/new" "$place"
	rm -rf "$work"
	find "$cache" -maxdepth 1 -name 'uml-*' -mtime +30 -exec rm -rf {} +
}

# errexit holds in build only because nobody tests its result.
get() {
	if ! is_built; then
		check_tools
		mkdir -p "$cache"
		exec 8>"$cache/uml.lock"
		flock 8
	fi
	if ! is_built; then
		lock
		get_source_deb || die "cannot fetch linux-source-7.2: is the network up?"
		exec 9>&-
		build >&2
	fi
	printf '%s\n' "$place"
}

case ${1:-} in
get) get ;;
is_built) is_built ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
