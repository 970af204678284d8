"""Answers entwine-bench, which times what these scripts prepare between batches of its own: a request a line, a reply a line.

Each rank is a process of its own, and gets the same requests:

    {"prepare": case}                   {"contestants": {name: what there is to say of it, …}, …}
    {"time": name, "replays": count}    {"us": the time of one call on the slowest rank}
    {"close": true}                     {}

The first line out says of what libraries the contestants are made. A request that fails is answered with {"failure": why}.
"""

import json
import os
import queue
import signal
import sys
import threading
import traceback

# Seconds that a process may take to end once there are no more requests.
FAREWELL = 5


class Unsupported(RuntimeError):
    """A library is not there, or does not do what was asked."""


def replies():
    """What standard output was: whatever else is printed, by libraries too, goes to standard error from now on."""
    sys.stdout.flush()
    file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return file


def requests():
    """The lines of standard input. Once whoever writes them is done or gone, this process ends, even if it is busy, or waits for
    a GPU or another process that never goes on."""
    lines = queue.SimpleQueue()

    def read():
        # Not `sys.stdin`: Python can't end while a thread reads that.
        for line in open(0, closefd=False):
            lines.put(line)
        lines.put(None)
        signal.alarm(FAREWELL)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, None)


def serve(requests, replies, libraries, prepare):
    """`prepare` takes a case and returns the contestants by name, what to say of the case, and how to close it."""
    say(replies, dict(libraries=libraries))
    contestants, close = {}, None
    for line in requests:
        request = json.loads(line)
        try:
            if "time" in request:
                say(replies, dict(us=contestants[request["time"]].time(request["replays"])))
                continue
            if close:
                close()
            contestants, close, said = {}, None, {}
            if "prepare" in request:
                contestants, said, close = prepare(request["prepare"])
                said |= dict(contestants={name: contestant.about() for name, contestant in contestants.items()})
            say(replies, said)
        except Exception as failure:
            if not isinstance(failure, Unsupported):
                traceback.print_exc()
            say(replies, dict(failure=str(failure) or type(failure).__name__))


def say(replies, reply):
    print(json.dumps(reply), file=replies, flush=True)
