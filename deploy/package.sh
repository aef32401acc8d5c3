#!/bin/bash
# Builds build/package/ublkd_VERSION_ARCHITECTURE.deb from the files that `cmake --install` installs,
# and prints its path. ./dev package installs the build dependencies and calls it. It uses dpkg-deb
# directly, because debhelper would add more than it saves.
#
#   UBLKD_PACKAGE_BUILD   a folder where the preset release has built already, with CMAKE_INSTALL_PREFIX=/usr: its programs
#                         are packed, and nothing is compiled
set -euo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$top"
out=build/package
stage=$out/stage
build=${UBLKD_PACKAGE_BUILD:-$out/build}

build() {
	mkdir -p "$out"
	if [ -n "${UBLKD_PACKAGE_BUILD:-}" ]; then
		grep -qx 'CMAKE_INSTALL_PREFIX:PATH=/usr' "$build/CMakeCache.txt" && return
		echo "package.sh: $build is not configured with CMAKE_INSTALL_PREFIX=/usr" >&2
		exit 1
	fi
	if ! { cmake --preset package && cmake --build "$build" --target ublkd ublkctl ublktrace man; } >$out/build.log 2>&1; then
		cat $out/build.log >&2
		echo "package.sh: the build failed" >&2
		exit 1
	fi
}

# Prints the version of project() from CMake's cache.
version() { sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt"; }

install_files() {
	rm -rf $stage
	DESTDIR=$PWD/$stage cmake --install "$build" --strip >/dev/null
	install -D -m 644 deploy/debian/copyright $stage/usr/share/doc/ublkd/copyright
	install -m 644 README.md docs/*.md -t $stage/usr/share/doc/ublkd
	find $stage/usr/share/man -type f -exec gzip -9n {} +
	printf 'ublkd (%s) unstable; urgency=medium\n\n  * See the history of the project.\n\n -- ublkd developers <ublkd@localhost>  %s\n' \
		"$(version)" "$(date -uR -d "@$(git log -1 --format=%ct 2>/dev/null || echo 0)")" |
		gzip -9n >$stage/usr/share/doc/ublkd/changelog.gz
}

# Prints the library packages that the programs need, with versions, from dpkg-shlibdeps.
depends() {
	local work
	work=$(mktemp -d)
	mkdir "$work/debian"
	printf 'Source: ublkd\n\nPackage: ublkd\nArchitecture: any\n' >"$work/debian/control"
	(cd "$work" && dpkg-shlibdeps -O -e"$top/$stage/usr/sbin/ublkd" -e"$top/$stage/usr/bin/ublkctl" \
		-e"$top/$stage/usr/sbin/ublktrace" 2>/dev/null) |
		sed -n 's/^shlibs:Depends=//p'
	rm -rf "$work"
}

control() {
	local depends
	depends=$(depends)
	[ -n "$depends" ] || { echo "package.sh: dpkg-shlibdeps found no libraries" >&2; exit 1; }
	mkdir -p $stage/DEBIAN
	sed -e "s/@version@/$(version)/" -e "s/@architecture@/$(dpkg --print-architecture)/" \
		-e "s/@size@/$(du -sk --exclude=DEBIAN $stage | cut -f 1)/" -e "s/@depends@/$depends/" \
		deploy/debian/control.in >$stage/DEBIAN/control
	echo /etc/ublkd/ublkd.yaml >$stage/DEBIAN/conffiles
	install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm -t $stage/DEBIAN
	(cd $stage && find usr -type f -print0 | sort -z | xargs -0 md5sum) >$stage/DEBIAN/md5sums
}

umask 022
build
install_files
control
package=$out/ublkd_$(version)_$(dpkg --print-architecture).deb
rm -f $out/ublkd_*.deb
dpkg-deb --root-owner-group --build $stage "$package" >/dev/null
echo "$package"
