"""Chromium without a window, led through its DevTools protocol: messages end in NUL, on descriptors 3 and 4."""

import collections
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A machine that builds beside this is slow.
PATIENCE = 120


def find():
    """A Chromium's path; None where there is none."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A running Chromium with one page."""

    def __init__(self, program):
        self.home = tempfile.TemporaryDirectory(prefix="report-browser-")
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()

        def pipes():
            # Copies above 4 first: either pipe may have the other's number.
            reads, writes = os.dup(to_browser), os.dup(from_browser)
            while min(reads, writes) < 5:
                reads, writes = os.dup(reads), os.dup(writes)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        arguments = [
            program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.home.name}",
            # Root may not have the sandbox; the page is our own.
            "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "about:blank",
        ]
        self.process = subprocess.Popen(
            arguments, preexec_fn=pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.events, self.session = 0, b"", collections.deque(), None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        self.home.cleanup()

    def call(self, method, **parameters):
        """Its result; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def message(self):
        """The next message, whatever it is."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            more = os.read(self.read, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("the browser has ended" if ready else "the browser does not answer")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def wait_for(self, method):
        """Waits for an event; it stays among the events."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.message())

    def open(self, file):
        """Loads a file, and returns the events of it."""
        self.events.clear()
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        return list(self.events)

    def evaluate(self, script):
        """The value of an expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def show(self, width, height, theme, media="screen"):
        """A screen of that size and theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": theme}])
