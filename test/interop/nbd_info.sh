#!/bin/bash
# `ublkctl nbd-info` against the servers that people have: what it says is what they were told to
# offer. Prints TAP; no root, no ublk. Usage: nbd_info.sh [BIN_FOLDER]; the checks of a server that
# is not installed are skipped.
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
bin=$(readlink -f "${1:-$top/build/release/bin}")
cd "$top" || exit 1
tmp=$(mktemp -d /tmp/ublkd-nbd-info.XXXXXX)
servers=()
trap '[ ${#servers[@]} = 0 ] || kill "${servers[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT
export PATH=$bin:$PATH
. "$top/test/tap.sh"

# --- servers ------------------------------------------------------------------------------------

# A TCP port that nobody has at the moment.
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

listens() {
	if [[ $1 == /* ]]; then [ -S "$1" ]; else (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; fi
}

# serve SOCKET_OR_PORT COMMAND...: until it listens, or a minute.
serve() {
	local where=$1 i
	shift
	"$@" >>"$tmp/server.log" 2>&1 </dev/null &
	servers+=($!)
	for ((i = 0; i < 1200; i++)); do
		if listens "$where"; then return; fi
		sleep .05
	done
	echo "does not listen at $where: $*"
	cat "$tmp/server.log"
	return 1
}

# --- questions ----------------------------------------------------------------------------------

# info CODE ARGS...: the exit code must be CODE; $tmp/out has the JSON.
info() {
	local want=$1 code=0
	shift
	timeout 300 ublkctl --json nbd-info "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" = "$want" ] || {
		echo "exit code $code, not $want: $*"
		cat "$tmp/out" "$tmp/err"
		return 1
	}
}

# is FILTER [jq's options]: the filter is true of the answer.
is() {
	local filter=$1
	shift
	jq -e "$@" "$filter" "$tmp/out" >/dev/null || { echo "not so: $filter"; cat "$tmp/out"; return 1; }
}

said() { grep -qF -- "$1" "$tmp/err" || { echo "not said: $1"; cat "$tmp/err"; return 1; }; }

# --- nbdkit -------------------------------------------------------------------------------------

memory() {
	serve "$tmp/memory" nbdkit -f -U "$tmp/memory" memory 1G && info 0 "nbd+unix:///?socket=$tmp/memory" &&
		is '.tls == false and (.exports | length) == 1' &&
		is '.exports[0] | .size_bytes == 1073741824 and .read_only == false and .name == ""' &&
		is '.exports[0] | .flush and .fua and .trim and .write_zeroes and .fast_zero and .multi_conn' &&
		is '.exports[0] | .block_status == ["base:allocation"] and .replies == "structured"' &&
		is '.exports[0] | (.block_sizes_said | not) and .min_block_bytes == 512' &&
		is '.exports[0].device == "a device of 1GiB, blocks of 512B or more, several connections possible"'
}

for_people() {
	ublkctl nbd-info "nbd+unix:///?socket=$tmp/memory" >"$tmp/text" &&
		cat >"$tmp/want" <<-END &&
			server unix:$tmp/memory

			export ""
			  size           1073741824 bytes (1GiB)
			  access         read and write
			  can            flush fua trim write_zeroes fast_zero multi_conn cache dont_fragment
			  block status   base:allocation
			  blocks         from 512B, best 4KiB, requests up to 32MiB (the protocol's default: the server does not report any)
			  replies        structured
			  device         a device of 1GiB, blocks of 512B or more, several connections possible
		END
		diff "$tmp/want" "$tmp/text"
}

# Of three exports each has something of its own.
several_exports() {
	nbdkit_several && info 0 "nbd+unix:///?socket=$tmp/several" &&
		is '[.exports[].name] == ["small", "fixed", "coarse"]' &&
		is '[.exports[].size_bytes] == [1048577, 2097152, 4194304]' &&
		is '[.exports[].read_only] == [false, true, false]' &&
		is '[.exports[].description] == ["the small one", "for reading", ""]' &&
		is '.exports[0].device | endswith(", without its last 1 bytes")' &&
		is '.exports[1].device | startswith("a read-only device of 2MiB, ")' &&
		is '.exports[2] | .block_sizes_said and .min_block_bytes == 8192' &&
		is '.exports[2] | .preferred_block_bytes == 65536 and .max_payload_bytes == 1048576' &&
		is '.exports[2].device | startswith("none: its block size of 8KiB is larger")'
}

nbdkit_several() {
	# shellcheck disable=SC2016
	serve "$tmp/several" nbdkit -f -U "$tmp/several" eval \
		list_exports='echo INTERLEAVED; printf "%s\n" small "the small one" fixed "for reading" coarse ""' \
		open='case $3 in small|fixed|coarse) echo "$3" ;; *) echo "ENOENT ask Paul" >&2; exit 1 ;; esac' \
		get_size='case $2 in small) echo 1048577 ;; fixed) echo 2M ;; *) echo 4M ;; esac' \
		block_size='case $2 in coarse) echo 8192 65536 1M ;; *) echo 1 4096 33554432 ;; esac' \
		can_write='[ "$2" != fixed ] || exit 3' pwrite='cat >/dev/null' pread='head -c "$3" /dev/zero'
}

named_export() {
	info 0 "nbd+unix:///fixed?socket=$tmp/several" && is '[.exports[].name] == ["fixed"]' &&
		is '.exports[0] | .size_bytes == 2097152 and .read_only' &&
		info 0 "nbd+unix:///fixed?socket=$tmp/several" --list && is '(.exports | length) == 3'
}

no_such_export() {
	info 1 "nbd+unix:///none?socket=$tmp/several" && [ ! -s "$tmp/out" ] &&
		said "unix:$tmp/several: GO \"none\": "
}

nbdkit_tcp() {
	local port
	port=$(free_port) && serve "$port" nbdkit -f -i 127.0.0.1 -p "$port" memory 3M &&
		info 0 "nbd://127.0.0.1:$port" && is '.exports[0].size_bytes == 3145728' &&
		info 0 "nbd://localhost:$port/any" && is '.exports[0].name == "any"' &&
		is '.address == $a' --arg a "localhost:$port"
}

# --- TLS ----------------------------------------------------------------------------------------

keys() {
	psktool -u alice -p "$tmp/keys.psk" >/dev/null 2>&1 && psktool -u bob -p "$tmp/keys.psk" >/dev/null 2>&1 &&
		psktool -u alice -p "$tmp/other.psk" >/dev/null 2>&1 && chmod 600 "$tmp"/*.psk
}

tls_psk() {
	keys && serve "$tmp/psk" nbdkit -f -U "$tmp/psk" --tls=require --tls-psk="$tmp/keys.psk" memory 2M &&
		info 0 "nbds+unix://alice@/?socket=$tmp/psk&tls-psk-file=$tmp/keys.psk" &&
		is '.tls and .exports[0].tls and .exports[0].size_bytes == 2097152' &&
		info 0 "nbds+unix:///?socket=$tmp/psk&tls-psk-file=$tmp/keys.psk&tls-username=bob"
}

tls_psk_errors() {
	local uri="nbds+unix:///?socket=$tmp/psk&tls-psk-file=$tmp"
	info 1 "$uri/other.psk&tls-username=alice" && said "unix:$tmp/psk: TLS: " &&
		info 1 "$uri/keys.psk&tls-username=carol" && said 'has no key of user "carol"' &&
		info 1 "$uri/keys.psk" && said 'USER@ before the host in the URI' &&
		info 1 "$uri/none.psk&tls-username=alice" && said "$tmp/none.psk: No such file" &&
		info 1 "nbds+unix:///?socket=$tmp/psk&tls-type=psk" && said 'tls-psk-file=FILE'
}

# Each side is told what the other one wants.
tls_or_not() {
	info 1 "nbd+unix:///?socket=$tmp/psk" && said 'the server wants TLS: write nbds instead of nbd' &&
		info 1 "nbds+unix://alice@/?socket=$tmp/memory&tls-psk-file=$tmp/keys.psk" && said STARTTLS
}

# certificate NAME TEMPLATE...: signed by the authority, but for the authority's own.
certificate() {
	local name=$1 how=(--generate-certificate --load-ca-certificate "$tmp/pki/ca-cert.pem"
		--load-ca-privkey "$tmp/pki/ca-key.pem")
	shift
	if [ "$name" = ca ]; then how=(--generate-self-signed); fi
	printf '%s\n' "$@" expiration_days=10 >"$tmp/pki/$name.tmpl"
	certtool --generate-privkey --key-type=ecdsa --outfile "$tmp/pki/$name-key.pem" &&
		certtool "${how[@]}" --load-privkey "$tmp/pki/$name-key.pem" --template "$tmp/pki/$name.tmpl" \
			--outfile "$tmp/pki/$name-cert.pem"
}

tls_x509() {
	local port
	mkdir "$tmp/pki" && certificate ca 'cn=authority' ca cert_signing_key &&
		certificate server 'cn=server' 'dns_name=localhost' tls_www_server signing_key &&
		certificate client 'cn=client' tls_www_client signing_key && port=$(free_port) &&
		serve "$port" nbdkit -f -i 127.0.0.1 -p "$port" --tls=require --tls-verify-peer \
			--tls-certificates="$tmp/pki" memory 5M &&
		echo "$port" >"$tmp/x509-port" &&
		info 0 "nbds://localhost:$port/?tls-certificates=$tmp/pki" &&
		is '.exports[0].tls and .exports[0].size_bytes == 5242880' &&
		info 0 "nbds://127.0.0.1:$port/?tls-certificates=$tmp/pki&tls-hostname=localhost"
}

tls_x509_errors() {
	local port
	port=$(cat "$tmp/x509-port") && mkdir "$tmp/ca-only" && cp "$tmp/pki/ca-cert.pem" "$tmp/ca-only" &&
		info 1 "nbds://127.0.0.1:$port/?tls-certificates=$tmp/pki" && said 'TLS: ' &&
		info 1 "nbds://localhost:$port/?tls-certificates=$tmp/pki&tls-hostname=elsewhere" &&
		said 'elsewhere' &&
		info 1 "nbds://localhost:$port/?tls-certificates=$tmp/ca-only" && said 'TLS: ' &&
		info 1 "nbds+unix:///?socket=$tmp/psk&tls-certificates=$tmp/pki" && said 'tls-hostname=NAME'
}

# --- qemu-nbd -----------------------------------------------------------------------------------

qemu() {
	truncate -s 7M "$tmp/qemu.raw" &&
		serve "$tmp/qemu" qemu-nbd -t -e 4 -f raw -k "$tmp/qemu" -x disk -D 'of the test' "$tmp/qemu.raw" &&
		info 0 "nbd+unix:///?socket=$tmp/qemu" && is '[.exports[].name] == ["disk"]' &&
		is '.exports[0] | .description == "of the test" and .size_bytes == 7340032' &&
		is '.exports[0] | .flush and .fua and .trim and .write_zeroes and .block_sizes_said' &&
		is '.exports[0] | .block_status == ["base:allocation"] and .replies != "simple"' &&
		info 0 "nbd+unix:///disk?socket=$tmp/qemu" && is '.exports[0].size_bytes == 7340032' &&
		info 1 "nbd+unix:///disc?socket=$tmp/qemu" && said 'there is no such export'
}

qemu_read_only() {
	local port
	port=$(free_port) &&
		serve "$port" qemu-nbd -t -r -e 4 -f raw -b 127.0.0.1 -p "$port" -x "" "$tmp/qemu.raw" &&
		info 0 "nbd://127.0.0.1:$port" && is '.exports[0] | .read_only and .size_bytes == 7340032'
}

# --- nbd-server ---------------------------------------------------------------------------------

# nbd_server SOCKET_OR_PORT ALLOWLIST: two exports. In the foreground it ends with its first client.
nbd_server() {
	local conf=$tmp/nbd-server.conf pid=$tmp/nbd-server.pid code=0 i
	rm -f "$pid"
	truncate -s 9M "$tmp/one.raw" && truncate -s 1000000 "$tmp/two.raw" && {
		echo '[generic]'
		if [[ $1 == /* ]]; then echo "unixsock = $1"; else printf '%s\n' 'listenaddr = 127.0.0.1' "port = $1"; fi
		printf '%s\n' "allowlist = $2" \
			'[one]' "exportname = $tmp/one.raw" 'flush = true' 'fua = true' 'trim = true' \
			'[two]' "exportname = $tmp/two.raw" 'readonly = true'
	} >"$conf" || return
	# It listens, then closes all descriptors that it could have, then serves.
	serve "$1" bash -c 'ulimit -n 1024; exec nbd-server "$@"' - -C "$conf" -p "$pid" || code=$?
	unset 'servers[-1]'
	for ((i = 0; i < 1200; i++)); do
		if [ -s "$pid" ]; then servers+=("$(cat "$pid")") && return $code; fi
		sleep .05
	done
	echo 'nbd-server has not written its pid'
	return 1
}

# It answers INFO with a size of 0: this is what GO is for.
nbd_server_lists() {
	nbd_server "$tmp/open" true && info 0 "nbd+unix:///?socket=$tmp/open" &&
		is '[.exports | sort_by(.name)[] | .name, .size_bytes, .read_only] ==
			["one", 9437184, false, "two", 1000000, true]' &&
		is '.exports | map(select(.name == "one"))[0] | .flush and .fua and .trim' &&
		is '.exports | map(select(.name == "one"))[0] | .block_status == [] and .replies == "simple"'
}

nbd_server_keeps_its_list() {
	nbd_server "$tmp/closed" false && info 1 "nbd+unix:///?socket=$tmp/closed" && said 'LIST: ' &&
		info 0 "nbd+unix:///one?socket=$tmp/closed" && is '.exports[0].size_bytes == 9437184' &&
		info 0 "nbd+unix:///one?socket=$tmp/closed" --list && is '.list_error | contains("LIST")' &&
		is '[.exports[].name] == ["one"]'
}

nbd_server_tcp() {
	local port
	port=$(free_port) && nbd_server "$port" true && info 0 "nbd://127.0.0.1:$port/two" &&
		is '.exports[0].size_bytes == 1000000 and .exports[0].read_only'
}

# --- nobody -------------------------------------------------------------------------------------

nobody() {
	local port
	port=$(free_port) && info 1 "nbd+unix:///?socket=$tmp/nobody" &&
		said "ublkctl: no server at unix:$tmp/nobody: is it started?" &&
		info 1 "nbd://127.0.0.1:$port" && said "ublkctl: no server at 127.0.0.1:$port: is it started?" &&
		info 1 nbd://server.invalid && said '"server.invalid"'
}

wrong_uri() {
	info 2 nbd:///disk && said 'column 7: the host is missing' && info 2 && said 'a URI is missing after nbd-info' &&
		info 2 --map nbd://server && said 'nbdinfo --map URI'
}

# part SERVER_PROGRAM NAME FUNCTION NAME FUNCTION...
part() {
	local program=$1
	shift
	while [ $# -gt 0 ]; do
		if command -v "$program" >/dev/null; then ok "$1" "$2"; else skip "$1" "needs $program"; fi
		shift 2
	done
}

ok "no server, no host" nobody
ok "what is no URI" wrong_uri
part nbdkit "nbdkit: memory on a unix socket" memory "nbdkit: the same for people" for_people \
	"nbdkit: several exports" several_exports "nbdkit: the export of the URI, and --list" named_export \
	"nbdkit: no such export" no_such_export "nbdkit: TCP" nbdkit_tcp
if command -v nbdkit >/dev/null; then
	part psktool "TLS: keys" tls_psk "TLS: wrong keys" tls_psk_errors "TLS: wanted by one side alone" tls_or_not
	part certtool "TLS: certificates" tls_x509 "TLS: wrong certificates and names" tls_x509_errors
else
	skip "TLS" "needs nbdkit"
fi
part qemu-nbd "qemu-nbd: unix socket" qemu "qemu-nbd: TCP, read-only" qemu_read_only
part nbd-server "nbd-server: LIST and GO" nbd_server_lists "nbd-server: LIST is forbidden" nbd_server_keeps_its_list \
	"nbd-server: TCP" nbd_server_tcp

echo "1..$n"
exit $bad
