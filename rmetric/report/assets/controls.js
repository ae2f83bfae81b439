// Buttons, keys, and what the browser changes: width, dark mode, print.

function makeLegend() {
  const legend = document.getElementById("legend");
  if (DATA.runs.length < 2) { legend.hidden = true; return; }
  DATA.runs.forEach((run, index) => {
    const button = legend.appendChild(element("button"));
    button.type = "button";
    paintSwatch(button.appendChild(element("span", "swatch")), index);
    button.append(run.name);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      view.hidden.has(index) ? view.hidden.delete(index) : view.hidden.add(index);
      button.setAttribute("aria-pressed", String(!view.hidden.has(index)));
      render();
    });
  });
}

function onPress(selector, act) {
  for (const button of document.querySelectorAll(selector)) button.addEventListener("click", () => act(button));
}

onPress("[data-zoom]", (button) => zoomBy(button.dataset.zoom));

onPress("[data-layout]", (pressed) => {
  view.layout = pressed.dataset.layout;
  for (const button of document.querySelectorAll("[data-layout]")) button.setAttribute("aria-pressed", String(button === pressed));
  render();
});

onPress("[data-finding]", (button) => {
  const found = DATA.runs.flatMap((run) => run.findings).find((finding) => finding.number === Number(button.dataset.finding));
  const room = Math.max(0.3 * (found.until - found.step), 0.03 * (STEPS[1] - STEPS[0]), 5);
  zoomTo(bounded([found.step - room, found.until + room]));
  document.getElementById("curves-heading").scrollIntoView({ block: "start" });
});

/** Keys while a chart has the focus. */
const KEYS = { "+": "in", "=": "in", "-": "out", "0": "all", Escape: "all", PageUp: "earlier", PageDown: "later" };
document.addEventListener("keydown", (event) => {
  const chart = charts.find(({ target }) => target === document.activeElement);
  if (!chart || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in KEYS) zoomBy(KEYS[event.key]);
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") moveCursor(chart.plot, event);
  else return;
  event.preventDefault();
});

function moveCursor(plot, event) {
  const width = plot.over.clientWidth;
  const by = (event.key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 1 : Math.max(1, width / 40));
  const from = plot.cursor.left >= 0 ? plot.cursor.left : event.key === "ArrowLeft" ? width : 0;
  plot.setCursor({ left: Math.min(Math.max(from + by, 0), width - 1), top: plot.over.clientHeight / 2 });
}

function fit() {
  if (view.printing) return;
  for (const { plot, cell } of charts) {
    const width = Math.max(200, cell.clientWidth);
    if (width !== plot.width) plot.setSize({ width, height: HEIGHT });
  }
}

function setPrinting(on) {
  view.printing = on;
  document.documentElement.toggleAttribute("data-print", on);
  document.getElementById("in-numbers").open = on;
  render();
}

document.getElementById("charts").addEventListener("dblclick", () => zoomTo(null));
new ResizeObserver(fit).observe(document.getElementById("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));

if (DATA.panels.length) {
  for (const id of ["toolbar", "hint", "key"]) document.getElementById(id).hidden = false;
  makeLegend();
  render();
} else {
  document.getElementById("charts").append("Nothing was recorded that could be drawn.");
}
