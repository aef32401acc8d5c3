# shellcheck shell=bash
# Images of QEMU's format qcow2 for bench/guest.sh, which sources this: ublkd's node and QEMU's servers on the
# same images, in three states:
#
#   SERVER-qcow2           every cluster is there: reads and writes in place
#   SERVER-qcow2-alloc     an empty image for each cell; each write is the first one to its cluster
#   SERVER-qcow2-backing   an empty overlay: every read comes from the image below
#
# All use direct I/O on the image, QEMU by io_uring.

qcow2_dir=/mnt/qcow2
qcow2_full=$qcow2_dir/full.qcow2 # all of its clusters have been written
# The first part is for the warm-up; of the rest there is more than a cell can allocate.
qcow2_sparse_gib=8 qcow2_alloc_from=1G

# A disk for them that takes memory as it is written, in the place of those of the other rows: QEMU allocates
# whole clusters for writes of 4k, far more than what is written. Its inodes are few and there from the beginning, as
# the kernel would initialize them during the measurement. All rows of qcow2 are behind the others.
make_qcow2_disk() {
	if mountpoint -q $qcow2_dir; then return; fi
	! mountpoint -q /mnt/stripe || umount /mnt/stripe
	umount /mnt/ram && modprobe -r brd && modprobe brd rd_nr=1 rd_size=$((8 << 20)) max_part=0 &&
		mkfs.ext4 -q -O ^has_journal -N 1024 -E lazy_itable_init=0 /dev/ram0 && mkdir -p $qcow2_dir && mount /dev/ram0 $qcow2_dir &&
		qemu-img create -q -f qcow2 -o preallocation=full $qcow2_full 256M && sync
}

# Sets $image. Only the overlay and the empty image are made anew.
make_qcow2_image() { # SYSTEM
	why="qcow2: $(make_qcow2_disk 2>&1)" || return
	image=$qcow2_full
	case $1 in
	*-alloc)
		image=$qcow2_dir/empty.qcow2
		why=$(qemu-img create -q -f qcow2 $image ${qcow2_sparse_gib}G 2>&1)
		;;
	*-backing)
		image=$qcow2_dir/overlay.qcow2
		why=$(qemu-img create -q -f qcow2 -b $qcow2_full -F qcow2 $image 2>&1)
		;;
	esac || return
	sync
	echo 1 >/proc/sys/vm/drop_caches # direct writes had to drop what is in the page cache
}

# The memory of what is removed comes back, too.
remove_qcow2_image() {
	[ "$image" = $qcow2_full ] || rm -f "$image"
	fstrim $qcow2_dir
}

# ---- the servers ----

start_qcow2_ublkd() { # MODE
	local backing=''
	if [[ $image == *overlay* ]]; then backing=", backing: {type: qcow2, data: {type: file, path: $qcow2_full}}"; fi
	start_ublkd "$1" "{type: qcow2, data: {type: file, path: $image}$backing}"
}

# The kernel's nbd.ko on a unix socket.
start_qcow2_qemu_nbd() { # AIO
	modprobe nbd nbds_max=1 || { why="no module nbd"; return 1; }
	device=/dev/nbd0
	mkdir -p /run/lock # its own socket is there
	qemu-nbd --fork --pid-file="$work/qemu.pid" --connect=$device --format=qcow2 --cache=none --aio="$1" \
		--discard=unmap "$image" >"$work/qemu" 2>&1 && wait_for 10 qcow2_nbd_serves && return
	why="qemu-nbd: $(tail -n 1 "$work/qemu")"
	return 1
}
qcow2_nbd_serves() { [ "$(cat /sys/block/nbd0/size)" != 0 ]; }

start_qsd() { # AIO EXPORT
	local below='' # what it opens by itself would not be direct
	if [[ $image == *overlay* ]]; then
		below=,backing.driver=qcow2,backing.file.driver=file,backing.file.filename=$qcow2_full
		below+=,backing.file.cache.direct=on,backing.file.aio=$1
	fi
	qemu-storage-daemon --daemonize --pidfile "$work/qemu.pid" \
		--blockdev "driver=file,node-name=file,filename=$image,cache.direct=on,aio=$1,discard=unmap" \
		--blockdev "driver=qcow2,node-name=disk,file=file,discard=unmap$below" --export "$2" >"$work/qemu" 2>&1 && return
	why="qemu-storage-daemon: $(tail -n 1 "$work/qemu")"
	return 1
}

start_qcow2_qsd_vduse() { # AIO
	modprobe -a vduse virtio_vdpa virtio_blk || { why="no module vduse"; return 1; }
	start_qsd "$1" vduse-blk,id=export,node-name=disk,name=disk,writable=on,num-queues=1,queue-size=128 || return
	device=/dev/vda
	vdpa dev add name disk mgmtdev vduse >"$work/qemu" 2>&1 && wait_for 10 test -b $device && return
	why="vduse: $(tail -n 1 "$work/qemu")"
	stop_qemu
	return 1
}

# FUSE gives a file: the block device is the loop device's, with direct I/O.
start_qcow2_qsd_fuse() { # AIO
	touch "$work/fuse" && start_qsd "$1" "fuse,id=export,node-name=disk,mountpoint=$work/fuse,writable=on" || return
	modprobe loop && device=$(losetup --find --show --direct-io=on "$work/fuse" 2>&1) && return
	why="loop: $device"
	stop_qemu
	return 1
}

start_qcow2() { # SYSTEM MODE
	local server=${1%-qcow2*}
	make_qcow2_image "$1" || return
	"start_qcow2_${server//-/_}" "$2"
}

stop_qemu() {
	kill "$(cat "$work/qemu.pid")"
	wait_for 10 eval '! pidof qemu-nbd qemu-storage-daemon >/dev/null'
	rm -f "$work/qemu.pid"
}

stop_qcow2() { # SYSTEM
	case $1 in
	ublkd-*) stop_daemon ;;
	qemu-nbd-*) qemu-nbd --disconnect "$device" >/dev/null; stop_qemu 2>/dev/null ;;
	qsd-vduse-*) vdpa dev del disk; stop_qemu ;;
	qsd-fuse-*) losetup -d "$device"; stop_qemu ;;
	esac
	remove_qcow2_image
}

# ---- the loads ----

# Options of fio in the place of the usual ones.
qcow2_load() { # SYSTEM
	case $1 in
	*-alloc) echo "--rw=write:60k --offset=$qcow2_alloc_from --size=100%" ;;
	esac
}
