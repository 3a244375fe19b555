"""Headless Chromium by Selenium, with what only Chromium's own protocol can do: the width of a phone, dark colors, the
tree of a screen reader and pictures of whole pages."""
import base64
import json

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains


class Browser(webdriver.Chrome):
    file = None  # the address of the page

    def __init__(self):
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        super().__init__(options=options, service=Service("/usr/bin/chromedriver"))

    def evaluate(self, expression):
        return self.execute_script(f"return ({expression.strip()})")

    def open(self, file, width, phone=False, dark=False):
        self.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 800, "deviceScaleFactor": 2 if phone else 1, "mobile": phone})
        self.media(dark)
        self.complaints()
        self.file = file.resolve().as_uri()
        self.get(self.file)

    def media(self, dark, kind="screen"):
        self.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": kind, "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def complaints(self):
        """What the page has written to the console since it was opened, scripts that failed, and other files that it
        has asked for."""
        found = [f"console: {entry['message']}" for entry in self.get_log("browser")]
        for entry in self.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent" and event["params"]["request"]["url"] != self.file:
                found.append(f"asks for {event['params']['request']['url']}")
        return found

    def press(self, key):
        ActionChains(self).send_keys(key).perform()

    def picture(self, file):
        """The page, or its upper 8000 pixels: Chromium has no pictures beyond 16384 pixels."""
        size = self.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8000), "scale": 1}
        shot = self.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        file.write_bytes(base64.b64decode(shot["data"]))

    def print_to(self, file):
        file.write_bytes(base64.b64decode(self.print_page()))
