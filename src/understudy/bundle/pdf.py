"""Prints a self-contained web page as PDF with an installed Chromium or Chrome. Nothing is loaded from a network."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from understudy.errors import BundleError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
MAC_BROWSERS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
SECONDS = 120
"""How long printing one page may take."""
_DATE = re.compile(rb"\(D:\d{14}(?=[+\-Z])")
_FIXED_DATE = b"(D:19800101000000"


def find_browser() -> str:
    """Where an installed Chromium is."""
    found = next(filter(None, map(shutil.which, (*BROWSERS, *MAC_BROWSERS))), None)
    if found is None:
        raise BundleError(
            "--pdf needs an installed Chromium or Chrome, and there is none on the PATH. Install one, or leave out "
            "--pdf and print the HTML pages with any browser."
        )
    return found


def print_pdf(page: bytes) -> bytes:
    """The page as PDF. Its dates are fixed, so that the same page and browser give the same bytes."""
    browser = find_browser()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, printed = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_bytes(page)
        _run([browser, *_options(folder), f"--print-to-pdf={printed}", source.as_uri()], folder)
        try:
            content = printed.read_bytes()
        except OSError:
            raise BundleError(f"{browser} printed nothing. Leave out --pdf, or install another Chromium.") from None
    if not content.startswith(b"%PDF-") or b"%%EOF" not in content[-64:]:
        raise BundleError(f"{browser} printed no complete PDF. Leave out --pdf, or install another Chromium.")
    return _DATE.sub(_FIXED_DATE, content)  # as long as before: the offsets in the file stay right


def _options(folder: str) -> list[str]:
    """No window, no profile of the user, and no network."""
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses to start otherwise
    return [
        "--headless",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--proxy-server=127.0.0.1:9",
        "--no-pdf-header-footer",
        *as_root,
    ]


def _run(command: list[str], folder: str) -> None:
    """Runs the browser; it and its children are ended if it hangs."""
    environment = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder, "TMPDIR": folder}
    nowhere = subprocess.DEVNULL
    try:
        browser = subprocess.Popen(
            command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment, start_new_session=True
        )
    except OSError as error:
        raise BundleError(f"{command[0]} cannot be started: {error.strerror}. Leave out --pdf.") from None
    try:
        browser.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise BundleError(
            f"{command[0]} did not print within {SECONDS} seconds. Leave out --pdf, or try again."
        ) from None
    finally:
        if browser.poll() is None:
            if hasattr(os, "killpg"):
                os.killpg(browser.pid, signal.SIGKILL)
            browser.kill()
            browser.wait()
