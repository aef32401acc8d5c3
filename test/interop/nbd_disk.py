"""What nbd_server.py serves: the settings of its export, and the bytes."""

import mmap
import os
import threading

from nbd_wire import *


class Settings:
    """size: bytes; go, structured, extended, meta: understood at all; tls: a PEM file with certificate
    and key; the rest: what the export offers and promises. min/preferred/max_block 0: nothing is said."""

    def __init__(self):
        self.size, self.export, self.description = 4 << 20, "", ""
        self.go, self.structured, self.extended, self.meta = 1, 1, 0, 1
        self.read_only, self.flush, self.fua, self.trim, self.zeroes, self.multi_conn = 0, 1, 1, 1, 1, 1
        self.df, self.cache, self.fast_zero, self.rotational = 1, 1, 1, 0
        self.min_block, self.preferred_block, self.max_block = 0, 0, 0
        self.volatile, self.tls = 0, ""

    def change(self, words):
        for word in words:
            key, _, value = word.partition("=")
            if key not in vars(self):
                raise ValueError(f"no setting is called {key!r}")
            setattr(self, key, value if isinstance(getattr(self, key), str) else int(value, 0))

    def transmission_flags(self):
        offers = ((READ_ONLY, self.read_only), (SEND_FLUSH, self.flush), (SEND_FUA, self.fua),
                  (ROTATIONAL, self.rotational), (SEND_TRIM, self.trim), (SEND_WRITE_ZEROES, self.zeroes),
                  (SEND_DF, self.df and self.structured), (MULTI_CONN, self.multi_conn),
                  (SEND_CACHE, self.cache), (SEND_FAST_ZERO, self.fast_zero and self.zeroes))  # fmt: skip
        return HAS_FLAGS | sum(flag for flag, offered in offers if offered)


# Room behind the size that is told, which may grow later.
CAPACITY = 16 << 20


class Disk:
    """`view` is what a READ sees, `stable` what outlives the loss of a volatile cache. Any thread."""

    def __init__(self, path, settings):
        self.settings, self.lock, self.dirty = settings, threading.Lock(), []
        self.stable = self.map(path) if path else bytearray(max(settings.size, CAPACITY))
        self.view = bytearray(self.stable) if settings.volatile else self.stable

    def map(self, path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        capacity = max(self.settings.size, CAPACITY)
        if os.fstat(fd).st_size < capacity:
            os.ftruncate(fd, capacity)
        return mmap.mmap(fd, os.fstat(fd).st_size)

    def read(self, offset, length):
        with self.lock:
            return bytes(self.view[offset : offset + length])

    def write(self, offset, data, fua):
        with self.lock:
            self.view[offset : offset + len(data)] = data
            if self.view is self.stable:
                return
            if fua:
                self.stable[offset : offset + len(data)] = data
            else:
                self.dirty.append((offset, offset + len(data)))

    def flush(self):
        with self.lock:
            for start, end in self.dirty:
                self.stable[start:end] = self.view[start:end]
            self.dirty.clear()

    def lose_cache(self):
        with self.lock:
            for start, end in self.dirty:
                self.view[start:end] = self.stable[start:end]
            self.dirty.clear()

    def extents(self, offset, length, one):
        """[(length, flags)] of base:allocation: runs of zeroes are holes."""
        out = []
        end = offset + length
        with self.lock:
            while offset < end:
                stop = min(end, (offset | 0xFFFF) + 1)
                flags = 0 if any(self.view[offset:stop]) else 3
                if out and out[-1][1] == flags:
                    out[-1] = (out[-1][0] + stop - offset, flags)
                elif one and out:
                    break
                else:
                    out.append((stop - offset, flags))
                offset = stop
        return out
