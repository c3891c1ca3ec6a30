#!/usr/bin/env python3
"""Passes on TCP connections as a slow link would: bytes leave one after the other at a rate, and arrive a delay later.

    bench/slow_link.py LISTEN_PORT SERVER_PORT --delay 10 --rate 100      SIGUSR1 prints the bytes so far, up and down

Ports are of 127.0.0.1, the delay is in milliseconds each way, the rate in Mbit/s each way of each connection (left out: no limit).
"""
import argparse
import asyncio
import contextlib
import signal

LATE = 0.003  # seconds


passed = {'up': 0, 'down': 0}


async def pass_on(way, reader, writer, delay, rate):
    """Sends what is read, late; reads no faster than the rate, so that the sender feels it."""
    loop = asyncio.get_running_loop()
    under_way = asyncio.Queue()

    async def deliver():
        while (late := await under_way.get()) is not None:
            due, data = late
            await asyncio.sleep(max(0, due - loop.time()))
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof() if writer.can_write_eof() else writer.close()

    delivery = asyncio.create_task(deliver())
    free_at = 0.0  # when the last byte has left
    with contextlib.suppress(OSError):
        asked = loop.time()
        while data := await reader.read(16384):
            passed[way] += len(data)
            waited = loop.time() - asked > 0.0005  # for data; else the data did, while this process slept too long
            free_at = max(free_at, loop.time() - (0 if waited else LATE)) + (8 * len(data) / rate if rate else 0)
            under_way.put_nowait((free_at + delay, data))
            await asyncio.sleep(max(0, free_at - loop.time()))
            asked = loop.time()
    under_way.put_nowait(None)
    with contextlib.suppress(OSError):
        await delivery


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('listen', type=int)
    parser.add_argument('server', type=int)
    parser.add_argument('--delay', type=float, default=10)
    parser.add_argument('--rate', type=float)
    options = parser.parse_args()

    async def connected(reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection('127.0.0.1', options.server)
        except OSError:
            writer.close()
            return
        link = options.delay / 1e3, options.rate and options.rate * 1e6
        await asyncio.gather(pass_on('up', reader, to_writer, *link), pass_on('down', to_reader, writer, *link))
        for each in (writer, to_writer):
            each.close()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: print(*passed.values(), flush=True))
    async with await asyncio.start_server(connected, '127.0.0.1', options.listen) as server:
        await server.serve_forever()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
