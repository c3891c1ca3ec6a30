// A table that is wider than the window scrolls by keys too.
addEventListener("load", () => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    table.tabIndex = 0;
  }
});
