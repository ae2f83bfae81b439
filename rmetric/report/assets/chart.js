// One chart: the curves of some runs in one panel, with a line of text for the values under the cursor.

const HEIGHT = 250;
const AXIS_WIDTH = 58;
const SECOND_DASH = [4, 3];
const WIDE_RANGE = 50; // largest over smallest value from which a logarithmic scale shows more

/** Whether a panel starts with a logarithmic scale: all values above 0, over a wide range. */
function suitsLog(panel) {
  let low = Infinity, high = -Infinity;
  for (const run of DATA.runs) {
    for (const { name } of panel.curves) {
      for (const value of run.curves[name]?.values ?? []) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  return { possible: low > 0, better: low > 0 && high / low > WIDE_RANGE };
}

/** Limits of the values of a panel over all runs, so that charts side by side can be compared. */
function commonLimits(panel, log) {
  let low = Infinity, high = -Infinity;
  for (const run of DATA.runs) {
    for (const { name } of panel.curves) {
      for (const value of run.curves[name]?.values ?? []) {
        if (!log || value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
      }
    }
  }
  return low <= high ? [low, high] : null;
}

/**
 * A chart in `parent`.
 * options: panel, runs (numbers), log, limits (or null), width, onZoom(range), range (or null).
 */
function makeChart(parent, { panel, runs, log, limits, width, range, onZoom }) {
  const box = parent.appendChild(element("div", "chart"));
  if (limits) box.appendChild(element("div", "chart-title", DATA.runs[runs[0]].name));
  const readout = box.appendChild(element("div", "readout"));
  const target = box.appendChild(element("div", "plot"));

  const curves = runs.flatMap((run) => panel.curves.flatMap(({ name, label }, index) => {
    const curve = DATA.runs[run].curves[name];
    return curve?.steps.length ? [{ run, label, second: index > 0, ...curve }] : [];
  }));
  const table = curves.length
    ? uPlot.join(curves.map(({ steps, values }) => [steps, log ? values.map(positive) : values]))
    : [STEPS];
  const threshold = panel.name === "r_robust" ? runs.map((run) => DATA.runs[run].threshold).find((t) => t !== null) ?? null : null;

  const plot = new uPlot(
    {
      width, height: HEIGHT, legend: { show: false },
      cursor: {
        sync: { key: "steps", scales: ["x", null] },
        drag: { x: true, y: false },
        points: { size: 7 },
        dataIdx: (self, series, hovered) => (series === 0 ? hovered : nearest(self.data, series, hovered)),
      },
      scales: {
        x: { time: false, range: (self, low, high) => (low === null ? STEPS : low === high ? [low - 1, high + 1] : [low, high]) },
        y: { distr: log ? 3 : 1, range: (self, low, high) => yRange(low, high, log, limits) },
      },
      axes: [
        axis({ values: (self, ticks) => ticks.map(stepTick), space: 70, size: 30, label: "training step", labelSize: 20 }),
        axis({
          values: (self, ticks) => tickTexts(ticks), size: roomFor, space: 34,
          ...(log && { splits: (self, index, low, high, gap) => logTicks(low, high, gap) }),
        }),
      ],
      series: [{}, ...curves.map(seriesOf)],
      plugins: [marksPlugin(runs, panel, threshold)],
      hooks: {
        setCursor: [(self) => showValues(readout, self, curves, runs)],
        setScale: [(self, key) => { if (key === "x") onZoom([self.scales.x.min, self.scales.x.max]); }],
      },
    },
    table, target,
  );
  if (range) plot.setScale("x", { min: range[0], max: range[1] });
  describe(target, panel, curves);
  target.addEventListener("focus", () => readout.setAttribute("aria-live", "polite"));
  target.addEventListener("blur", () => readout.removeAttribute("aria-live"));
  showValues(readout, plot, curves, runs);
  return { plot, target, box };
}

function positive(value) {
  return value > 0 ? value : null;
}

function seriesOf({ run, second, steps }) {
  const { stroke, dash } = lookOf(run);
  return {
    stroke, width: 1.5, spanGaps: true, dash: second ? SECOND_DASH : dash,
    points: { show: second ? steps.length < 60 : steps.length < 3, size: 5, fill: stroke },
  };
}

function axis(more) {
  const font = "12px system-ui, sans-serif", stroke = colour("grid");
  return {
    stroke: colour("muted"), font, labelFont: font, labelGap: -2, filter: allTicks,
    grid: { stroke, width: 1 }, ticks: { stroke, width: 1, size: 5 }, ...more,
  };
}

function allTicks(plot, ticks) {
  return ticks;
}

/** Width of the axis of values, px: that of all charts, so that their steps lie below each other, or what its texts need. */
function roomFor(plot, texts, index) {
  const { font, ticks, gap } = plot.axes[index];
  plot.ctx.font = font[0];
  const widths = (texts ?? []).map((text) => plot.ctx.measureText(text).width / uPlot.pxRatio);
  return Math.max(AXIS_WIDTH, Math.ceil(Math.max(0, ...widths) + ticks.size + gap));
}

/** Ticks of a logarithmic axis: round numbers, or evenly spaced ones where the axis holds fewer than two of those. */
function logTicks(low, high, gap) {
  const round = roundNumbers(low, high);
  if (round.length > 1) return round;
  const even = [];
  for (let number = Math.ceil(low / gap); number * gap <= high; number++) even.push(number * gap);
  return even;
}

/** Powers of ten from `low` to `high`; over few decades 2 and 5 times them as well, over less than one all multiples. */
function roundNumbers(low, high) {
  const decades = Math.log10(high / low);
  const every = Math.max(1, Math.ceil(decades / 6));
  const leading = decades < 0.8 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : decades < 2.2 ? [1, 2, 5] : [1];
  const found = [];
  for (let exponent = Math.floor(Math.log10(low)); exponent <= Math.log10(high); exponent++) {
    if (exponent % every === 0) found.push(...leading.map((digit) => Number(`${digit}e${exponent}`)));
  }
  return found.filter((number) => low <= number && number <= high);
}

function yRange(low, high, log, limits) {
  if (limits) [low, high] = limits;
  if (low === null || low === undefined) return [log ? 0.1 : 0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : 0.06 * (high - low);
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** Index of the point of a series that is nearest to a row of the table. */
function nearest(table, series, row) {
  const values = table[series];
  if (values[row] !== null && values[row] !== undefined) return row;
  let before = row, after = row;
  while (before >= 0 && (values[before] === null || values[before] === undefined)) before--;
  while (after < values.length && (values[after] === null || values[after] === undefined)) after++;
  if (before < 0) return after < values.length ? after : null;
  if (after >= values.length) return before;
  return table[0][row] - table[0][before] <= table[0][after] - table[0][row] ? before : after;
}

/** Values under the cursor, an entry a run; without one, the last values. */
function showValues(readout, plot, curves, runs) {
  const row = plot.cursor.idx;
  const steps = plot.data[0];
  const hovered = row !== null && row !== undefined && plot.cursor.left >= 0;
  const entries = [element("span", "entry", hovered ? `step ${steps[row].toLocaleString("en-US")}` : "last values")];
  for (const run of runs) {
    const entry = element("span", "entry");
    paintSwatch(entry.appendChild(element("span", "swatch")), run);
    if (runs.length > 1) entry.appendChild(element("span", "who", DATA.runs[run].name));
    const mine = curves.map((curve, index) => ({ ...curve, series: index + 1 })).filter((curve) => curve.run === run);
    for (const { label, values, endsNotFinite, series } of mine) {
      const at = hovered ? plot.cursor.idxs?.[series] ?? nearest(plot.data, series, row) : null;
      const value = hovered ? plot.data[series][at] : values[values.length - 1];
      if (mine.length > 1) entry.appendChild(element("span", "", label));
      entry.appendChild(element("b", "", endsNotFinite && !hovered ? "not finite" : valueText(value)));
    }
    if (mine.length) entries.push(entry);
  }
  if (hovered) entries.push(...findingsAt(plot, steps[row], runs));
  readout.replaceChildren(...entries);
}

/** Findings and alerts within a few pixels of a step. */
function findingsAt(plot, step, runs) {
  const reach = (6 * (plot.scales.x.max - plot.scales.x.min)) / Math.max(plot.width, 1);
  const near = (mark) => Math.abs(mark.step - step) <= reach;
  const text = runs.flatMap((run) => [
    ...DATA.runs[run].findings.filter(near).map((found) => `${found.number} ${found.name}`),
    ...DATA.runs[run].alerts.filter(near).map((alert) => `alert of ${alert.text}`),
  ]);
  return [...new Set(text)].slice(0, 3).map((found) => element("span", "entry finding", found));
}

/** Text for those who do not see the curves. */
function describe(target, panel, curves) {
  const said = curves.map(({ run, label, steps, values, endsNotFinite }) => {
    const last = values.length - 1, since = endsNotFinite ? ", not finite at the end" : "";
    return `${DATA.runs[run].name}, ${label}: ${valueText(values[0])} at step ${steps[0]}, ${valueText(values[last])} at step ${steps[last]}${since}.`;
  });
  target.tabIndex = 0;
  target.setAttribute("role", "group");
  target.setAttribute("aria-label", `Chart: ${panel.title}. ${said.join(" ")}`);
}
