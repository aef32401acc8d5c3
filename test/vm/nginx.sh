#!/bin/bash
# Puts nginx into build/vm/nginx, where guests see it: this machine's, or Debian's unpacked there, because to
# install it would start a web server on this machine.
#
#   nginx.sh          print build/vm/nginx/nginx
#
# If there is none, this is not an error: build/vm/nginx/why has the reason, for the skipped tests.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
place=$(dirname "$(dirname "$here")")/build/vm/nginx

get() {
	local stage=$place.new
	if command -v nginx >/dev/null; then
		ln -s "$(command -v nginx)" "$stage/nginx"
		return
	fi
	(cd "$stage" && apt-get -qq -oAPT::Sandbox::User=root download nginx && dpkg-deb -x nginx_*.deb tree) >&2 &&
		cp "$stage/tree/usr/sbin/nginx" "$stage/nginx" && rm -r "$stage"/tree "$stage"/nginx_*.deb
}

if [ ! -x "$place/nginx" ]; then
	rm -rf "$place" "$place.new"
	mkdir -p "$place.new"
	get || echo "nginx is not installed, and could not be loaded" >"$place.new/why"
	# its modules are packages of their own; it needs none
	if [ -e "$place.new/nginx" ] && ! "$place.new/nginx" -v 2>/dev/null; then
		echo "nginx does not run here: $("$place.new/nginx" -v 2>&1 | head -n 1)" >"$place.new/why"
	fi
	mv -T "$place.new" "$place"
fi
if [ -e "$place/why" ]; then echo "nginx.sh: $(cat "$place/why")" >&2; else printf '%s\n' "$place/nginx"; fi
