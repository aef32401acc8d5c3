"""A ublkd that does not exist: answers list, stats and reactors on a control socket, with a clock of
its own. Each sample (a stats of all devices) is one second after the one before and each device has
done `rate` more, so that what is shown does not depend on when it was asked for."""

import json
import os
import socket
import threading

OPS = ("read", "write", "flush", "discard", "write_zeroes")
LAYERS = ("total", "throttle", "daemon", "backend")


class Device:
    """read_rate reads of 4096 bytes a second, each of total_ns, of which backend_ns in the backend."""

    def __init__(self, name, read_rate, total_ns=80000, backend_ns=64000, failed_rate=0, state="live"):
        self.name, self.state, self.backend, self.inflight = name, state, "throttle > file", 3
        self.read_rate, self.failed_rate, self.total_ns = read_rate, failed_rate, total_ns
        self.ns = {"total": total_ns, "throttle": 0, "daemon": total_ns - backend_ns, "backend": backend_ns}
        self.zero()

    def zero(self):
        self.done = self.failed = 0
        self.buckets = {layer: {} for layer in LAYERS}

    def tick(self):
        self.ns["total"] = self.total_ns
        self.done += self.read_rate
        self.failed += self.failed_rate
        for layer in LAYERS:
            counts = self.buckets[layer]
            counts[self.ns[layer]] = counts.get(self.ns[layer], 0) + self.read_rate

    def histogram(self, layer):
        counts = self.buckets[layer]
        return {"sum_ns": sum(ns * nr for ns, nr in counts.items()), "buckets": sorted(counts.items())}

    def op(self, name, layer_buckets):
        if name != "read":
            return {"done": 0, "failed": 0, "bytes": 0, "sum_ns": 0, "buckets": [], "layers": {}}
        op = {"done": self.done, "failed": self.failed, "bytes": self.done * 4096, "layers": {}}
        op.update(self.histogram("total"))
        if layer_buckets:
            op["layers"] = {layer: self.histogram(layer) for layer in LAYERS}
        return op

    def stats(self, layer_buckets):
        return {"name": self.name, "state": self.state, "inflight": self.inflight,
                "ops": {name: self.op(name, layer_buckets) for name in OPS}}


class Ublkd:
    def __init__(self, path, devices):
        self.path, self.devices, self.samples, self.seconds = path, list(devices), 0, 100
        self.asked, self.layers_asked = 0, []  # questions that came; names
        self.lock = threading.Lock()
        self.listener = None
        self.start()

    def start(self):
        """As if the machine had been on for some time: the clock goes on over restarts."""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def stop(self):
        os.unlink(self.path)
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self, listener):
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        with client, client.makefile("r") as questions:
            try:
                for line in questions:
                    client.sendall((json.dumps(self.answer(json.loads(line))) + "\n").encode())
            except OSError:
                pass

    def answer(self, request):
        self.asked += 1
        with self.lock:
            command = request["command"]
            if command == "list":
                return {"ok": True, "data": [{"name": d.name, "state": d.state, "backend": d.backend}
                                             for d in self.devices]}
            if command == "reactors":
                return {"ok": True, "data": [self.reactor(0), self.reactor(-1)]}
            return self.stats(request)

    def stats(self, request):
        chosen = [d for d in self.devices if request.get("name", d.name) == d.name]
        if "name" in request and not chosen:
            return {"ok": False, "error": "there is no device \"%s\"" % request["name"]}
        if "name" not in request:
            self.samples += 1
            self.seconds += 1
            for device in self.devices:
                device.tick()
        layer_buckets = request.get("layer_buckets", False)
        if layer_buckets:
            self.layers_asked.append(request["name"])
        return {"ok": True, "data": {"time_ns": self.seconds * 10**9,
                                     "devices": [d.stats(layer_buckets) for d in chosen]}}

    def reactor(self, cpu):
        """A quarter of the time in callbacks, four events a turn."""
        return {"name": "control" if cpu < 0 else "data", "cpu": cpu, "turns": self.seconds * 100,
                "cqes": self.seconds * 400, "callback_ns": self.seconds * 250, "kernel_ns": self.seconds * 200, "poll_ns": self.seconds * 50, "idle_ns": self.seconds * 500,
                "stalls": self.seconds * 2, "sq_full": 0, "timers_late": 0}
