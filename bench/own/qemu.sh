#!/bin/bash
# qemu-system-x86_64 with the plugin, and a guest that loads programs at a fixed address: UBLKD_VM_QEMU of own.py.
args=()
for arg in "$@"; do
	case $arg in *rootfstype=*) arg="$arg norandmaps" ;; esac
	args+=("$arg")
done
exec qemu-system-x86_64 "${args[@]}" -plugin "$OWN_PLUGIN"
