#!/bin/bash
# `ublkctl nvme-discover` against nvme_target.py: what it lists is what the target has, and the
# commands that it prints can be pasted. Prints TAP; no root, no ublk.
# Usage: nvme_discover.sh [BIN_FOLDER]
set -u

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
bin=$(readlink -f "${1:-$top/build/release/bin}")
cd "$top" || exit 1
tmp=$(mktemp -d /tmp/ublkd-nvme-discover.XXXXXX)
targets=()
trap '[ ${#targets[@]} = 0 ] || kill "${targets[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT
export PATH=$bin:$PATH
. "$top/test/tap.sh"

nqn=nqn.2024-01.org.ublkd
host_nqn=$nqn:host

# target ARGS...: until it is ready. Sets at to its first HOST:PORT, and all of them to ats.
target() {
	local word
	mkfifo "$tmp/ready" || return
	python3 -B test/interop/nvme_target.py "$@" >"$tmp/ready" 2>>"$tmp/target.log" &
	targets+=($!)
	read -r word at ats <"$tmp/ready"
	rm "$tmp/ready"
	ats="$at $ats"
	[ "$word" = ready ] || { cat "$tmp/target.log"; return 1; }
}

# --- questions ----------------------------------------------------------------------------------

# discover CODE ARGS...: the exit code must be CODE; $tmp/out and $tmp/err have what was printed.
discover() {
	local want=$1 code=0
	shift
	timeout 300 ublkctl nvme-discover "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
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
printed() { grep -qF -- "$1" "$tmp/out" || { echo "not printed: $1"; cat "$tmp/out"; return 1; }; }
printed_nothing() { [ ! -s "$tmp/out" ] || { cat "$tmp/out"; return 1; }; }

# --- what is listed -----------------------------------------------------------------------------

one() {
	target --subsystem "$nqn:disk" && discover 0 "$at" --json &&
		is '.address == $at and (.records | length) == 1' --arg at "$at" &&
		is '.records[0] | .trtype == "tcp" and .adrfam == "ipv4" and .subtype == "nvme subsystem"' &&
		is '.records[0] | .portid == 1 and .traddr == "127.0.0.1" and .tls == false' &&
		is '.records[0] | .trsvcid == $port and .subnqn == $nqn' --arg port "${at##*:}" --arg nqn "$nqn:disk" &&
		is '.records[0].uri == "nvme+tcp://\($at)/\($nqn)"' --arg at "$at" --arg nqn "$nqn:disk" &&
		cp "$tmp/out" "$tmp/one" && discover 0 "nvme+tcp://$at/" --json && diff "$tmp/one" "$tmp/out" &&
		discover 0 "nvme+tcp://$at" --json && diff "$tmp/one" "$tmp/out"
}

for_people() {
	target --subsystem "$nqn:disk" --set listed_trsvcid=4420 && discover 0 "$at" &&
		cat >"$tmp/want" <<-END &&
			discovery controller $at

			TRANSPORT  FAMILY  SUBTYPE         PORT ID  ADDRESS    PORT  TLS  SUBSYSTEM
			tcp        ipv4    nvme subsystem        1  127.0.0.1  4420  -    $nqn:disk

			ublkctl attach nvme+tcp://127.0.0.1/$nqn:disk
		END
		diff "$tmp/want" "$tmp/out"
}

# More than the reader takes at a time; IPv6 and IPv4.
many() {
	local i subsystems=()
	for ((i = 0; i < 20; i++)); do subsystems+=(--subsystem "$nqn:$i"); done
	target --listen 127.0.0.1:0 --listen '[::1]:0' "${subsystems[@]}" && discover 0 "$at" --json &&
		is '(.records | length) == 40 and ([.records[].subnqn] | unique | length) == 20' &&
		is '[.records[] | select(.adrfam == "ipv6" and .portid == 2 and .traddr == "::1")] | length == 20' &&
		is '[.records[] | select(.uri == "nvme+tcp://\($at)/\(.subnqn)")] | length == 20' --arg at "${ats##* }" &&
		discover 0 "${ats##* }" && printed "ublkctl attach 'nvme+tcp://${ats##* }/$nqn:7'" &&
		[ "$(grep -c '^ublkctl attach ' "$tmp/out")" = 40 ]
}

# The command goes through a shell that would do harm, and names the same subsystem.
pasted() {
	local evil="$nqn:a/b?\$(touch\${IFS}$tmp/harm);#'\"" line args
	target --subsystem "$evil" && discover 0 "$at" && printed "$evil" &&
		line=$(grep '^ublkctl attach ' "$tmp/out") && args=$(sh -c "${line/ublkctl attach/printf %s}") &&
		[ ! -e "$tmp/harm" ] && discover 0 "$at" --json && is '.records[0].uri == $uri' --arg uri "$args" &&
		python3 -c 'import sys, urllib.parse as u; sys.exit(u.unquote(u.urlsplit(sys.argv[1]).path) != "/" + sys.argv[2])' \
			"$args" "$evil"
}

# What is no address or no port makes no command.
no_uri() {
	discover 0 "$at" --json && is '.records[0].uri == null' && discover 0 "$at" && ! grep '^ublkctl' "$tmp/out"
}
not_for_us() {
	target --set listed_traddr='1.2.3.4/$(x)' && no_uri && target --set listed_traddr='::1]x' && no_uri &&
		target --set listed_trsvcid=70000 && no_uri && target --set listed_trsvcid='1 -x' && no_uri &&
		target --set listed_trtype=1 && no_uri && printed 'rdma  ' && target --set listed_subtype=3 && no_uri &&
		printed 'current discovery subsystem' &&
		target --subsystem "$nqn:x..." && no_uri
}

tls() {
	target --set listed_treq=1 --subsystem "$nqn:disk" && discover 0 "$at" && ! grep '^ublkctl' "$tmp/out" &&
		printed "nvme+tcp://$at/$nqn:disk requires TLS: write a file for ublkctl add" &&
		discover 0 "$at" --json && is '.records[0].tls and (.records[0].uri | endswith("disk"))' &&
		target --set listed_treq=1 --set listed_subtype=1 && discover 0 "$at" && ! grep '^ublkctl' "$tmp/out" &&
		printed "nvme+tcp://$at/ requires TLS: nvme-discover cannot ask it"
}

referral() {
	target --set listed_subtype=1 --set listed_traddr=192.0.2.7 --set listed_trsvcid=8009 && discover 0 "$at" &&
		printed 'ublkctl nvme-discover nvme+tcp://192.0.2.7/' && ! grep '^ublkctl attach' "$tmp/out"
}

# The list changes while it is read: what is printed is the last one, even if that is empty.
changes() {
	target --subsystem "$nqn:a" --subsystem "$nqn:b" --subsystem "$nqn:c" --set listed_changes=1 &&
		discover 0 "$at" --json && is '[.records[].subnqn] == ["\($nqn):b", "\($nqn):c"]' --arg nqn "$nqn" &&
		target --set listed_changes=1 && discover 0 "$at" --host-nqn "$host_nqn" &&
		printed "it lists no subsystems to this host: does the target allow $host_nqn?" &&
		target --set listed_changes=1 && discover 0 "$at" --json && is '.records == []'
}

# --- who asks -----------------------------------------------------------------------------------

host_names() {
	target --set allow_host="$host_nqn" && discover 0 "$at" --host-nqn "$host_nqn" --json &&
		is '.hostnqn == $host and (.records[0].uri | endswith("?hostnqn=\($host)"))' --arg host "$host_nqn" &&
		discover 0 "nvme+tcp://$at/?hostnqn=$host_nqn" && printed "?hostnqn=$host_nqn'" &&
		discover 1 "$at" --host-nqn "$nqn:other" && printed_nothing &&
		said "does not allow the host $nqn:other: add this NQN to its allowed hosts at the target" &&
		discover 2 "nvme+tcp://$at/?hostnqn=$host_nqn" --host-nqn "$host_nqn" && said 'the URI has it too' &&
		discover 1 "$at" --host-nqn nobody && said 'the name of this host, nobody, has not the form of an NQN' &&
		said 'does not allow the host nobody' && discover 2 "$at" --host-nqn $'no\nbody' && said 'an NQN has no control characters' &&
		target --set allow_host=nobody && discover 0 "$at" --host-nqn nobody && said 'has not the form of an NQN'
}

digests() {
	target && discover 0 "nvme+tcp://$at/?hdr_digest&data_digest" --json && is '(.records | length) == 1'
}

# --- nobody, and others -------------------------------------------------------------------------

nobody() {
	target --set icresp_silent=always && discover 1 "$at" --timeout 0.2 && said "$at: time is up (200 ms) while " &&
		target --set accept_close=always && discover 1 "$at" && said "$at: " && said 'is it an NVMe/TCP target' &&
		target --set icresp_garbage=always && discover 1 "$at" && said "$at: " && printed_nothing &&
		discover 1 server.invalid && said '"server.invalid"'
}

# The default port, and the way to Linux' target. Somebody may listen there.
default_port() {
	discover 1 127.0.0.1 && said 'no server at 127.0.0.1:8009: is it started?' &&
		said 'try ublkctl nvme-discover 127.0.0.1:4420' && discover 1 ::1 && said '[::1]:4420' &&
		discover 1 127.0.0.1:1 && said 'no server at 127.0.0.1:1' && ! said 4420 >/dev/null
}

refused() {
	target --set status=get_log_page:0:2:dnr:always && discover 1 "$at" &&
		said "$at: the target answers to Get Log Page (discovery): "
}

wrong_words() {
	discover 2 && said 'a host or a URI is missing after nvme-discover' &&
		discover 2 '' && said 'column 1: the host is missing' && discover 2 host:x && said 'column 6: port: ' &&
		discover 2 nbd://host && said 'unknown scheme' && discover 2 nvme+tcp:///x && said 'the host is missing' &&
		discover 2 "nvme+tcp://host/$nqn:disk" && said "leave $nqn:disk out" &&
		discover 2 host --timeout never && said '--timeout needs a number of seconds' &&
		discover 2 host --list && said 'an option does not apply to nvme-discover' &&
		discover 2 host more && said 'unexpected argument: more'
}

# What nvme_target.py says of a host that breaks a rule.
kept_rules() { ! grep 'the host: ' "$tmp/target.log"; }

ok "one subsystem" one
ok "the same for people" for_people
ok "many, at two addresses" many
ok "a command can be pasted, whatever the target says" pasted
ok "what ublkd cannot attach has no command" not_for_us
ok "TLS is required" tls
ok "another discovery controller" referral
ok "a list that changes" changes
ok "names of this host" host_names
ok "digests" digests
ok "no target, no answer" nobody
if (exec 3<>/dev/tcp/127.0.0.1/8009) 2>/dev/null || (exec 3<>/dev/tcp/::1/8009) 2>/dev/null; then
	skip "the default port" "port 8009 is taken"
else
	ok "the default port" default_port
fi
ok "the list is refused" refused
ok "a wrong command line" wrong_words
ok "no rule of the protocol was broken" kept_rules

echo "1..$n"
exit $bad
