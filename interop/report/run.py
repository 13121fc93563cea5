#!/usr/bin/env python3
"""Chromium shows the report of the bench: on phones and screens, light and dark, and on paper.

    interop/report/run.py [--out FOLDER] [PAGE.html...]

Without pages it makes one by `convoy-bench`'s example `report-sample`, which has all that is hard to draw. Each is looked
at in widths of 360, 768 and 1,280 pixels and in both themes, with tables closed and open. Nothing may be cut, overlap, be
faint, make a request or say a word on the console. FOLDER (default: report-screens in the target folder) gets pictures
and a PDF of each. CHROMIUM names another browser of its kind. Ends with 77 where there is none.
"""

import argparse
import base64
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True

import devtools  # noqa: E402
import harness  # noqa: E402

WIDTHS = {360: 740, 768: 1024, 1280: 900}
# A4 in pixels, less the margins of the style sheet.
PAPER_WIDTH = 688
THEMES = ("light", "dark")
LOOK = pathlib.Path(__file__).with_name("look.js")


def sample(folder):
    """The page of the example."""
    command = ["cargo", "run", "--quiet", "--locked", "--package", "convoy-bench", "--example", "report-sample"]
    page = folder / "report-sample.html"
    page.write_bytes(subprocess.run(command, cwd=harness.ROOT, check=True, stdout=subprocess.PIPE).stdout)
    return page


def told(events):
    """What events say that no page of this kind should do."""
    for event in events:
        method, what = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            yield f"console: {[one.get('value') for one in what['args']]}"
        elif method == "Runtime.exceptionThrown":
            yield f"exception: {what['exceptionDetails'].get('text')}"
        elif method == "Log.entryAdded":
            yield f"log: {what['entry'].get('text')}"


def requests(events, page):
    """What was asked for beside the page itself."""
    for event in events:
        if event.get("method") == "Network.requestWillBeSent":
            url = event["params"]["request"]["url"]
            if url != page.resolve().as_uri() and not url.startswith("data:"):
                yield f"request: {url}"


def picture(browser, file):
    """The whole page from above to below."""
    size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    data = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    file.write_bytes(base64.b64decode(data))


def look_at(browser, page, folder, report):
    """All cases of one page."""
    look = LOOK.read_text()
    opened = "document.querySelectorAll('details').forEach((one) => { one.open = %s }); document.readyState"
    for width, height in WIDTHS.items():
        for theme in THEMES:
            name = f"{page.stem}-{width}-{theme}"
            browser.show(width, height, theme)
            events = browser.open(page)
            problems = browser.evaluate(look)
            picture(browser, folder / f"{name}.png")
            browser.evaluate(opened % "true")
            problems += [f"tables open: {one}" for one in browser.evaluate(look) if one not in problems]
            events += list(browser.events)
            report.check(f"{name}: looks as it should", problems)
            report.check(f"{name}: is quiet", [*told(events), *requests(events, page)])
    browser.show(PAPER_WIDTH, 1000, "dark", media="print")
    browser.open(page)
    report.check(f"{page.stem}: paper looks as it should", browser.evaluate(look))
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    pdf = base64.b64decode(browser.call("Page.printToPDF", printBackground=False)["data"])
    (folder / f"{page.stem}.pdf").write_bytes(pdf)
    report.check(f"{page.stem}: becomes a PDF", [] if pdf[:5] == b"%PDF-" and len(pdf) > 10_000 else ["no PDF"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=harness.target_dir() / "report-screens")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    wish = parser.parse_args()
    program = devtools.find()
    if program is None:
        harness.cannot_run("no Chromium is installed (as root, interop/install-deps.sh --long installs it)")
    wish.out.mkdir(parents=True, exist_ok=True)
    report = harness.Report()
    with devtools.Browser(program) as browser:
        for page in wish.pages or [sample(wish.out)]:
            look_at(browser, page, wish.out, report)
    print(f"pictures are in {wish.out}")
    report.end()


if __name__ == "__main__":
    main()
