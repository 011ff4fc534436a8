// Marks tables, pictures and formulas that are wider than the page: they say
// that they scroll.
function mark() {
  for (const wide of document.querySelectorAll(
    "table.scrolled, .bd-article a.internal > img, .formula > *"
  )) {
    const box = wide.parentElement;
    box.classList.toggle("broad", box.scrollWidth > box.clientWidth + 1);
  }
}
addEventListener("load", mark);
addEventListener("resize", mark);
