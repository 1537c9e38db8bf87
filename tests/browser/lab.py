"""What tests wait for on a page of the lab."""

from __future__ import annotations

from typing import Any

WAIT_MS = 60_000
CHART = '[data-testid="stVegaLiteChart"]'
NUMBER = "() => document.querySelector('.wi-value')?.firstChild?.textContent ?? ''"
#: The drawing of the first chart.
PICTURE = f"""() => {{
    const drawn = document.querySelector('{CHART} svg.marks, {CHART} canvas');
    return drawn ? (drawn.tagName === 'CANVAS' ? drawn.toDataURL() : drawn.outerHTML) : '';
}}"""


def drawn(page: Any) -> None:
    """Wait until there is a chart."""
    page.wait_for_selector(f"{CHART} svg.marks, {CHART} canvas")


def wait_other(page: Any, script: str, before: str) -> None:
    page.wait_for_function(f"(before) => {{ const now = ({script})(); return now && now !== before; }}", arg=before)


def wait_number(page: Any, text: str) -> None:
    page.wait_for_function(f"(text) => ({NUMBER})() === text", arg=text)


def settled(page: Any) -> None:
    """Wait until the server has drawn the page to its end."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', state="attached")


#: Text that a reader sees only in part: words of a chart that leave its drawing or end in an ellipsis, text that is
#: wider than the box that hides the rest of it, and a page that is wider than the window.
CUT = """() => {
    const cut = [];
    for (const svg of document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')) {
        const whole = svg.getBoundingClientRect();
        for (const text of svg.querySelectorAll('text')) {
            const box = text.getBoundingClientRect();
            if (!box.width || getComputedStyle(text).opacity === '0' || text.getAttribute('opacity') === '0') continue;
            if (box.left < whole.left - 2 || box.right > whole.right + 2 || box.bottom > whole.bottom + 4) {
                cut.push('leaves its chart: ' + text.textContent);
            }
            if (text.textContent.endsWith('\u2026')) cut.push('ellipsis: ' + text.textContent);
        }
    }
    const boxes = '.wi-row *, .wi-say, .wi-quiet, .wi-h, .wi-h1, .wi-title, .wi-claim, .wi-legend, .wi-end *, '
        + 'td, th, pre, .katex .base, [data-testid="stButton"] button, [data-testid="stPageLink"] a';
    for (const box of document.querySelectorAll(boxes)) {
        const style = getComputedStyle(box);
        const hides = style.overflowX !== 'visible' && box.scrollWidth > box.clientWidth + 1;
        if (hides) cut.push('hidden: ' + box.innerText);
        const place = box.getBoundingClientRect();
        if (place.width && place.right > innerWidth + 1 && !box.closest('[data-testid="stTable"]')) {
            cut.push('leaves the window: ' + box.innerText);
        }
    }
    if (document.documentElement.scrollWidth > innerWidth + 1) cut.push('the page is wider than the window');
    return cut;
}"""
WIDTHS = (390, 1280, 1920)
#: How long charts take to follow the width of the window, ms.
FOLLOW_MS = 300


def cut_text(page: Any) -> list[str]:
    """What is cut on the page at each of WIDTHS; the window ends as wide as it was."""
    found = []
    before = page.viewport_size
    for width in sorted(WIDTHS, key=lambda width: width != before["width"]):
        if width != page.viewport_size["width"]:
            page.set_viewport_size({"width": width, "height": 1000})
            page.wait_for_timeout(FOLLOW_MS)
        found += [f"{width}: {text}" for text in page.evaluate(CUT)]
    page.set_viewport_size(before)
    return found
