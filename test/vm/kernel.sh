#!/bin/bash
# Downloads the stock Debian kernels that the test guest boots, and caches them.
#
#   kernel.sh get 7.2       print the folder of that kernel, and download it only if it is not cached
#   kernel.sh update 7.2    check the archive for a newer one first
#   kernel.sh source DIR    put the ublk parts of the kernel's source into DIR
#   kernel.sh liburing DIR  put a recent liburing (headers, static library) into DIR
#
# A kernel's folder holds vmlinux (uncompressed: the guest would spend seconds on it), release and
# modules/.
set -euo pipefail

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/archive.sh"
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/source.sh"

suites_of() { # SERIES: where Debian has it, the most stable place first
	case $1 in
	6.12) echo "trixie-security trixie-updates trixie" ;;
	7.2) echo "$source_suites" ;;
	liburing) echo "forky sid" ;;
	*) die "unknown kernel series '$1': 7.2 and 6.12 are supported (add its suites to suites_of)" ;;
	esac
}

# Since 7.x an image is a pair of packages, linux-binary and linux-modules, and linux-image depends on
# them; before, linux-image has all files.
image_package() { # SERIES: newest in the lists that $apt names, or nothing
	local kind name
	for kind in binary image; do
		name=$(apt-cache "${apt[@]}" pkgnames "linux-$kind-$1" |
			grep -E "^linux-$kind-${1//./\\.}[.+~].*-cloud-amd64\$" | sort -V | tail -n 1)
		if [ -n "$name" ]; then echo "$name" && return; fi
	done
}

# --- from packages to a bootable folder ---------------------------------------------------------

number_at() { # FILE OFFSET BYTES
	od -An -v -tu"$3" -j "$2" -N "$3" "$1" | tr -d ' '
}

unpack_command() { # MAGIC (8 hex digits)
	case $1 in
	28b52ffd) echo zstd ;;
	fd377a58) echo xz ;;
	1f8b*) echo gzip ;;
	02214c18) echo lz4 ;;
	*) die "vmlinuz has an unknown compression (magic $1): extend unpack_command" ;;
	esac
}

# The boot header has the offset of the payload (Documentation/arch/x86/boot.rst). All formats but
# gzip have the unpacked size, 4 bytes, appended, which their tools report as garbage.
extract_vmlinux() { # VMLINUZ VMLINUX
	local start length tool magic
	start=$((($(number_at "$1" $((0x1f1)) 1) + 1) * 512 + $(number_at "$1" $((0x248)) 4)))
	length=$(number_at "$1" $((0x24c)) 4)
	magic=$(od -An -tx1 -j "$start" -N 4 "$1" | tr -d ' ')
	tool=$(unpack_command "$magic")
	command -v "$tool" >/dev/null || die "$tool is missing: run ./dev vm --install"
	[ "$tool" = gzip ] || length=$((length - 4))
	head -c $((start + length)) "$1" | tail -c "$length" | "$tool" -dc >"$2"
	[ "$(od -An -c -j 1 -N 3 "$2" | tr -d ' ')" = ELF ] || die "$1 did not unpack to an ELF file"
}

# Runs as a process of its own with errexit, so that it ends at the first failed step.
install_kernel() { # STAGE: a folder with the packages -> vmlinux, modules/, release
	local stage=$1 deb vmlinuz modules
	for deb in "$stage"/*.deb; do dpkg-deb -x "$deb" "$stage/tree"; done
	vmlinuz=$(find "$stage/tree" -type f -name 'vmlinuz*') # in /boot or beside the modules
	modules=$(find "$stage/tree" -type d -path '*/lib/modules/*' -prune)
	if [ -z "$vmlinuz" ] || [ -z "$modules" ]; then die "the packages contain no kernel with modules"; fi
	extract_vmlinux "$vmlinuz" "$stage/vmlinux"
	mkdir "$stage/modules"
	mv "$modules" "$stage/modules/"
	rebuild_module_index "$stage" "${modules##*/}"
	rm -rf "$stage/tree" "$stage"/*.deb
	printf '%s\n' "${modules##*/}" >"$stage/release"
}

# depmod needs ROOT/lib/modules/RELEASE.
rebuild_module_index() { # STAGE RELEASE
	mkdir -p "$1/root/lib"
	ln -s "$1/modules" "$1/root/lib/modules"
	PATH=$PATH:/usr/sbin:/sbin depmod -b "$1/root" "$2"
	rm -r "$1/root"
}

