#!/bin/bash
# The Debian package: builds it, installs it into a copy of this system (an overlay over /, in a
# mount namespace of its own), looks at what is there, removes it, purges it. Prints TAP. Wants root.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
cd "$top" || exit 1
. "$top/test/tap.sh"

skip_all() {
	echo "1..1"
	echo "ok 1 - the package # SKIP $1"
	exit 0
}
[ "$(id -u)" = 0 ] || skip_all "needs root"
command -v dpkg-shlibdeps >/dev/null || skip_all "no dpkg-shlibdeps: apt-get install dpkg-dev"

# --- the copy of the system -----------------------------------------------------------------------

if [ "${1:-}" != inside ]; then
	tmp=$(mktemp -d /tmp/ublkd-package.XXXXXX)
	trap 'rm -rf "$tmp"' EXIT
	unshare --mount --propagation private true 2>/dev/null || skip_all "no mount namespaces here"
	unshare --mount --propagation private -- "$0" inside "$tmp"
	exit
fi

tmp=$2 root=$2/root
mkdir "$root"
mount -t tmpfs -o mode=755 package "$tmp" || skip_all "no tmpfs here"
mkdir "$tmp/upper" "$tmp/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$tmp/upper,workdir=$tmp/work" package "$root" 2>/dev/null ||
	skip_all "no overlay over / here"
for dir in proc sys dev; do mount --rbind /$dir "$root/$dir"; done
mount -t tmpfs -o mode=1777 tmp "$root/tmp"

# Where nothing starts services, and documentation is not left out.
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
run_dpkg() { inside dpkg --path-include='/usr/share/*' "$@"; }

# What is in the copy and not in the system, and what is gone from it (whiteouts), but for what dpkg,
# its triggers and logs write about every package, and the mark that systemd-analyze leaves.
files() {
	local file
	(cd "$tmp/upper" && find . ! -path './var/lib/dpkg/*' ! -path './var/log/*' ! -path './var/cache/*' \
		! -path './tmp/*' ! -path ./run/systemd/systemd-units-load | sort) | while read -r file; do
		if [ -c "$tmp/upper/$file" ] || [ ! -e "/$file" ] && [ ! -L "/$file" ]; then echo "$file"; fi
	done
}

# --- the checks -----------------------------------------------------------------------------------

has() {
	local file
	for file in "$@"; do
		[ -e "$root$file" ] || { echo "$file is missing"; return 1; }
	done
}
says() {
	local words=$1
	shift
	"$@" >"$tmp/said" 2>&1 || { cat "$tmp/said"; return 1; }
	head -n 20 "$tmp/said"
	grep -q -- "$words" "$tmp/said"
}
verify_unit() {
	inside systemd-analyze verify --man=no /usr/lib/systemd/system/ublkd.service >"$tmp/said" 2>&1 &&
		! grep ublkd "$tmp/said"
}
verify_user_unit() {
	inside systemd-analyze --user verify --man=no /usr/lib/systemd/user/ublkd.service >"$tmp/said" 2>&1
	! grep ublkd "$tmp/said"
}
# Exposure is in tenths here: 43 is 4.3.
hardened() { inside systemd-analyze security --offline=yes --threshold=50 ublkd.service; }
type_fits() {
	local version
	version=$(inside systemctl --version | sed -nE '1s/^systemd ([0-9]+).*/\1/p')
	if [ "$version" -ge 253 ]; then
		grep -q '^Type=notify-reload$' "$root/usr/lib/systemd/system/ublkd.service"
	else
		grep -q '^Type=notify$' "$root/usr/lib/systemd/system/ublkd.service" &&
			grep -q '^ExecReload=/bin/kill -HUP' "$root/usr/lib/systemd/system/ublkd.service"
	fi
}
# Those that the sources name: what is not allowed fails with EAFNOSUPPORT, as if the kernel had no such thing.
families_allowed() {
	local family allowed
	allowed=$(sed -n 's/^RestrictAddressFamilies=//p' "$root/usr/lib/systemd/system/ublkd.service")
	echo "allowed: $allowed"
	for family in $(grep -rhoE '\bAF_[A-Z0-9]+' --include='*.[ch]' backends net filters storage daemon ublk reactor | grep -v AF_UNSPEC | sort -u); do
		[[ " $allowed " = *" $family "* ]] || { echo "$family is not"; return 1; }
	done
}
shows_manual() { says "$2" inside env MANPAGER=cat MANWIDTH=80 man "$1"; }
# The libraries of Ceph are loaded when a device wants them.
field() { inside dpkg-query -W -f "\${$1}\n" ublkd; }
recommends_ceph() {
	says 'librbd1' field Recommends && says 'librados2' field Recommends && says libc6 field Depends &&
		! grep -E 'librbd|librados' "$tmp/said"
}
runs_without_ceph() {
	local library code=0
	library=$(find "$root/usr/lib" -name librbd.so.1)
	[ -z "$library" ] || mv "$library" "$tmp/librbd"
	echo 'devices: [{name: a, backend: {type: rbd, uri: "rbd:rbd/a"}}]' >"$root/tmp/rbd.yaml"
	inside ublkd --config /tmp/rbd.yaml --check-config >"$tmp/said" 2>&1 || code=$?
	[ -z "$library" ] || mv "$tmp/librbd" "$library"
	cat "$tmp/said"
	[ "$code" = 1 ] && grep -q 'install librbd1' "$tmp/said"
}
conffile_kept() {
	echo '# mine' >>"$root/etc/ublkd/ublkd.yaml"
	run_dpkg -i /tmp/package.deb && grep '# mine' "$root/etc/ublkd/ublkd.yaml"
}
devices_folder() { says '^root:root 755$' stat -c '%U:%G %a' "$root/etc/ublkd/devices.d"; }
# As ublkctl attach --persist does.
device_kept() {
	printf 'name: kept\nbackend: {type: null}\n' >"$root/etc/ublkd/devices.d/kept.yaml"
	says '1 device, no errors' inside ublkd --config /etc/ublkd/ublkd.yaml --check-config &&
		run_dpkg -i /tmp/package.deb && [ -e "$root/etc/ublkd/devices.d/kept.yaml" ]
}
enabled() { [ -L "$root/etc/systemd/system/multi-user.target.wants/ublkd.service" ]; }
nothing_left() { files | diff "$tmp/before" -; }
# And whether the administrator had enabled it: that is kept until the purge, as dh does.
only_config_left() {
	files | diff "$tmp/before" - | grep '^>' | tee "$tmp/said"
	grep -qx '> ./etc/ublkd/ublkd.yaml' "$tmp/said" && grep -qx '> ./etc/ublkd/devices.d/kept.yaml' "$tmp/said" &&
		! grep -vE '^> \./(etc|run|var/lib)/(ublkd|systemd)(/|$)' "$tmp/said" && ! grep usr "$tmp/said"
}

