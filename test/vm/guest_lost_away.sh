#!/bin/bash
# In the guest: a server loses acknowledged writes while no daemon is there (kill -9), or does not. The next daemon fails the
# user's next FLUSH, or none: a connection that outlived the daemon tells. The server is forgetful_server.py; one that takes
# one connection alone (qemu-nbd); one over TCP; the kernel's NVMe/TCP target.
# Runs on: uml
# By turns: 7.2
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_nvme_lib.sh"
. "$here/guest_devices.sh"

ram_disk 500 || exit 1
server_pid=
command_of=() # of the server that runs
again() { # it is started again over the same file
	"${command_of[@]}" &
	server_pid=$!
	wait_for 10 answers
}
answers() { ublkctl nbd-info "$uri"; } >/dev/null 2>&1
dies() { # the server, with what it has not flushed
	kill -KILL $server_pid
	wait $server_pid 2>/dev/null
	rm -f "$dir/socket"
}
serve() { # SIZE: forgetful_server.py
	dir=$(mktemp -d /mnt/ram/serverXXXX)
	truncate -s "$1" "$dir/disk"
	mkdir "$dir/ctl"
	uri="nbd+unix:///?socket=$dir/socket"
	command_of=(python3 "$here/forgetful_server.py" "$dir/socket" "$dir/disk" "$dir/ctl")
	again
}
nbd() { echo "{type: nbd, uri: \"$uri\", on_disconnect: {queue: 60s}}"; }
device() { # BACKEND: a daemon with it, as vm
	printf 'daemon: {reactors: %s}\ndevices:\n  - {name: vm, backend: %s}\n' "$reactors" "$1" >"$work/vm.yaml"
	start_daemon "$work/vm.yaml" && wait_for 30 are_live vm
}
fill() { # LETTER AT MIB [FLAG], of MiB
	head -c $(($3 << 20)) < <(yes "$1" | tr -d '\n') | dd of="$(blk vm)" bs=1M seek="$2" iflag=fullblock oflag=direct "${@:4}" conv=notrunc status=none
}
has() { head -c $(($3 << 20)) < <(yes "$1" | tr -d '\n') | cmp - <(dd if="$(blk vm)" bs=1M skip="$2" count="$3" iflag=direct status=none); }
flush() { python3 -c "import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))" "$(blk vm)" 2>&1; }
fails() { ! "$@"; }
next() { start_again "$work/vm.yaml" vm; }
ends_well() { end_server && dies; }

# ---- the server goes on ----

serve 64M
ok "goes on: it starts" device "$(nbd)"
ok "goes on: A, flushed" fill A 0 4 conv=fsync
ok "goes on: B, acknowledged" fill B 4 4
ok "goes on: the daemon is killed" kill_daemon
ok "goes on: the next one" next
ok "goes on: a FLUSH" flush
ok "goes on: C, acknowledged" fill C 8 4
if driver_has QUIESCE; then
	ok "goes on: an upgrade" ublkctl upgrade
	ok "goes on: ... is over" wait_for 60 settled
	ok "goes on: a FLUSH after it" flush
fi
ok "goes on: D, acknowledged" fill D 12 4
ok "goes on: an orderly end" end_server
ok "goes on: started again" next
ok "goes on: a FLUSH after that" flush
all_there() { has A 0 4 && has B 4 4 && has C 8 4 && has D 12 4; }
ok "goes on: all is there" all_there

# ---- it is lost, while a killed daemon is away; and nothing was left to lose ----

ok "lost: B, acknowledged" fill B 0 4
ok "lost: the daemon is killed" kill_daemon
dies
again
ok "lost: the next one" next
ok "lost: ... fails the FLUSH" fails flush
ok "lost: ... and said so" grep -q 'writes that the server acknowledged may be lost' "$work/ublkd.log"
ok "lost: A is there, as it was flushed" has A 0 4
ok "lost: B again, flushed" fill B 0 4 conv=fsync
ok "lost: the daemon is killed again" kill_daemon
dies
again
ok "lost: the next one" next
ok "lost: a FLUSH, as all had been flushed" flush
ok "lost: B is there" has B 0 4
ok "lost: an end" ends_well

# ---- below an image ----

serve 128M
ok "image: it starts" device "{type: qcow2, create: true, size: 64MiB, data: $(nbd)}"
ok "image: A, flushed" fill A 0 4 conv=fsync
ok "image: B in place, acknowledged" fill B 0 4
ok "image: C in new clusters, acknowledged" fill C 20 4
ok "image: the daemon is killed" kill_daemon
dies
again
ok "image: the next one" next
ok "image: ... fails the FLUSH" fails flush
both_again() { fill B 0 4 && fill C 20 4 conv=fsync; }
ok "image: B and C again, flushed" both_again
ok "image: an end" end_server
dies
ok "image: it is well" qemu-img check -q -f qcow2 "$dir/disk"
again
ok "image: it starts again" next
both_there() { has B 0 4 && has C 20 4; }
ok "image: B and C are there" both_there
ok "image: an end" ends_well

