"""A report in a real Chromium."""

import json
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1200,900",
)


class Page:
    """A report in the browser."""

    def __init__(self, chrome: webdriver.Chrome, path: Path) -> None:
        self.chrome = chrome
        self.set_media(width=1200, dark=False)
        self._drain()
        chrome.get(path.as_uri())
        assert self.run("return document.documentElement.dataset.ready") == "true"
        self.settle()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.chrome.execute_script(script, *arguments)

    def settle(self) -> None:
        """Wait until whatever was asked for is drawn."""
        self.chrome.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20)))"
        )

    def set_media(self, *, width: int, dark: bool) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def all(self, selector: str) -> list[WebElement]:
        return self.chrome.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        (found,) = self.all(selector)
        return found

    def pixels(self, selector: str, colour: tuple[int, int, int]) -> int:
        """How many pixels of a canvas have nearly this colour; lines have soft edges."""
        return sum(self.pixels_by_row(selector, colour))

    def pixels_by_row(self, selector: str, colour: tuple[int, int, int]) -> list[int]:
        """The same for each row of them."""
        script = """
            const [selector, [red, green, blue]] = arguments;
            const drawn = document.querySelector(selector);
            const copy = new OffscreenCanvas(drawn.width, drawn.height);
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(drawn, 0, 0);
            const { data, width, height } = context.getImageData(0, 0, copy.width, copy.height);
            const counts = new Array(height).fill(0);
            const near = (at, value) => Math.abs(data[at] - value) <= 30;
            for (let at = 0; at < data.length; at += 4) {
              if (data[at + 3] > 200 && near(at, red) && near(at + 1, green) && near(at + 2, blue))
                counts[Math.floor(at / 4 / width)]++;
            }
            return counts;"""
        return list(self.run(script, selector, colour))

    def toggle(self, policy: int) -> None:
        self.one(f"[data-switch='{policy}']").click()
        self.settle()

    def limits(self, name: str) -> tuple[float, float]:
        data = self.run("return {...document.querySelector(arguments[0]).dataset}", chart(name))
        return float(data["min"]), float(data["max"])

    def column(self, place: int) -> list[str]:
        return [cell.text for cell in self.all(f".client-table tbody tr > :nth-child({place})")]

    def told(self, canvas: WebElement, step: int) -> list[str]:
        """What the box says while the pointer goes over a canvas, every so many pixels."""
        script = """
            const [canvas, step] = arguments, box = canvas.parentElement.querySelector(".tip");
            const { left, top, width, height } = canvas.getBoundingClientRect();
            const move = (where) => canvas.dispatchEvent(new PointerEvent("pointermove", where));
            const told = [];
            for (let x = 0; x < width; x += step) {
              for (let y = 0; y < height; y += step) {
                move({ clientX: left + x, clientY: top + y });
                const text = box.hidden ? undefined : box.textContent;
                if (text !== told.at(-1)) told.push(text);
              }
            }
            canvas.dispatchEvent(new PointerEvent("pointerleave"));
            return told.filter((text) => text);"""
        return list(self.run(script, canvas, step))

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """Addresses that this page, not the browser for itself, asked for."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
            and message["params"]["documentURL"] == self.chrome.current_url
        ]

    def _log(self, kind: str) -> list[dict[str, str]]:
        return list(self.chrome.execute("getLog", {"type": kind})["value"])

    def _drain(self) -> None:
        self.errors()
        self.requests()


def chart(name: str) -> str:
    """Its selector."""
    return f"[data-chart='{name}']"
