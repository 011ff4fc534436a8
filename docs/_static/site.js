// Marks tables and pictures that are wider than the page: they say that they
// scroll.
function mark() {
  const tables = document.querySelectorAll("table.scrolled");
  const boxes = [...tables].map((table) => table.parentElement);
  for (const box of [
    ...boxes, ...document.querySelectorAll("a.image-reference"),
  ]) {
    box.classList.toggle("broad", box.scrollWidth > box.clientWidth + 1);
  }
}
addEventListener("load", mark);
addEventListener("resize", mark);
