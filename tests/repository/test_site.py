"""The site in a real browser: all that is pressed answers, at three widths."""

import functools
import http.server
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
BROWSER = next(
  filter(
    None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
  ),
  None,
)
WIDTHS = {"phone": 390, "tablet": 800, "laptop": 1280}
NEEDED = (
  "playwright", "sphinx", "sphinx_book_theme", "sphinx_copybutton", "myst_nb",
)  # fmt: skip
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} are not installed"),
  pytest.mark.skipif(not BROWSER, reason="there is no Chromium or Chrome"),
]

# What is wider than the page, but for what scrolls by itself.
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (e) => e !== document.body &&
    (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
  return [...document.querySelectorAll(".bd-article *")]
    .filter((e) => e.getBoundingClientRect().right > width + 1)
    .filter((e) => !e.closest(".headerlink") && !scrolls(e.parentElement))
    .map((e) => `${e.tagName}: ${e.textContent.slice(0, 60)}`);
}"""


class _Silent(http.server.SimpleHTTPRequestHandler):
  def log_message(self, *_):
    pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
  """The folder of the site, and the address that serves it."""
  folder = tmp_path_factory.mktemp("site")
  command = (sys.executable, "-m", "sphinx", "-q", "-b", "html")
  subprocess.run([*command, str(DOCS), str(folder)], check=True)
  handler = functools.partial(_Silent, directory=folder)
  with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://localhost:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
  from playwright import sync_api

  with sync_api.sync_playwright() as playwright:
    yield playwright.chromium.launch(
      executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
    )


@pytest.fixture(params=WIDTHS.values(), ids=WIDTHS.keys())
def page(request, browser):
  """An empty page; what goes wrong in its scripts fails the test."""
  size = {"width": request.param, "height": 844}
  with browser.new_page(viewport=size) as page:
    page.set_default_timeout(10_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    yield page
    assert not errors


def test_the_menu_leads_to_a_page(page, site):
  page.goto(f"{site[1]}/index.html")
  link = page.get_by_role("link", name="Concepts", exact=True).first
  toggle = page.locator(".primary-toggle")
  if page.viewport_size["width"] < 992:
    assert not link.is_visible()
    toggle.click()
  else:  # It is open, can be closed, and opened again.
    toggle.click()
    link.wait_for(state="hidden")
    toggle.click()
  link.click()
  page.wait_for_url("**/concepts.html")


def test_the_navigation_shows_the_page(page, site):
  page.goto(f"{site[1]}/index.html")
  page.evaluate("sessionStorage.setItem('sidebar-scroll-top', 0)")
  page.goto(f"{site[1]}/papers/domo.html")
  is_drawer = page.viewport_size["width"] < 992
  if is_drawer:
    page.locator(".primary-toggle").click()
  bar = page.locator(".bd-sidebar-primary").bounding_box()
  entry = page.locator(".bd-docs-nav a.current").last.bounding_box()
  assert bar["y"] <= entry["y"] < bar["y"] + bar["height"]
  if is_drawer:
    page.locator(".close-drawer").click()
    assert not page.locator("dialog[open]").count()


def test_the_contents_lead_to_a_heading(page, site):
  page.goto(f"{site[1]}/concepts.html")
  contents = page.locator(".page-toc a[href^='#']:visible")
  if page.viewport_size["width"] < 1200:
    assert contents.count() == 0
    page.locator(".secondary-toggle").click()
  link = contents.last
  target = link.get_attribute("href")
  link.click()
  page.wait_for_url(f"**/concepts.html{target}")
  assert not page.locator("dialog[open]").count()


def test_pages_need_no_network(site):
  """Scripts, styles and pictures are files of the site."""
  loads = r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(https?://[^"]+)"'
  urls = set()
  for file in site[0].rglob("*.html"):
    urls |= set(re.findall(loads, file.read_text()))
  assert not urls


def test_a_phone_reads_tables(browser, site):
  """Rows of sentences are blocks; numbers scroll beside their names."""
  with browser.new_page(
    viewport={"width": WIDTHS["phone"], "height": 844}
  ) as page:
    page.goto(f"{site[1]}/results.html")
    cell = page.locator("table.stacked td:has(.column)").first
    assert cell.locator(".column").inner_text().strip() == "what it is:"
    assert cell.evaluate("e => getComputedStyle(e).display") == "block"
    page.goto(f"{site[1]}/comparison.html")
    name = page.locator("table.scrolled tbody td:first-child").first
    box = page.locator(".pst-scrollable-table-container").first
    before = name.bounding_box()["x"]
    assert box.evaluate("e => (e.scrollLeft = 200, e.scrollLeft)") > 0
    assert abs(name.bounding_box()["x"] - before) < 1


def test_no_page_is_wider_than_the_window(page, site):
  folder, address = site
  wide = {}
  for file in sorted(folder.rglob("*.html")):
    name = file.relative_to(folder).as_posix()
    if name.startswith("_static"):
      continue
    page.goto(f"{address}/{name}", wait_until="domcontentloaded")
    page.evaluate("document.fonts.ready")
    widths = "[document.documentElement.scrollWidth, innerWidth]"
    width, limit = page.evaluate(widths)
    elements = page.evaluate(TOO_WIDE)
    if elements or width > limit:
      wide[name] = (width, elements[:3])
  assert not wide
