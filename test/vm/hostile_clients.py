#!/usr/bin/env python3
"""Clients that want the daemon for themselves; run until they are killed. They say "there" when they are.

    hostile_clients.py drip PORT NUMBER        connections to the metrics that send a byte now and then
    hostile_clients.py stall PORT NUMBER       ... that send nothing
    hostile_clients.py pipeline PATH NUMBER    of the control socket: stats, without waiting for an answer
"""
import selectors
import socket
import sys
import time

REQUEST = b'{"command":"stats","buckets":true,"layer_buckets":true}\n'


def connect_all(port, number):
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(number)]


def stall(port, number):
    connections = connect_all(port, number)
    print("there", flush=True)
    while connections:
        time.sleep(60)


def drip(port, number):
    """Who is sent away comes again."""
    connections = connect_all(port, number)
    print("there", flush=True)
    while True:
        for i, connection in enumerate(connections):
            try:
                connection.send(b"G")
            except OSError:
                connection.close()
                connections[i] = socket.create_connection(("127.0.0.1", port))
        time.sleep(0.5)


def pipeline(path, number):
    selector = selectors.DefaultSelector()
    for _ in range(number):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        connection.send(REQUEST * 20)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    print("there", flush=True)
    while True:
        for key, _ in selector.select():
            answers = key.fileobj.recv(1 << 20).count(b"\n")
            if answers:
                key.fileobj.send(REQUEST * answers)


if __name__ == "__main__":
    what, where, how_many = sys.argv[1:]
    if what == "pipeline":
        pipeline(where, int(how_many))
    else:
        {"drip": drip, "stall": stall}[what](int(where), int(how_many))