ok "it is built" deploy/package.sh
cp build/package/ublkd_*.deb "$root/tmp/package.deb" || { echo "1..$n"; exit 1; }
run_dpkg --purge ublkd >/dev/null 2>&1 # one that this system has
rm -rf "$root/run/ublkd"
files >"$tmp/before"

ok "it installs" run_dpkg -i /tmp/package.deb
ok "all parts are there" has /usr/sbin/ublkd /usr/sbin/ublktrace /usr/bin/ublkctl /usr/libexec/ublkd/ublkd-keeper /etc/ublkd/ublkd.yaml \
	/usr/lib/systemd/system/ublkd.service /usr/lib/udev/rules.d/60-ublkd.rules \
	/usr/lib/systemd/user/ublkd.service /usr/lib/udev/rules.d/59-ublkd-owner.rules /usr/share/ublkd/ublk-control-for-users.rules \
	/usr/lib/tmpfiles.d/ublkd.conf /usr/lib/modules-load.d/ublkd.conf \
	/usr/share/bash-completion/completions/ublkctl /usr/share/ublkd/grafana-dashboard.json \
	/usr/share/doc/ublkd/copyright /usr/share/doc/ublkd/deployment.md
control_stays_roots() { ! grep -rl ublk-control "$root/usr/lib/udev/rules.d" "$root/etc/udev" 2>/dev/null; }
ok "no active rule gives /dev/ublk-control to users" control_stays_roots
ok "dpkg finds nothing changed" run_dpkg --verify ublkd
ok "ublkd runs" says "^ublkd $(sed -nE 's/^project\(ublkd VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)$" inside ublkd --version
ok "Ceph's libraries are recommended, not required" recommends_ceph
ok "... and without them it says what to install" runs_without_ceph
ok "ublkctl runs" says '^ublkctl [0-9]' inside ublkctl --version
ok "ublktrace runs" says '^ublktrace [0-9]' inside ublktrace --version
ok "the installed configuration is well" says '0 devices, no errors' \
	inside ublkd --config /etc/ublkd/ublkd.yaml --check-config
# Not by grep -v: the comment of the example's first device is its own line.
sed -e 's/^devices: \[\]$//' -e 's/^# \(devices:\)/\1/' -e 's/^#  \( *- name\)/ \1/' \
	-e 's/^#   \(  *[a-z]*:\)/  \1/' "$root/etc/ublkd/ublkd.yaml" >"$root/tmp/examples.yaml"
mkdir -p "$root/var/lib/ublkd"
ok "... and its examples are, when used" says '2 devices, no errors' \
	inside ublkd --config /tmp/examples.yaml --check-config
rmdir "$root/var/lib/ublkd"
for page in 'ublkd.8 PRIVILEGES' 'ublkctl.1 udev-name' 'ublktrace.8 recursion' 'ublkd.yaml.5 watchdog'; do
	# shellcheck disable=SC2086
	ok "man ${page% *}" shows_manual $page
done
if command -v systemd-analyze >/dev/null; then
	ok "the unit is well" verify_unit
	ok "... and that of users" verify_user_unit
	ok "... and has the type that this systemd knows" type_fits
	ok "... and is hardened" hardened
	ok "... and lets the daemon have each kind of socket that it makes" families_allowed
	ok "... and enabled" enabled
else
	skip "the unit is well" "no systemd-analyze"
fi
if udevadm verify --help >/dev/null 2>&1; then
	ok "the udev rules are well" inside udevadm verify --no-style /usr/lib/udev/rules.d/59-ublkd-owner.rules /usr/lib/udev/rules.d/60-ublkd.rules
else
	skip "the udev rules are well" "udevadm verify came with systemd 254"
fi
ok "a second install keeps a changed configuration" conffile_kept
ok "the folder of attached devices is root's" devices_folder
ok "... and read, and kept by a second install" device_kept
ok "it is removed" run_dpkg -r ublkd
ok "... but for the configuration" only_config_left
ok "it is purged" run_dpkg -P ublkd
ok "... and nothing of it is left" nothing_left
echo "1..$n"
exit $bad