fetch_kernel() { # SERIES: the newest one becomes $cache/SERIES
	local series=$1 stage package suite apt name packages
	find_suite "$series" "$(suites_of "$series")" image_package "$series" || return 1
	name=${package#linux-*-}
	if [ ! -e "$cache/kernels/$name/release" ]; then
		mkdir -p "$cache/kernels"
		stage=$(mktemp -d "$cache/kernels/.part-XXXXXX")
		packages=("$package")
		[[ $package == linux-binary-* ]] && packages+=("linux-modules-$name" "linux-base-$name")
		if ! download "$stage" "${packages[@]}" || ! "$0" _install "$stage"; then
			rm -rf "$stage"
			return 1
		fi
		chmod 755 "$stage"
		mv -T "$stage" "$cache/kernels/$name"
	fi
	ln -sfn "kernels/$name" "$cache/.$series.new" && mv -T "$cache/.$series.new" "$cache/$series"
}

cached() { [ -s "$cache/$1/release" ] && [ -s "$cache/$1/vmlinux" ]; }

get_kernel() { # SERIES
	if ! cached "$1"; then
		lock
		rm -rf "$cache"/kernels/.part-*
		cached "$1" || fetch_kernel "$1" ||
			die "no kernel $1 in $cache, and none could be downloaded from Debian's archive: is the network up?"
	fi
	readlink -f "$cache/$1"
}

update_kernel() { # SERIES
	lock
	rm -rf "$cache"/kernels/.part-*
	fetch_kernel "$1" || { cached "$1" && say "no network: keeping the cached kernel $1"; } ||
		die "cannot download a kernel $1 from Debian's archive: is the network up?"
	readlink -f "$cache/$1"
}

# --- source -------------------------------------------------------------------------------------

fetch_source() { # DIR
	local dir=$1 stage source_deb
	get_source_deb || return 1
	stage=$(mktemp -d "$cache/.source-XXXXXX")
	unpack_source "$stage" '*/tools/testing/selftests/ublk' '*/tools/testing/selftests/kselftest*' \
		'*/tools/testing/selftests/lib.mk' '*/tools/include' '*/tools/scripts' \
		'*/scripts/subarch.include' '*/include/uapi/linux/ublk_cmd.h' \
		'*/include/uapi/linux/io_uring*' '*/include/uapi/linux/'{fs,blkdev}.h \
		'*/drivers/block/ublk_drv.c' '*/Documentation/block/ublk.rst' || return 1
	basename "$source_deb" >"$stage/package"
	mkdir -p "$(dirname "$dir")" && mv -T "$stage" "$dir" || return 1
}

get_source() { # DIR
	[ -n "${1:-}" ] || die "usage: kernel.sh source DIR"
	if [ ! -e "$1/package" ]; then
		lock
		rm -rf "$cache"/.source-*
		fetch_source "$1" || die "cannot fetch linux-source-7.2: is the network up?"
	fi
	readlink -f "$1"
}

# --- liburing, for programs that are newer than the machine's ------------------------------------

fetch_liburing() { # DIR
	local dir=$1 stage package suite apt deb
	find_suite liburing "$(suites_of liburing)" liburing_package || return 1
	stage=$(mktemp -d "$cache/.liburing-XXXXXX")
	if ! download "$stage" "$package" || ! deb=$(ls "$stage"/*.deb) ||
		! dpkg-deb -x "$deb" "$stage/tree"; then
		rm -rf "$stage"
		return 1
	fi
	basename "$deb" >"$stage/tree/package"
	mkdir -p "$(dirname "$dir")" && mv -T "$stage/tree" "$dir" || return 1
	rm -rf "$stage"
}

liburing_package() { apt-cache "${apt[@]}" pkgnames liburing-dev | grep -x liburing-dev; }

get_liburing() { # DIR
	[ -n "${1:-}" ] || die "usage: kernel.sh liburing DIR"
	if [ ! -e "$1/package" ]; then
		lock
		rm -rf "$cache"/.liburing-*
		fetch_liburing "$1" || die "cannot fetch liburing-dev: is the network up?"
	fi
	readlink -f "$1"
}

case ${1:-} in
get) get_kernel "${2:?series}" ;;
update) update_kernel "${2:?series}" ;;
_install) install_kernel "$2" ;;
source) get_source "${2:-}" ;;
liburing) get_liburing "${2:-}" ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
