// Marks tables, pictures, formulas and outputs of notebooks that are wider than
// the page: they say that they scroll.
function mark() {
  for (const wide of document.querySelectorAll(
    "table.scrolled, .bd-article a.internal > img, .formula > *, .cell_output .output > *, .cell_output table, .highlight-text pre, .cell_output pre"
  )) {
    // A table of a notebook scrolls by itself, below its title; so does a table
    // that a command prints, in its box.
    const own = wide.matches(".cell_output table, pre");
    const box = wide.matches("pre, :not(.cell_output table)")
      ? wide.parentElement
      : wide;
    const scrolled = own ? wide : box;
    box.classList.toggle("broad", scrolled.scrollWidth > scrolled.clientWidth + 1);
  }
}
// Long tables are folded on a phone.
function fold() {
  if (!matchMedia("(max-width: 600px)").matches) return;
  for (const part of document.querySelectorAll("details.folded"))
    part.open = false;
}
// The navigation shows where the page is. The theme scrolls it to where it was.
function showPage() {
  const bar = document.querySelector(".bd-sidebar-primary");
  const entry = [...(bar?.querySelectorAll(".bd-docs-nav a.current") ?? [])].pop();
  if (!entry) return;
  const [outer, inner] = [bar, entry].map((e) => e.getBoundingClientRect());
  if (inner.top < outer.top || inner.bottom > outer.bottom)
    bar.scrollTop += inner.top - outer.top - bar.clientHeight / 3;
}
addEventListener("DOMContentLoaded", fold);
addEventListener("load", mark);
addEventListener("load", showPage);
// What is unfolded may be wider than the page.
addEventListener("toggle", mark, { capture: true });
addEventListener("resize", mark);
// On a narrow screen the theme moves the navigation and the contents into
// dialogs, which show the page, close by a button, and after a link was taken.
function prepareDrawers() {
  for (const drawer of document.querySelectorAll("dialog[id$='sidebar-modal']")) {
    const button = document.createElement("button");
    button.className = "close-drawer";
    button.textContent = "✕";
    button.ariaLabel = "Close";
    button.onclick = () => drawer.close();
    // Once open it has what the theme moved; once closed, all moves back.
    new MutationObserver(() => {
      if (!drawer.open) return;
      drawer.prepend(button);
      showPage();
    }).observe(drawer, { attributeFilter: ["open"] });
    drawer.addEventListener("close", () => button.remove(), { capture: true });
    drawer.addEventListener("click", (event) => {
      if (event.target.closest("a[href*='#']")) drawer.close();
    });
  }
}
addEventListener("load", prepareDrawers);
