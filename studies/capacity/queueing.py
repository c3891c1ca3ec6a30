"""What answers wait for: by formula, and by a simulation of the server as it is. Times are milliseconds.

`work` is the CPU for a "token" of a block, for its "first_part", which transforms its inputs, and for each later
"part"; a block has "block" tokens and "parts" parts.
"""

import collections
import heapq
import itertools
import math
import random
import statistics

TICK = 4.0  # after which Linux, at 250 Hz, gives a core to who waits


def answer_ms(work):
    """CPU of an answer, with its share of a block."""
    return work["token"] + (work["first_part"] + (work["parts"] - 1) * work["part"]) / work["block"]


def wait_ms(cores, per_ms, mean, variation):
    """Of M/G/c, by Kimura: between M/M/c (Erlang) and M/D/c (Cosmetatos) as the squared coefficient of variation says."""
    load, used = per_ms * mean, per_ms * mean / cores
    lost = 1.0  # of M/M/c without a queue
    for k in range(1, cores + 1):
        lost = load * lost / (k + load * lost)
    exponential = lost / (1 - used + used * lost) * mean / (cores - load)
    constant = exponential / 2 * (1 + (1 - used) * (cores - 1) * (math.sqrt(4 + 5 * cores) - 2) / (16 * used * cores))
    return (1 + variation) / (2 * variation / exponential + (1 - variation) / constant)


def token_wait_ms(cores, per_ms, work):
    """Of a token, tokens coming at random. A part comes when its token was answered, which delays others less than if
    it came at random: by as much less as in M/G/1 where some jobs come back once (of mean values)."""
    token, requests, rate = work["token"], 1 + work["parts"] / work["block"], per_ms / cores
    part, mean = answer_ms(work) - token, answer_ms(work) / requests
    square = token**2 + (work["first_part"]**2 + (work["parts"] - 1) * work["part"]**2) / work["block"]
    tokens, parts, residual = rate * token, rate * part, rate * square / 2
    back = (residual + parts * tokens * (token + part)) / (1 - tokens - parts * (tokens + parts))
    return wait_ms(cores, per_ms * requests, mean, square / requests / mean**2 - 1) * back * (1 - tokens - parts) / residual


class Turns:
    """Who waits longest is next: for cores, threads of a server, or the one place of a connection, which answers in order.
    service/net/fair_queue.hpp takes owners with a request at a time each, as sessions are here, in this order too."""

    def __init__(self, places, begin):
        self.free, self.begin, self.waiting = places, begin, collections.deque()

    @classmethod
    def over(cls, places, below, drawn=lambda time: time):
        return cls(places, lambda time, ended: below.add(drawn(time), lambda: ended(0)))

    def add(self, time, then):
        self.waiting.append((time, then))
        self.go_on()

    def go_on(self):
        while self.free and self.waiting:
            self.free -= 1
            time, then = self.waiting.popleft()
            self.begin(time, lambda left, then=then: self.ended(left, then))

    def ended(self, left, then):
        self.free += 1
        self.waiting.append((left, then)) if left > 0 else then()
        self.go_on()


class Session:
    """Calls of one token, behind some of which goes a part of the next block."""

    def __init__(self, server, work, left):
        self.line, self.work, self.left = Turns.over(1, server), work, left
        self.asked = min(max(work["block"] // 4 + 1 - left, 0), work["parts"])

    def call(self, then):
        self.line.add(self.work["token"], then)
        self.left -= 1
        if self.asked < self.work["parts"] and self.left <= self.work["block"] // 4:
            self.line.add(self.work["part" if self.asked else "first_part"], lambda: None)
            self.asked += 1
        if self.left == 0:
            self.left, self.asked = self.work["block"], 0


def simulate(work, cores, seconds, users, *, servers=1, threads=3, per_ms=None, client=0.0, pause=0.0, speed=1.0,
             exponential=False, together=False):
    """Answers per ms, mean, p50 and p99 of their times, of what begins after 0.3 s.

    per_ms: tokens that come, to sessions at random; else each asks again a pause (in the mean) after an answer. client:
    CPU of a client for an answer, on the same cores. threads: --threads and one, as who reads a request answers it when
    nothing else runs. speed: what others leave of the cores. together: all begin with a fresh block."""
    draw, now, events, number, times = random.Random(1), 0.0, [], itertools.count(), []

    def after(time, then):
        heapq.heappush(events, (now + time, next(number), then))
    machine = Turns(cores, lambda time, ended: after(min(time, TICK) / speed, lambda: ended(time - TICK)))
    drawn = (lambda time: draw.expovariate(1 / time)) if exponential else lambda time: time
    sides = [Turns.over(threads, machine, drawn) for _ in range(servers)]
    sessions = [Session(sides[i % servers], work, work["block"] if together else draw.randint(1, work["block"]))
                for i in range(users)]

    def ask(session, began):
        def answered():
            if began >= 300:
                times.append(now - began)
            if not per_ms:
                later(session)
        machine.add(client, lambda: session.call(answered)) if client else session.call(answered)

    def later(session):
        after(draw.expovariate(1 / pause) if pause else 0.0, lambda: ask(session, now))

    def arrive():
        ask(draw.choice(sessions), now)
        after(draw.expovariate(per_ms), arrive)
    arrive() if per_ms else [later(each) for each in sessions]
    while events[0][0] < 300 + seconds * 1e3:
        now, _, then = heapq.heappop(events)
        then()
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"per_ms": len(times) / seconds / 1e3, "mean": statistics.fmean(times), "p50": cuts[49], "p99": cuts[98]}
