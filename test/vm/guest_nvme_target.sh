#!/bin/bash
# In the guest: what guest_nvme.sh and the bench rows stand on, without ublkd: the kernel's NVMe/TCP target, made and
# changed by guest_nvme_lib.sh, as the kernel's own initiator sees it.
# With --soak: 7.2, 6.12
. "$(dirname "$(readlink -f "$0")")/guest_lib.sh"
. "$here/guest_nvme_lib.sh"

ram_disk 600 || exit 1
nqn=nqn.2026-01.org.example
first='' second=''
on_file=$nqn:file on_loop=$nqn:loop on_null=$nqn:null

make_target() {
	truncate -s 48M /mnt/ram/file && loop=$(loop_disk /mnt/ram/loop 48M) &&
		modprobe null_blk nr_devices=1 gb=1 hw_queue_depth=128 &&
		nvmet_subsystem $on_file /mnt/ram/file && nvmet_subsystem $on_loop "$loop" && nvmet_subsystem $on_null /dev/nullb0 7 &&
		nvmet_port 1 127.0.0.1 4420 && nvmet_port 2 127.0.0.1 4421 1024 &&
		nvmet_link 1 $on_file && nvmet_link 2 $on_file && nvmet_link 1 $on_null && nvmet_listens 4420 && nvmet_listens 4421
}
# connect NQN NSID PORT [OPTIONS]: $device
connect() {
	device=/proc/no-device
	kernel_connect "$1" 127.0.0.1 "$3" "reconnect_delay=1,ctrl_loss_tmo=120,nr_io_queues=2${4:+,$4}" &&
		wait_for 20 kernel_node "$1" "$2" >/dev/null && device=$(kernel_node "$1" "$2")
}
two_jobs="--bsrange=4k-256k --blockalign=4k --iodepth=32 --numjobs=2 --size=8M --io_size=4M --offset_increment=20M"
# shellcheck disable=SC2086
verify_two() { verify "$device" $two_jobs; }
bytes_are() { [ "$(blockdev --getsize64 "$device")" = "$1" ] || { blockdev --getsize64 "$device" && return 1; }; }
queue_is() { [ "$(cat "/sys/block/${device#/dev/}/queue/$1")" = "$2" ]; }
no_controller() { [ -z "$(kernel_controllers "$1")" ]; }
disconnect() { kernel_disconnect "$1" && wait_for 20 no_controller "$1"; }

# ---- data ----

if ! nvmet_up; then
	skip "the kernel's NVMe/TCP target" "$(cat "$work/modprobe")"
	finish
fi
ok "a target of three subsystems on two ports" make_target
ok "the kernel connects" connect $on_file 1 4420
ok "a file has blocks of 4 KiB" queue_is logical_block_size 4096
ok "its size" bytes_are $((48 << 20))
ok "fio verify, two queues at QD32" verify_two
same_bytes() { blockdev --flushbufs "$device" && cmp /mnt/ram/file "$device"; }
ok "the file holds what the device shows" same_bytes
ok "disconnected" disconnect $on_file
ok "it connects with digests, where no write travels in its command" connect $on_file 1 4421 hdr_digest,data_digest
ok "fio verify, two queues at QD32" verify_two
ok "disconnected" disconnect $on_file
ok "the namespace 7 on null_blk" connect $on_null 7 4420
ok "it has blocks of 512 bytes" queue_is logical_block_size 512
ok "disconnected" disconnect $on_null

# ---- changes under load ----

# load: verifies until loaded; loaded: it has done so without an error
load() {
	rm -f "$work/enough"
	(while [ ! -e "$work/enough" ]; do verify_two || exit 1; done) &
	load_pid=$!
}
loaded() {
	touch "$work/enough"
	wait $load_pid || { cat "$work/fio.log" && return 1; }
}
completed() { awk '{ print $1 + $5 }' "/sys/block/${device#/dev/}/stat"; }
more_than() { [ "$(completed)" -gt "$1" ]; }
works() { wait_for 60 more_than $(($(completed) + 100)); }
state_of() { cat "/sys/class/nvme/$1/state"; }
is() { [ "$("${@:2}")" = "$1" ]; }

ok "two paths" eval 'connect $on_file 1 4420 && first=$kernel_controller && connect $on_file 1 4421 && second=$kernel_controller'
load
ok "a load on both" works
ok "the first path becomes inaccessible" eval 'nvmet_ana 1 1 inaccessible && works'
ana_of() { cat /sys/class/nvme/"$1"/nvme*/ana_state; }
ok "... the initiator is told so" wait_for 20 is inaccessible ana_of "$first"
ok "... and optimized again, the second is removed" eval 'nvmet_ana 1 1 optimized && nvmet_unlink 2 $on_file && works'
ok "... its initiator reconnects" wait_for 20 is connecting state_of "$second"
ok "... the port does not listen" eval '! nvmet_listens 4421'
ok "... and is back" eval 'nvmet_link 2 $on_file && wait_for 20 is live state_of "$second"'
ok "the file grows, and the device by itself" eval 'nvmet_resize $on_file 64M && wait_for 20 bytes_are $((64 << 20))'
ok "no error under all of it" loaded
ok "disconnected" disconnect $on_file

ok "a loop device" eval 'nvmet_unlink 1 $on_null && nvmet_unlink 1 $on_file && nvmet_link 1 $on_loop && connect $on_loop 1 4420 keep_alive_tmo=2'
load
ok "a load on its only path" works
ok "the target is removed" eval 'nvmet_unlink 1 $on_loop && wait_for 20 is connecting state_of $kernel_controller && ! nvmet_listens 4420'
ok "... and is back: it goes on" eval 'nvmet_link 1 $on_loop && works'
if modprobe sch_netem 2>"$work/modprobe"; then
	ok "the wire is cut" eval 'wire_cut && wait_for 30 is connecting state_of $kernel_controller'
	ok "... and mended: it goes on" eval 'wire_mend && works'
else
	skip "the wire is cut" "$(cat "$work/modprobe")"
fi
ok "the loop device grows, and the device by itself" eval 'nvmet_resize $on_loop 64M && wait_for 20 bytes_are $((64 << 20))'
ok "no error under all of it" loaded
ok "null_blk cannot grow" eval '! nvmet_resize $on_null 2G 7'
ok "a namespace that is switched off vanishes" eval 'nvmet_namespace_off $on_loop && wait_for 20 test ! -e "$device"'
ok "... and is back" eval 'nvmet_namespace_on $on_loop && wait_for 20 kernel_node $on_loop 1'
ok "disconnected" disconnect $on_loop

ok "nothing is left of the target" nvmet_down
losetup -d "$loop"
finish
