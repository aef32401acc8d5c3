#!/bin/bash
# In the guest: upgrades to a new program again and again, while the devices are under a load with
# verified content; programs that cannot take over do not affect the old one. $UBLKD_UPGRADES: number
# of upgrades.
# Runs on: uml, 7.2
# By turns: 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_load.sh"

upgrades=${UBLKD_UPGRADES:-2}
[ -z "${UBLKD_SOAK:-}" ] || upgrades=50

ram_disk 300 || exit 1
two_devices >"$work/two.yaml"

upgrade_again_and_again() {
	local i before
	for ((i = 0; i < upgrades; i++)); do
		before=$(server)
		ublkctl upgrade >>"$work/upgrades" || return 1
		wait_for 10 settled || return 1
		[ "$(server | wc -w)" = 1 ] && [ "$(server)" != "$before" ] || return 1
	done
}

# A daemon that executes itself again is called "exe" until it names itself: the look is repeated.
server_is() { [ "$(server)" = "$1" ]; }

# refused WORDS PATH: the upgrade to that program fails with WORDS, and the daemon's process is the same.
refused() {
	local words=$1 before
	before=$(server)
	! ublkctl upgrade "$2" >"$work/refused" 2>&1 || return 1
	cat "$work/refused"
	grep -q "$words" "$work/refused" && wait_for 30 server_is "$before"
}

ok "two devices start" start_daemon "$work/two.yaml"
if ! driver_has QUIESCE; then
	ok "an older driver is refused, with the cure" refused "older than Linux 6.16.*kill -9" "$(command -v ublkd)"
	finish
fi
load memory
load file
ok "upgraded $upgrades times" upgrade_again_and_again
sed 's/^/# /' "$work/upgrades"
daemon_pid=$(server)
# The program has moved; from now on upgrades use its new path.
cp "$(command -v ublkd)" "$(command -v ublkd-keeper)" "$work"
from_elsewhere() { [ "/proc/$(server)/exe" -ef "$work/ublkd" ]; }
ok "to a program elsewhere" eval 'ublkctl upgrade "$work/ublkd" && wait_for 10 settled && from_elsewhere'
ok "and from there" eval 'ublkctl upgrade && wait_for 10 settled && from_elsewhere'
daemon_pid=$(server)
ok "to what is no program" refused "cannot be executed" /etc/passwd
printf '#!/bin/sh\nexit 7\n' >"$work/crashes" && chmod +x "$work/crashes"
ok "to a program that ends at once" refused "exit code 7" "$work/crashes"
printf '#!/bin/sh\nkill -SEGV $$\n' >"$work/crashes" && chmod +x "$work/crashes"
ok "to a program that crashes at once" refused "signal 11" "$work/crashes"
echo '{"version": 99}' >/run/ublkd/control.sock.state/other.json
ok "to a program that cannot read the state" refused "notes of the devices in .* cannot be used" "$(command -v ublkd)"
rm /run/ublkd/control.sock.state/other.json
# This program reports that it is ready, receives "go", and dies.
cat >"$work/dies" <<'EOF2'
#!/bin/bash
read -r end _ <<<"$UBLKD_STANDBY"
printf 'ready 9.9' >&"$end"
[ "$(head -c 2 <&"$end")" = go ]
EOF2
chmod +x "$work/dies"
ok "to a program that dies after the hand over" refused "takes the devices back" "$work/dies"
ok "it serves again" wait_for 30 settled
ok "and can still be upgraded" ublkctl upgrade
daemon_pid=$(server)
ok "no write was lost, no request failed" loads_well
ok "all were busy" were_busy
ok "it ends" end_server
ok "no keeper is left" wait_for 10 no_keeper
ok "no note is left" no_note
finish
