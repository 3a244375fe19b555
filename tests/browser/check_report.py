#!/usr/bin/env python3
"""check_report.py FOLDER: opens every FOLDER/*/report.html and checks what only a browser knows. Prints each fault; exit
1 if there is one. Pictures go into FOLDER."""
import pathlib
import sys

from browser import Browser
from selenium.webdriver.common.keys import Keys

SMALLEST_TEXT = 11  # CSS pixels
LEAST_CONTRAST = 4.5

TEXTS = """
(() => {
  const channel = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const background = element => {
    for (; element; element = element.parentElement) {
      const c = parse(getComputedStyle(element).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  const faults = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('svg, style') || !element.checkVisibility()) continue;
    const box = element.getBoundingClientRect();
    if (box.width <= 1 || box.height <= 1) continue;  // for readers of the screen alone
    ++texts;
    const style = getComputedStyle(element);
    const text = walker.currentNode.data.trim().slice(0, 40);
    if (parseFloat(style.fontSize) < %SMALLEST%) faults.push(`text of ${style.fontSize}: ${text}`);
    const a = light(parse(style.color)), b = light(background(element));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < %CONTRAST%) faults.push(`contrast of ${contrast.toFixed(2)}: ${text}`);
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const drawn = range.getBoundingClientRect();
    // A wide table moves inside its frame.
    if (!element.closest('.skip, .wide[tabindex], pre[tabindex]') && (drawn.right > innerWidth + 1 || drawn.left < -1))
      faults.push(`text beyond the page's edge: ${text}`);
  }
  if (texts < 50) faults.push(`only ${texts} texts are seen`);
  return faults;
})()
""".replace("%SMALLEST%", str(SMALLEST_TEXT)).replace("%CONTRAST%", str(LEAST_CONTRAST))

# Names that stand beside points, and values along an axis, must not lie over each other.
OVERLAPS = """
[...document.querySelectorAll('.names, .x-axis')].flatMap(group => {
  const boxes = [...group.children].filter(e => e.checkVisibility()).map(e => [e, e.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
    .filter(([b, q]) => p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
    .map(([b]) => `'${a.textContent}' lies over '${b.textContent}'`));
})
"""

FOCUSABLE = "[...document.querySelectorAll('a[href], summary, input, [tabindex]')].filter(e => e.checkVisibility())"


class Report:
    def __init__(self, browser, file, pictures):
        self.browser = browser
        self.file = file
        self.name = file.parent.name
        self.pictures = pictures
        self.faults = []

    def fault(self, where, text):
        self.faults.append(f"{self.name}, {where}: {text}")

    def check_view(self, view, width, phone, dark):
        browser = self.browser
        browser.open(self.file, width, phone=phone, dark=dark)
        where = f"{view}, {'dark' if dark else 'light'}"
        wide = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wide > 0:
            self.fault(where, f"the page is {wide} pixels wider than the window")
        for text in browser.evaluate(TEXTS)[:10] + browser.evaluate(OVERLAPS)[:10] + browser.complaints():
            self.fault(where, text)
        browser.picture(self.pictures / f"{self.name}-{view}-{'dark' if dark else 'light'}.png")

    def check_tree(self, view, width, phone):
        """What a reader of the screen is told."""
        self.browser.open(self.file, width, phone=phone)
        tree = self.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})
        nodes = [n for n in tree["nodes"] if not n.get("ignored")]
        roles = {}
        for node in nodes:
            roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
        for role in ("banner", "main", "navigation", "contentinfo"):
            if len(roles.get(role, [])) != 1:
                self.fault(view, f"landmark {role}: expected one, got {len(roles.get(role, []))}")
        for role in ("image", "link", "heading", "DisclosureTriangle", "columnheader", "rowheader"):
            if any(not name.strip() for name in roles.get(role, [])):
                self.fault(view, f"{role}: one has no name")
        levels = [int(p["value"]["value"]) for n in nodes if n["role"]["value"] == "heading"
                  for p in n["properties"] if p["name"] == "level"]
        if levels[:1] != [1] or levels.count(1) != 1 or any(b > a + 1 for a, b in zip(levels, levels[1:])):
            self.fault(view, f"levels of headings: {levels}")
        return {role: len(names) for role, names in roles.items()}

    def check_keyboard(self):
        browser = self.browser
        browser.open(self.file, 1280)
        count = browser.evaluate(f"window.stops = {FOCUSABLE}, window.stops.length")
        for i in range(min(count, 60)):
            browser.press(Keys.TAB)
            at = browser.evaluate("window.stops.indexOf(document.activeElement)")
            if at != i:
                self.fault("keyboard", f"the Tab key goes to place {at}, not {i}")
                return
            seen = browser.evaluate("""(() => {
              const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
              return parseFloat(s.outlineWidth) >= 2 && s.outlineStyle !== 'none' && r.width > 1 && r.left >= 0 &&
                     r.bottom > 0 && r.top < innerHeight;
            })()""")
            if not seen:
                self.fault("keyboard", f"nobody sees that place {i} has the focus")
        browser.evaluate("document.querySelector('summary').focus()")
        browser.press(Keys.ENTER)
        if not browser.evaluate("document.activeElement.parentElement.open"):
            self.fault("keyboard", "Enter does not open what is folded")
        browser.evaluate("document.querySelector('nav a').focus()")
        browser.press(Keys.ENTER)
        link = browser.evaluate("document.querySelector('nav a').hash")
        if browser.evaluate("location.hash") != link or not browser.evaluate(f"!!document.querySelector('{link}')"):
            self.fault("keyboard", "a link of the list of sections leads nowhere")

    def check_print(self):
        browser = self.browser
        browser.open(self.file, 800, dark=True)
        browser.media(dark=True, kind="print")
        color = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        if color != "rgb(255, 255, 255)":
            self.fault("print", f"the paper is {color}")
        for text in browser.evaluate(TEXTS)[:10]:
            self.fault("print", text)
        browser.print_to(self.pictures / f"{self.name}.pdf")
        browser.media(dark=False)

    def check(self):
        for view, width, phone in (("desk", 1280, False), ("tablet", 768, False), ("phone", 360, True)):
            for dark in (False, True):
                self.check_view(view, width, phone, dark)
        desk = self.check_tree("desk", 1280, False)
        phone = self.check_tree("phone", 360, True)
        for role in ("row", "cell", "rowheader", "columnheader", "image"):  # cards are still a table
            if desk.get(role, 0) != phone.get(role, 0) or desk.get(role, 0) == 0:
                self.fault("phone", f"{role}: {phone.get(role, 0)} of {desk.get(role, 0)}")
        self.check_keyboard()
        self.check_print()
        elements = self.browser.evaluate("document.querySelectorAll('*').length")
        print(f"browser: {self.name}: {self.file.stat().st_size / 1e3:.0f} kB, {elements} elements, "
              f"{len(self.faults)} faults")


def main():
    output = pathlib.Path(sys.argv[1])
    files = sorted(output.glob("*/report.html"))
    if not files:
        sys.exit(f"browser: no reports in {output}")
    faults = []
    with Browser() as browser:
        for file in files:
            report = Report(browser, file, output)
            report.check()
            faults += report.faults
    for fault in faults:
        print(f"browser: {fault}")
    print(f"browser: {len(files)} reports, {len(faults)} faults; pictures in {output}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
