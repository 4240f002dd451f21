"""Commands and answers, a JSON object a line: the side of the Python clients, a thread each."""

import json
import sys
import threading
import traceback

_lock = threading.Lock()


def say(**content):
    """Write one line to the parent."""
    with _lock:
        sys.stdout.write(json.dumps(content) + "\n")
        sys.stdout.flush()


def _answer(commands, asked):
    number = asked.pop("number")
    try:
        answer = commands[asked.pop("do")](number, **asked)
        say(number=number, done=True, answer=answer)
    except BaseException as error:
        traceback.print_exc()
        say(number=number, done=True, error=f"{type(error).__name__}: {error}")


def serve(commands):
    """Serve commands until stdin ends; each is called with its number and content, and answers."""
    say(news="ready")
    for line in sys.stdin:
        thread = threading.Thread(target=_answer, args=(commands, json.loads(line)), daemon=True)
        thread.start()


class Consumers:
    """The consumers that run, by name."""

    def __init__(self):
        self._running = {}

    def run(self, name, number, consumer):
        """Say that a consumer runs, and wait until it is stopped by its name."""
        stopped = threading.Event()
        self._running[name] = consumer, stopped
        say(number=number, started=True)
        stopped.wait()
        return "stopped"

    def stop(self, number, name, **_):
        consumer, stopped = self._running.pop(name)
        consumer.shutdown()
        stopped.set()
        return "stopped"
