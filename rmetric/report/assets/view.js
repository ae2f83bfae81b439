// What is shown: which runs, in which layout, which steps, which scales; and the charts that follow from it.

const PRINT_WIDTH = 680; // px of the text on A4 within the margins of the style sheet

const view = {
  hidden: new Set(),
  layout: "overlaid",
  range: null, // first and last step; null: all
  log: new Map(DATA.panels.map((panel) => [panel.name, suitsLog(panel).better])),
  printing: false,
};
let charts = [];

/** Draw all charts anew. */
function render() {
  for (const { plot } of charts) plot.destroy();
  charts = [];
  const place = document.getElementById("charts");
  place.className = view.layout;
  place.replaceChildren();
  const runs = DATA.runs.map((_, index) => index).filter((index) => !view.hidden.has(index));
  for (const panel of DATA.panels) renderPanel(place, panel, runs);
}

function renderPanel(place, panel, runs) {
  const box = place.appendChild(element("section", "panel"));
  box.dataset.panel = panel.name;
  const head = box.appendChild(element("div", "panel-head"));
  const title = head.appendChild(element("h3", "", panel.title));
  if (panel.unit) title.appendChild(element("span", "unit", ` ${panel.unit}`));
  if (suitsLog(panel).possible) head.appendChild(scaleButton(panel));
  const log = view.log.get(panel.name);
  const inner = box.appendChild(element("div", "multiples"));
  const groups = view.layout === "apart" ? runs.map((run) => [run]) : [runs];
  const limits = view.layout === "apart" ? commonLimits(panel, log) : null;
  for (const group of groups) {
    const cell = inner.appendChild(element("div", "chart-cell"));
    const width = view.printing ? printWidth(groups.length) : Math.max(200, cell.clientWidth);
    charts.push({ cell, ...makeChart(cell, { panel, runs: group, log, limits, width, range: view.range, onZoom }) });
  }
}

function printWidth(charts) {
  return charts > 1 ? PRINT_WIDTH / 2 - 8 : PRINT_WIDTH;
}

function scaleButton(panel) {
  const button = element("button", "", "log");
  button.type = "button";
  button.setAttribute("aria-label", `Logarithmic scale: ${panel.title}`);
  button.setAttribute("aria-pressed", String(view.log.get(panel.name)));
  button.addEventListener("click", () => {
    view.log.set(panel.name, !view.log.get(panel.name));
    render();
    document.querySelector(`[data-panel="${panel.name}"] .panel-head button`).focus();
  });
  return button;
}

let zooming = false;

/** All charts show the same steps. */
function onZoom(range) {
  if (zooming || range[0] === undefined || range[0] === null) return;
  zoomTo(range);
}

/** Show some steps; null: all. */
function zoomTo(range) {
  zooming = true;
  view.range = range && (range[0] > STEPS[0] || range[1] < STEPS[1]) ? bounded(range) : null;
  const [min, max] = view.range ?? STEPS;
  for (const { plot } of charts) plot.setScale("x", { min, max });
  // uPlot sets scales at the end of the task
  queueMicrotask(() => { zooming = false; });
}

/** A range within all steps, at least two steps wide. */
function bounded([low, high]) {
  const width = Math.min(Math.max(high - low, 2), STEPS[1] - STEPS[0]);
  const start = Math.min(Math.max(low, STEPS[0]), STEPS[1] - width);
  return [start, start + width];
}

/** Zoom by name: in, out, earlier, later, all. */
function zoomBy(how) {
  const [low, high] = view.range ?? STEPS;
  const middle = (low + high) / 2, half = (high - low) / 2;
  const ranges = {
    all: null,
    in: [middle - half / 2, middle + half / 2],
    out: [middle - 2 * half, middle + 2 * half],
    earlier: [low - half, high - half],
    later: [low + half, high + half],
  };
  zoomTo(ranges[how] && bounded(ranges[how]));
}
