"""The bytes of a namespace, in memory or in a file, and who it is."""

import mmap
import os
import uuid

from nvme_settings import ID_BYTES
from nvme_wire import *

PAGE = mmap.PAGESIZE
ZEROES = bytes(1 << 20)
MAP_NORESERVE = 0x4000  # Linux' number, which Python does not name


class Disk:
    """With `volatile` there is a copy of what was there before each write that no flush followed."""

    def __init__(self, size, path=None):
        self.path, self.size, self.view, self.lost = path, 0, None, []
        self.resize(size or (os.path.getsize(path) if path and os.path.exists(path) else 64 << 20))

    def resize(self, size):
        """What both sizes have stays; room once had is kept, its content not."""
        if self.view is None or len(self.view) < size:
            view = self.map(size)
            if self.view is not None and not self.path:
                view[: self.size] = self.view[: self.size]
            self.view = view
        if size < self.size:
            self.zero(size, self.size - size)
        self.size = size

    def map(self, size):
        if not self.path:
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
            return mmap.mmap(fd, size)
        finally:
            os.close(fd)

    def read(self, offset, length):
        return self.view[offset : offset + length]

    def write(self, offset, data, keep):
        """keep: as the write may be lost, what was there before is kept."""
        if keep:
            self.lost.append((offset, self.view[offset : offset + len(data)]))
        self.view[offset : offset + len(data)] = data

    def zero(self, offset, length, keep=False):
        if keep:
            self.lost.append((offset, self.view[offset : offset + length]))
        end = offset + length
        first, last = -(-offset // PAGE) * PAGE, end // PAGE * PAGE
        if not self.path and last > first:
            self.view.madvise(mmap.MADV_DONTNEED, first, last - first)
            parts = [(offset, first), (last, end)]
        else:
            parts = [(offset, end)]
        for at, stop in parts:
            while at < stop:
                step = min(stop - at, len(ZEROES))
                self.view[at : at + step] = ZEROES[:step]
                at += step

    def flush(self):
        self.lost.clear()

    def crash(self):
        for offset, before in reversed(self.lost):
            self.view[offset : offset + len(before)] = before
        self.lost.clear()


class Namespace:
    """One of a subsystem; index 0 is the one that settings speak of."""

    def __init__(self, settings, nqn, index, size, path=None):
        self.settings, self.nqn, self.index = settings, nqn, index
        self.disk = Disk(size, path)

    @property
    def nsid(self):
        return self.settings.nsid + self.index

    @property
    def blocks(self):
        return self.disk.size // self.settings.block

    def identity(self, key):
        """uuid, nguid or eui: bytes, or None: not reported."""
        value = getattr(self.settings, key)
        if value == "none":
            return None
        if value:
            out = bytearray(bytes.fromhex(value.replace("-", "")))
            out[-1] = (out[-1] + self.index) & 0xFF
            return bytes(out)
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.nqn}/{key}/{self.index}").bytes[: ID_BYTES[key]]

    def place(self, lba, blocks):
        """(offset, bytes) in the disk."""
        block = self.settings.block
        if lba + blocks > self.blocks:
            raise Refused(LBA_RANGE | DNR)
        return lba * block, blocks * block

    def execute(self, command, data):
        """Data of the answer."""
        keep = self.settings.volatile and not command.fua
        if command.kind in (WRITE, WRITE_ZEROES, DSM) and self.settings.read_only:
            raise Refused(WRITE_PROTECTED | DNR)
        if command.kind == FLUSH:
            self.disk.flush()
        elif command.kind == READ:
            return self.disk.read(*self.transfer(command))
        elif command.kind == WRITE:
            self.disk.write(self.transfer(command)[0], data, keep)
        elif command.kind == WRITE_ZEROES:
            self.disk.zero(*self.place(command.lba, command.blocks), keep)
        else:
            self.deallocate(command, data, keep)
        return b""

    def transfer(self, command):
        offset, length = self.place(command.lba, command.blocks)
        if command.length != length:
            raise Refused(SGL_LENGTH | DNR)
        return offset, length

    def deallocate(self, command, data, keep):
        nr = (command.dwords[10] & 0xFF) + 1
        # Linux sends a whole page, whatever of it there are ranges in
        if len(data) < 16 * nr:
            raise Refused(SGL_LENGTH | DNR)
        if not command.dwords[11] & DSM_DEALLOCATE:
            return
        places = [self.place(lba, blocks) for _, blocks, lba in struct.iter_unpack("<IIQ", data[: 16 * nr])]
        for offset, length in places:
            self.disk.zero(offset, length, keep)
