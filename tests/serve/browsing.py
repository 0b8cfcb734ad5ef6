"""A headless browser that a test steers over a pipe, by the DevTools protocol."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE_S = 40.0
LEFT = "Inspected target navigated or closed"  # the answer to a question to a page that is left


class Tab:
    """A page in the browser; `complaints` are errors of its scripts and lines of its console."""

    def __init__(self, to: int, source: int) -> None:
        self._to = to
        self._source = source
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        answer = self._answer(method, **values)
        assert "error" not in answer, answer
        return answer["result"]

    def _answer(self, method: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                return answer

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            assert select.select([self._source], [], [], until - time.monotonic())[0], "no answer"
            self._rest += os.read(self._source, 1 << 20)
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(text.decode())
        return message

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page; None if the page is left meanwhile."""
        answer = self._answer("Runtime.evaluate", expression=expression, returnByValue=True)
        if answer.get("error", {}).get("message") == LEFT:
            return None
        assert "error" not in answer and "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def wait(self, expression: str) -> None:
        """Wait until an expression holds in the page."""
        until = time.monotonic() + PATIENCE_S
        while not self.ask(f"Boolean({expression})"):
            shown = self.ask("document.body?.innerText")
            assert time.monotonic() < until, f"{expression} never held on:\n{shown}"
            time.sleep(0.05)

    def wait_for_text(self, text: str) -> None:
        self.wait(f"document.body?.innerText.includes({json.dumps(text)})")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key)

    def size(self, width: int, height: int, scheme: str = "light") -> None:
        device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **device)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def picture(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Tab]:
    """A browser with one tab, whose profile lies in `folder`."""
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    command = f'exec "$0" "$@" 3<&{read_in} 4>&{write_out}'
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
    profile = f"--user-data-dir={folder / 'profile'}"
    process = subprocess.Popen(
        ["bash", "-c", command, str(BROWSER), *flags, profile],
        pass_fds=(read_in, write_out),
        stderr=subprocess.DEVNULL,
    )
    os.close(read_in)
    os.close(write_out)
    try:
        tab = Tab(write_in, read_out)
        tab.attach()
        yield tab
    finally:
        process.kill()
        process.wait()
        os.close(write_in)
        os.close(read_out)
