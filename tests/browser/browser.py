"""Headless Chromium, told what to do through its DevTools protocol."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """One page of a browser of its own. `events` holds what the browser reported and nobody has read."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="norma-browser-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def at_3_and_4():  # where the browser looks for its pipes
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder}", "--no-first-run", "--disable-background-networking", "about:blank"],
            preexec_fn=at_3_and_4, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.rest = b""
        self.events = []
        self.number = 0
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, deadline):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise ConnectionError("the browser has ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        deadline = time.monotonic() + 120
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", "a script failed"))
        return result["result"].get("value")

    def open(self, file, width, height=800, phone=False, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)
        self.media(dark)
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.evaluate("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def media(self, dark, kind="screen"):
        self.call("Emulation.setEmulatedMedia", media=kind,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, key, code, shift=False):
        text = {"Enter": "\r"}.get(key)
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      modifiers=8 if shift else 0, **extra)

    def picture(self, file, height=None):
        """The page, or what is above `height` pixels of it."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        # Chromium has no pictures beyond 16384 pixels.
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height or 8000), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))

    def print_to(self, file):
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))