# ---- a server with room for one connection: the dead daemon's must not keep the next one out ----

dir=$(mktemp -d /mnt/ram/serverXXXX)
truncate -s 32M "$dir/disk"
uri="nbd+unix:///?socket=$dir/socket"
command_of=(qemu-nbd -t -e 1 -f raw -k "$dir/socket" "$dir/disk")
answers() { [ -S "$dir/socket" ]; }
again
ok "one connection: it starts" device "$(nbd)"
ok "one connection: A, acknowledged" fill A 0 4
ok "one connection: the daemon is killed" kill_daemon
ok "one connection: the next one" next
ok "one connection: a FLUSH" flush
ok "one connection: A is there" has A 0 4
ok "one connection: an end" ends_well

# ---- an opening that is tried again, as another server is away; the server goes on meanwhile, or is lost then ----

answers() { ublkctl nbd-info "$uri"; } >/dev/null 2>&1
serve 32M
other=$work/other
other_server() {
	nbdkit --threads=1 -U "$other" -P "$other.pid" memory 32M && wait_for 10 test -s "$other.pid"
}
other_ends() { kill -KILL "$(cat "$other.pid")" && rm -f "$other.pid" "$other"; }
ok "tried again: another server" other_server
ok "tried again: it starts" device "{type: stripe, chunk: 64KiB, backends: [$(nbd), {type: nbd, uri: \"nbd+unix:///?socket=$other\", cache: kept, on_disconnect: {queue: 60s}}]}"
begin() { # the next daemon waits for the other server
	ublkd --config "$work/vm.yaml" 2>>"$work/ublkd.log" &
	daemon_pid=$!
	wait_for 20 waits
}
waits() { [ "$(grep -c 'device cannot be adopted yet' "$work/ublkd.log")" -ge "$tries" ]; }
goes_on() { other_server && wait_for 60 are_live vm; }
ok "tried again: A, acknowledged" fill A 0 4
ok "tried again: the daemon is killed" kill_daemon
ok "tried again: the other server ends" other_ends
tries=1
ok "tried again: the next daemon waits for it" begin
ok "tried again: it is there again" goes_on
ok "tried again: a FLUSH" flush
ok "tried again: B, acknowledged" fill B 0 4
ok "tried again: the daemon is killed" kill_daemon
ok "tried again: the other server ends" other_ends
tries=2
ok "tried again: the next daemon waits for it" begin
dies
again
ok "tried again: it is there again" goes_on
ok "tried again: ... and the FLUSH fails, as the first one was lost" fails flush
ok "tried again: an end" ends_well
kill "$(cat "$other.pid")"

# ---- over TCP ----

dir=$(mktemp -d /mnt/ram/serverXXXX)
uri="nbd://127.0.0.1:10999"
command_of=(nbdkit -f -p 10999 memory 32M)
answers() { ublkctl nbd-info "$uri"; } >/dev/null 2>&1
again
ok "TCP: it starts" device "$(nbd)"
ok "TCP: A, acknowledged" fill A 0 4
ok "TCP: the daemon is killed" kill_daemon
ok "TCP: the next one" next
ok "TCP: a FLUSH" flush
ok "TCP: B, acknowledged" fill B 4 4
ok "TCP: the daemon is killed" kill_daemon
dies
again
ok "TCP: the next one" next
ok "TCP: ... fails the FLUSH" fails flush
ok "TCP: an end" ends_well

# ---- NVMe/TCP ----

nqn=nqn.2026-01.org.example:away
target() { # with a cache: the page cache of its file
	backing=$(loop_disk /mnt/ram/away 32M) && nvmet_subsystem $nqn "$backing" && nvmet_port 1 127.0.0.1 4420 && nvmet_link 1 $nqn
}
if nvmet_up; then
	ok "NVMe: a target" target
	ok "NVMe: it starts" device "{type: nvme-tcp, host: 127.0.0.1, subsystem: \"$nqn\", namespace: 1, cache: volatile, on_disconnect: {queue: 60s}}"
	ok "NVMe: A, acknowledged" fill A 0 4
	ok "NVMe: the daemon is killed" kill_daemon
	ok "NVMe: the next one" next
	ok "NVMe: a FLUSH" flush
	ok "NVMe: B, acknowledged" fill B 4 4
	ok "NVMe: the daemon is killed" kill_daemon
	unlinked() { nvmet_unlink 1 $nqn && nvmet_link 1 $nqn; }
	ok "NVMe: the target cuts all connections" unlinked
	ok "NVMe: the next one" next
	ok "NVMe: ... fails the FLUSH" fails flush
	end_server
else
	skip "NVMe" "$(cat "$work/modprobe")"
fi
finish
