#!/usr/bin/env python3
"""check_lessons.py SITE OUTPUT: opens every page of the lessons' site as a desk, a tablet and a phone show it, in light
and dark, and checks what only a browser knows. Prints each fault; exit 1 if there is one. Pictures go into OUTPUT."""
import pathlib
import sys

from browser import Browser
from check_report import TEXTS

VIEWS = (("desk", 1280, False), ("tablet", 768, False), ("phone", 360, True))

# Pictures must be there, have a text for those who cannot see them, and keep their text as large as on a phone.
PICTURES = """
[...document.querySelectorAll('img')].flatMap(img => [
  ...(img.complete && img.naturalWidth > 0 ? [] : ['a picture is not shown']),
  ...(img.alt.trim().length >= 20 ? [] : [`a picture has no text: ${img.alt}`]),
  ...(img.getBoundingClientRect().width >= 300 ? [] : [`a picture is too small: ${img.alt}`])])
"""

# Formulas are MathML with boxes of their own, and nothing is left of TeX.
FORMULAS = """
(() => {
  const faults = [...document.querySelectorAll('math')].filter(m => m.getBoundingClientRect().width < 3)
    .map(() => 'a formula has no width');
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    if (!walker.currentNode.parentElement.closest('pre, code, math, style') && /[$\\\\]/.test(walker.currentNode.data))
      faults.push(`TeX is left: ${walker.currentNode.data.trim().slice(0, 60)}`);
  return faults;
})()
"""


def check_page(browser, file, output):
    faults = []
    for view, width, phone in VIEWS:
        for dark in (False, True):
            browser.open(file, width, phone=phone, dark=dark)
            found = [text for text in browser.evaluate(TEXTS) if not text.startswith("only ")]  # a page may be short
            found += browser.evaluate(PICTURES) + browser.evaluate(FORMULAS)
            wide = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wide > 0:
                found.append(f"the page is {wide} pixels wider than the window")
            found += [text for text in browser.complaints() if not text.startswith("asks for data:")]
            faults += [f"{file.name}, {view}, {'dark' if dark else 'light'}: {text}" for text in found[:10]]
            browser.picture(output / f"{file.stem}-{view}-{'dark' if dark else 'light'}.png")
    levels = browser.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    if levels[:1] != [1] or levels.count(1) != 1 or any(b > a + 1 for a, b in zip(levels, levels[1:])):
        faults.append(f"{file.name}: levels of headings: {levels}")
    for landmark in ("main", "nav"):
        if browser.evaluate(f"document.querySelectorAll('{landmark}').length") != 1:
            faults.append(f"{file.name}: expected one <{landmark}>")
    return faults


def check_search(browser, index):
    """The field of the first page finds sections by words and says so where there are none; a button copies a block."""
    browser.open(index, 1280)
    field = browser.find_element("css selector", "input[type=search]")
    field.send_keys("variance")
    links = browser.evaluate("[...document.querySelectorAll('#found a')].map(a => a.href)")
    field.send_keys(" zzz")
    faults = [] if browser.evaluate("document.getElementById('found').textContent") == "nothing found" else [
        "the search finds what is not there"]
    if not links:
        return [*faults, "the search finds nothing"]
    browser.get(links[0])
    if not browser.evaluate("document.getElementById(decodeURIComponent(location.hash.slice(1))) !== null"):
        faults.append(f"the search leads to {links[0]}, which is not there")
    allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": allowed})
    browser.find_element("css selector", ".block button").click()
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0], arguments[0])")
    if copied != browser.evaluate("document.querySelector('.block pre').innerText"):
        faults.append(f"a button copied {copied}")
    return faults


def main():
    site, output = map(pathlib.Path, sys.argv[1:3])
    files = sorted(site.glob("*.html"))
    if not files:
        sys.exit(f"browser: no pages in {site}")
    with Browser() as browser:
        faults = check_search(browser, site / "index.html")
        faults += [fault for file in files for fault in check_page(browser, file, output)]
    for fault in faults:
        print(f"browser: {fault}")
    print(f"browser: {len(files)} pages of lessons, {len(faults)} faults; pictures in {output}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
