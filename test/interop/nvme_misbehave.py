"""What is sent in the place of what a command wants."""

import asyncio

from nvme_wire import *


class Hangup(Exception):
    """This end closes the connection."""


async def stall(connection, command, fault):
    await asyncio.get_running_loop().create_future()


async def hangup(connection, command, fault):
    raise Hangup(fault.name)


async def status(connection, command, fault):
    raise Refused(fault.status, fault.result)


async def term_req(connection, command, fault):
    await connection.send_term(fault.fes, 8, command.header)
    raise Hangup(fault.name)


async def wrong_cid(connection, command, fault):
    await connection.respond(command, cid=connection.free_cid())


async def success_early(connection, command, fault):
    """Of a write; see data_pieces() for reads."""
    if command.to_controller():
        await connection.respond(command)
        return True
    return False


async def icresp_again(connection, command, fault):
    await connection.send(icresp(0, 0, 0, 131072))


async def data_to_write(connection, command, fault):
    data = bytes(min(command.length, 512))
    await connection.send_pdu(C2H_DATA, data_body(command.cid, 0, 0, len(data)), LAST, data)


async def r2t(connection, command, fault):
    """What is asked for is none of the transfers that are known: if it comes, that is a violation."""
    cid, length = command.cid, command.length
    asked = {
        "r2t_too_long": [(cid, 0, length + 512)],
        "r2t_outside": [(cid, length, 512)],
        "r2t_unknown_cid": [(connection.free_cid(), 0, length)],
        "r2t_twice": [(cid, 0, length)] * 2,
        "r2t_zero": [(cid, 0, 0)],
        "r2t_too_many": [(cid, 512 * i, 512) for i in range(connection.wire.maxr2t + 1)],
        "r2t_for_read": [(cid, 0, length)],
        "r2t_stall": [],
    }[fault.name]
    for asked_cid, offset, nr in asked:
        await connection.send_pdu(R2T, data_body(asked_cid, connection.new_ttag(), offset, nr))


# FAULT: what happens before the command is done. True: that was its end; wherever nothing is returned, no
# more comes of the command.
BEFORE = {
    "stall": stall, "hangup": hangup, "status": status, "reject_connect": status, "term_req": term_req,
    "wrong_cid": wrong_cid, "success_early": success_early, "icresp_again": icresp_again,
    "data_to_write": data_to_write,
    **dict.fromkeys(("r2t_too_long", "r2t_outside", "r2t_unknown_cid", "r2t_twice", "r2t_zero", "r2t_too_many",
                     "r2t_for_read", "r2t_stall"), r2t),
}  # fmt: skip


async def misbehave(connection, command, fault):
    """True: the command is over."""
    if fault.late or fault.name not in BEFORE:
        return False
    done = await BEFORE[fault.name](connection, command, fault)
    if done is None:
        await stall(connection, command, fault)
    return done


async def misbehave_accept(connection, fault):
    if fault.name == "icresp_silent":
        await stall(connection, None, fault)
    if fault.name == "icresp_garbage":
        await connection.send(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n" + bytes(256))
    raise Hangup(fault.name)


def data_pieces(pieces, data, fault):
    """[(offset, data, flags)] as it ought to be, to what is sent."""
    half = max(1, len(data) // 2)
    wrongs = {
        "data_outside": lambda: [(len(data), data[:512], LAST)],
        "data_short": lambda: [(0, data[:half], LAST)],
        "success_early": lambda: [(0, data[:half], LAST | SUCCESS)],
        "data_twice": lambda: [pieces[0][:2] + (0,)] + pieces,
        "data_gap": lambda: [(half, data[half:], LAST)],
        "data_zero": lambda: [(0, b"", LAST)],
    }
    return wrongs[fault]() if fault in wrongs else pieces
