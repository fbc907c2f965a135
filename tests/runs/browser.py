"""A headless Chromium, driven over WebDriver with nothing but the standard library."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key under which WebDriver names an element
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--window-size=1200,1400")


class Browser:
    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = Request(self.base + path, body, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def begin(self, program: str, profile: Path) -> None:
        options = {"binary": program, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        found = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{found['sessionId']}"

    def open(self, page: Path, state: str = "") -> None:
        self.ask("POST", "/url", {"url": "about:blank"})  # another "#" alone would not load the page anew
        self.ask("POST", "/url", {"url": page.resolve().as_uri() + state})

    def run(self, script: str) -> Any:
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def element(self, selector: str) -> dict[str, str]:
        found: dict[str, str] = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        return found

    def click(self, selector: str) -> None:
        self.ask("POST", f"/element/{self.element(selector)[ELEMENT]}/click", {})

    def hover(self, selector: str) -> None:
        """The pointer itself moves there, so only what it meets on top is hovered."""
        move = {"type": "pointerMove", "duration": 0, "origin": self.element(selector), "x": 0, "y": 0}
        pointer = {"type": "pointer", "id": "mouse", "actions": [move]}
        self.ask("POST", "/actions", {"actions": [pointer]})

    def complaints(self) -> list[str]:
        """What the page wrote to its console, and every request that failed."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]


def programs() -> tuple[str, str] | None:
    chromium, driver = (next(filter(None, map(shutil.which, names)), None) for names in NAMES)
    return (chromium, driver) if chromium and driver else None


NAMES = (("chromium", "chromium-browser", "google-chrome"), ("chromedriver", "chromium.chromedriver"))


@contextmanager
def browser(chromium: str, driver: str, profile: Path) -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = Browser(port)
    try:
        wait(found)
        found.begin(chromium, profile)
        yield found
        found.ask("DELETE", "")
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait(found: Browser) -> None:
    for _ in range(100):
        try:
            found.ask("GET", "/status")
            return
        except (URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError("chromedriver did not answer for ten seconds")
