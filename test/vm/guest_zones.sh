# shellcheck shell=bash
# What suites of devices with zones do: commands, writes and loads in zones of 4 MiB. Sourced, behind guest_devices.sh.

act() { blkzone "$2" -o $(($3 * 8192)) -c "${4:-1}" "$(blk "$1")"; } # NAME COMMAND INDEX [NUMBER]
refused() { ! "$@" 2>&1; }
# put NAME ZONE BLOCK BLOCKS: random blocks of 4 KiB from that one of the zone on.
put() { dd if=/dev/urandom of="$(blk "$1")" bs=4k seek=$(($2 * 1024 + $3)) count="$4" oflag=direct conv=notrunc status=none; }
# zone DEVICE INDEX: its condition and how many sectors of it are written.
zone() {
	blkzone report -o $(($2 * 8192)) -c 1 "$1" |
		sed -nE 's/.* wptr 0x0*([0-9a-f]+) .*zcond: *[0-9]+\(([a-z]+)\).*/\2 \1/p'
}

# zbd NAME [OPTION...]: writes at the pointers of random zones, and what it reads back is what it wrote.
zbd() {
	fio --name=zbd --filename="$(blk "$1")" --ioengine=io_uring --direct=1 --zonemode=zbd --verify=crc32c --verify_fatal=1 \
		--do_verify=1 --randrepeat=0 --verify_state_save=0 --minimal "${@:2}" >"$work/fio.log" 2>&1 ||
		{ cat "$work/fio.log"; return 1; }
}

# load_zones NAME: fio in zones, again and again, until load_ends. As load of guest_devices.sh.
load_zones() {
	mkdir -p "$work/load/$1"
	(
		work=$work/load/$1
		renice -n 19 -p $BASHPID >/dev/null
		while [ ! -e "$work/../enough" ]; do
			zbd "$1" --rw=randwrite --bsrange=4k-64k --blockalign=4k --iodepth=16 --offset=8M --size=48M --io_size=8M \
				--max_open_zones=3 || exit 1
		done
	) &
	loads[$1]=$!
}

# A tree of files on a file system with zones.
copies() { cp -r "$here" "/mnt/fs/$1" && sync -f /mnt/fs; }
