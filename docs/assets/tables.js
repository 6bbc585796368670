// Marks the tables that are wider than the page, for the stylesheet.
const mark = () =>
  document.querySelectorAll(".md-typeset__scrollwrap").forEach(wrap =>
    wrap.classList.toggle("scrolls", wrap.scrollWidth > wrap.clientWidth + 1))
addEventListener("load", mark)
addEventListener("resize", mark)
