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
#: Text with a contrast below 4.5 to 1 on what lies under it: colours of boxes, and in charts of the marks below a word.
LOW_CONTRAST = """() => {
    const point = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const rgba = (colour) => {
        point.clearRect(0, 0, 1, 1);
        point.fillStyle = colour;
        point.fillRect(0, 0, 1, 1);
        const data = point.getImageData(0, 0, 1, 1).data;
        return [data[0], data[1], data[2], data[3] / 255];
    };
    const over = (top, under) => [0, 1, 2].map((n) => top[n] * top[3] + under[n] * (1 - top[3]));
    const linear = (value) => value / 255 <= 0.04045 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const alpha = (style) => Number(style.opacity) * Number(style.fillOpacity || 1);
    const faded = (box) => box ? alpha(getComputedStyle(box)) * faded(box.parentElement) : 1;
    const ground = (box) => {
        const layers = [];
        for (; box; box = box.parentElement) layers.push(rgba(getComputedStyle(box).backgroundColor));
        layers.push(rgba(getComputedStyle(document.querySelector('[data-testid="stApp"]')).backgroundColor));
        const solid = layers.findIndex((layer) => layer[3] === 1);
        return layers.slice(0, solid).reverse().reduce((under, layer) => over(layer, under), layers[solid].slice(0, 3));
    };
    const low = new Set();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const words = walk.currentNode.textContent.trim();
        const box = walk.currentNode.parentElement;
        const place = box.getBoundingClientRect();
        if (!words || !place.width) continue;
        if (box.closest('script, style, .katex-mathml, [data-testid="stIconMaterial"]')) continue;
        if (box.closest('[data-testid="stSliderThumbValue"], [role="slider"], :disabled')) continue;
        const style = getComputedStyle(box), opacity = faded(box), svg = box.closest('svg');
        if (style.visibility === 'hidden' || opacity < 0.05) continue;
        let under = ground(svg ? svg.parentElement : box);
        const [x, y] = [place.left + place.width / 2, place.top + place.height / 2];
        for (const mark of svg ? svg.querySelectorAll('path, rect') : []) {
            const at = mark.getBoundingClientRect(), drawn = getComputedStyle(mark);
            const before = mark.compareDocumentPosition(box) & Node.DOCUMENT_POSITION_FOLLOWING;
            if (!before || drawn.fill === 'none' || mark.closest('clipPath')) continue;
            if (at.left > x || at.right < x || at.top > y || at.bottom < y) continue;
            const fill = rgba(drawn.fill);
            under = over([...fill.slice(0, 3), fill[3] * alpha(drawn)], under);
        }
        const ink = rgba(svg ? style.fill : style.color);
        const [a, b] = [light(over([...ink.slice(0, 3), ink[3] * opacity], under)), light(under)];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) low.add(contrast.toFixed(2) + ': ' + words);
    }
    return [...low];
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


def low_contrast(page: Any) -> list[str]:
    """Text of the page that is hard to read in the theme that it has."""
    found: list[str] = page.evaluate(LOW_CONTRAST)
    return found
