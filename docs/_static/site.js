// Marks tables that are wider than the page, which then say that they scroll.
function mark() {
  for (const table of document.querySelectorAll("table.scrolled")) {
    const place = table.parentElement;
    place.classList.toggle("broad", place.scrollWidth > place.clientWidth);
  }
}
addEventListener("load", mark);
addEventListener("resize", mark);
