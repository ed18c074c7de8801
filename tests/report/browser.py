"""A headless Chromium, driven through its debugging port: open, click, type, look.

Every request and every message of the console is kept, so that tests can see that there was none
that should not be.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip
WAIT = 60.0  # seconds; the machine may be busy


def chromium() -> str:
    """The browser, or a skipped test."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium here (apt-get install chromium)")
    return found


class Browser:
    """One page of a browser with an empty profile."""

    def __init__(self, downloads: Path) -> None:
        self.profile = tempfile.mkdtemp(prefix="nugget-chromium-")
        self.downloads = downloads
        self.requests: list[str] = []
        self.messages: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._count = 0
        command = [chromium(), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        port = self._port()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=WAIT) as answer:
            target = next(one for one in json.load(answer) if one["type"] == "page")
        address = target["webSocketDebuggerUrl"]
        self._socket: WebSocketClientConnection = self._loop.run_until_complete(
            asyncio.wait_for(_connected(address), WAIT)
        )
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))

    def _port(self) -> int:
        file = Path(self.profile) / "DevToolsActivePort"
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            if file.exists() and (lines := file.read_text().split()):
                return int(lines[0])
            if self._process.poll() is not None:
                pytest.skip("chromium does not start here")
            time.sleep(0.05)
        raise TimeoutError("chromium did not open its debugging port")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the debugging protocol; events on the way are kept."""
        self._count += 1
        number = self._count
        message = json.dumps({"id": number, "method": method, "params": params})
        self._loop.run_until_complete(self._write(message))
        while True:
            found = self._receive()
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return dict(found["result"])

    def _receive(self) -> dict[str, Any]:
        reading = asyncio.wait_for(self._next(), WAIT)
        text = self._loop.run_until_complete(reading)
        if text is None:
            raise RuntimeError("chromium has gone")
        found: dict[str, Any] = json.loads(text)
        params = found.get("params", {})
        if found.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif found.get("method") == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(params["exceptionDetails"])[:600])
        elif found.get("method") == "Log.entryAdded":
            self.messages.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif found.get("method") == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(params["args"])[:600])
        return found

    async def _write(self, message: str) -> None:
        await self._socket.write_message(message)

    async def _next(self) -> Any:
        return await self._socket.read_message()

    def open(
        self, address: str, width: int = 1280, height: int = 900, dark: bool = False,
        scale: float = 1.0, ready: bool = True,
    ) -> None:  # fmt: skip
        """Go to an address and wait until the page is drawn."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=phone,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.send("Page.navigate", url=address)
        if ready:
            self.wait("document.documentElement?.dataset.ready === 'yes'")
            self.frames()

    def js(self, expression: str) -> Any:
        """The value of an expression; promises are waited for."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:800])
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = WAIT) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.js(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.05)

    def frames(self, count: int = 3) -> None:
        """Let the page draw."""
        one = "new Promise((done) => requestAnimationFrame(() => done(1)))"
        for _ in range(count):
            self.js(one)

    def mouse(self, kind: str, x: float, y: float, buttons: int = 0) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self.send(
            "Input.dispatchMouseEvent",
            type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1,
        )  # fmt: skip

    def click(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)
        self.frames()

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        for k in range(1, 6):
            self.mouse("mouseMoved", x + (to_x - x) * k / 5, y + (to_y - y) * k / 5, 1)
        self.mouse("mouseReleased", to_x, to_y)
        self.frames()

    def key(self, name: str, code: int = 0, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **more
            )
        self.frames()

    def screenshot(self, path: Path, whole: bool = False) -> None:
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._loop.close()
        shutil.rmtree(self.profile, ignore_errors=True)


async def _connected(address: str) -> WebSocketClientConnection:
    return await websocket_connect(address, max_message_size=100_000_000)
