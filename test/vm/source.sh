# shellcheck shell=bash
# Debian's package of the kernel's source, 7.2, for what is built from it. Sourced after archive.sh.

source_suites="trixie-backports forky sid" # where Debian has it, the most stable place first

source_package() { apt-cache "${apt[@]}" pkgnames | grep -x linux-source-7.2; }

# Sets $source_deb. The package stays in the cache: kublk and the kernel of the quick guest come from the same one.
get_source_deb() {
	local package suite apt stage
	source_deb=$(find "$cache/source-package" -name 'linux-source-7.2_*.deb' 2>/dev/null | sort -V | tail -n 1)
	if [ -n "$source_deb" ]; then return; fi
	find_suite linux-source-7.2 "$source_suites" source_package || return 1
	stage=$(mktemp -d "$cache/.source-XXXXXX")
	if ! download "$stage" "$package"; then
		rm -rf "$stage"
		return 1
	fi
	rm -rf "$cache/source-package"
	mv -T "$stage" "$cache/source-package"
	source_deb=$(ls "$cache"/source-package/*.deb)
}

# unpack_source DIR [TAR OPTION...]: of the package $source_deb, what the options select.
unpack_source() {
	local dir=$1
	shift
	mkdir -p "$dir"
	say "unpacking ${source_deb##*/} (this takes a minute)"
	dpkg-deb --fsys-tarfile "$source_deb" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
		xz -dc | tar -x -C "$dir" --strip-components=1 --wildcards "$@"
}
