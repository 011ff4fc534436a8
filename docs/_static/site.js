// Marks tables, pictures, formulas and outputs of notebooks that are wider than
// the page: they say that they scroll.
function mark() {
  for (const wide of document.querySelectorAll(
    "table.scrolled, .bd-article a.internal > img, .formula > *, .cell_output .output > *, .cell_output table"
  )) {
    // A table of a notebook scrolls by itself, below its title.
    const box = wide.matches(".cell_output table") ? wide : wide.parentElement;
    box.classList.toggle("broad", box.scrollWidth > box.clientWidth + 1);
  }
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
addEventListener("load", mark);
addEventListener("load", showPage);
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
