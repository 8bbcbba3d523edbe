"""The picture in docs/explorer.md: plays the scene on the default model and photographs the page.

    python tests/ui/make_explorer_png.py [docs/explorer.png]

Needs Chromium, and the default model (``make setup``).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(target: Path) -> None:
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from chromium import browser
    from live import live_server
    from scene import Agents

    with live_server("smollm2", num_pages=200, host_pages=120, max_running=3) as server, browser() as page:
        page.size(1440, 1660)
        page.media(prefers_reduced_motion="reduce")  # no box is caught half-way
        page.open(f"{server.url}/ui?theme=dark")
        agents = Agents(server.url)
        agents.play(reply_tokens=12)
        agents.keep_busy()
        page.wait_for("document.querySelectorAll('#queues li').length >= 4", timeout_s=60)
        page.wait_for("document.querySelector('#requests .row .code.diverged')")
        page.evaluate(
            "[...document.querySelectorAll('#requests .row')].find((row) => row.querySelector('.diverged')).click()"
        )
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        time.sleep(1.5)
        page.size(
            1440, int(page.evaluate("document.querySelector('main').getBoundingClientRect().bottom + scrollY - 16"))
        )
        time.sleep(0.5)
        page.picture(target)
        for other, width, height, theme in (("light", 1440, 1660, "light"), ("phone", 390, 2400, "dark")):
            page.size(width, height)
            page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
            time.sleep(1.2)
            if len(sys.argv) > 2:
                page.picture(target.with_stem(f"{target.stem}-{other}"))
        print(f"{target}: {target.stat().st_size / 1000:.0f} kB", *page.log, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/explorer.png"))
