// Marks on a chart: findings as numbered lines, alerts below, values that are not finite above, a threshold.

const FINDING_DASH = { error: [], warning: [5, 3], note: [1.5, 3] };
const LABEL_WIDTH = 16;

/** uPlot plugin that marks some runs; `panel` says which curves can be not finite, `threshold` is a value or null. */
function marksPlugin(runs, panel, threshold) {
  return {
    hooks: {
      drawAxes: (plot) => {
        drawThreshold(plot, threshold); // not clipped: its name may lie above the plot
        clipped(plot, () => drawFindings(plot, runs));
      },
      draw: (plot) => clipped(plot, () => { drawAlerts(plot, runs); drawNonFinite(plot, runs, panel); }),
    },
  };
}

function clipped(plot, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw();
  ctx.restore();
}

function isShown(plot, step) {
  const { min, max } = plot.scales.x;
  return min <= step && step <= max;
}

function drawThreshold(plot, threshold) {
  if (threshold === null || threshold < plot.scales.y.min || threshold > plot.scales.y.max) return;
  const { ctx, bbox } = plot;
  const y = plot.valToPos(threshold, "y", true);
  line(ctx, bbox.left, y, bbox.left + bbox.width, y, colour("muted"), [4, 4]);
  ctx.fillStyle = colour("muted");
  ctx.font = `${11 * uPlot.pxRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  ctx.fillText("threshold", bbox.left + bbox.width - 4 * uPlot.pxRatio, y - 2 * uPlot.pxRatio);
}

function drawFindings(plot, runs) {
  const { ctx, bbox } = plot;
  const found = runs.flatMap((run) => DATA.runs[run].findings);
  let free = -Infinity;
  for (const finding of [...found].sort((a, b) => a.step - b.step)) {
    if (!isShown(plot, finding.step)) continue;
    const x = Math.round(plot.valToPos(finding.step, "x", true));
    const paint = colour(finding.severity);
    line(ctx, x, bbox.top, x, bbox.top + bbox.height, paint, FINDING_DASH[finding.severity], 1.5);
    if (x < free) continue; // the table names them all
    const side = x + LABEL_WIDTH * uPlot.pxRatio < bbox.left + bbox.width ? 1 : -1;
    ctx.fillStyle = paint;
    ctx.font = `600 ${11 * uPlot.pxRatio}px system-ui, sans-serif`;
    ctx.textAlign = side > 0 ? "left" : "right";
    ctx.textBaseline = "top";
    ctx.fillText(String(finding.number), x + side * 3 * uPlot.pxRatio, bbox.top + 2 * uPlot.pxRatio);
    free = x + LABEL_WIDTH * uPlot.pxRatio;
  }
}

function drawAlerts(plot, runs) {
  const { ctx, bbox } = plot;
  const size = 4 * uPlot.pxRatio;
  const bottom = bbox.top + bbox.height;
  ctx.fillStyle = ctx.strokeStyle = colour("error");
  ctx.lineWidth = 1.2 * uPlot.pxRatio;
  for (const { step, logged } of runs.flatMap((run) => DATA.runs[run].alerts)) {
    if (!isShown(plot, step)) continue;
    const x = plot.valToPos(step, "x", true);
    ctx.beginPath();
    ctx.moveTo(x - size, bottom);
    ctx.lineTo(x, bottom - 2 * size);
    ctx.lineTo(x + size, bottom);
    ctx.closePath();
    logged ? ctx.stroke() : ctx.fill();
  }
}

function drawNonFinite(plot, runs, panel) {
  const { ctx, bbox } = plot;
  const size = 3.5 * uPlot.pxRatio;
  const y = bbox.top + 20 * uPlot.pxRatio;
  for (const run of runs) {
    for (const { name } of panel.curves) {
      for (const step of DATA.runs[run].curves[name]?.nonFinite ?? []) {
        if (!isShown(plot, step)) continue;
        const x = plot.valToPos(step, "x", true);
        line(ctx, x - size, y - size, x + size, y + size, colour("error"), [], 1.5);
        line(ctx, x - size, y + size, x + size, y - size, colour("error"), [], 1.5);
      }
    }
  }
}

function line(ctx, x0, y0, x1, y1, stroke, dash, width = 1) {
  ctx.strokeStyle = stroke;
  ctx.lineWidth = width * uPlot.pxRatio;
  ctx.setLineDash(dash.map((part) => part * uPlot.pxRatio));
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
  ctx.setLineDash([]);
}
