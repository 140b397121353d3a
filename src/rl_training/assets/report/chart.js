// One task's curves: drawn as SVG, so that they print sharply and follow the page's colours.

const SVG = "http://www.w3.org/2000/svg";
const TIP_ROWS = 10;
const MAX_DOTS = 16; // with more, the points of a curve need no marks

function node(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children); // texts become text nodes: whatever a run is called, it is only a name
  return made;
}

class Panel {
  constructor(title, number, { onZoom }) {
    this.onZoom = onZoom;
    this.series = [];
    this.zoom = null; // [from, to] in steps
    this.cursor = null;
    this.caption = node("small");
    this.svg = node("svg:svg", { tabindex: 0, role: "img", "aria-label": `learning curves on ${title}` });
    this.tip = node("div", { class: "tip", hidden: "" });
    this.clip = `plot-area-${number}`;
    this.element = node("figure", { class: "panel" }, node("figcaption", {}, title, " ", this.caption), this.svg, this.tip);
    this.listen();
    new ResizeObserver(() => this.render()).observe(this.element);
  }

  show(series, { yLabel, log, logSteps }) {
    Object.assign(this, { series, yLabel, log, logSteps });
    this.render();
  }

  // --- geometry

  measure() {
    const width = Math.max(260, this.element.clientWidth);
    const height = Math.round(Math.min(400, Math.max(250, width * 0.56)));
    this.full = this.allSteps();
    const fits = this.zoom && this.zoom[1] > this.full[0]; // chosen on a linear axis, it may end before the first step of a log one
    const [from, to] = fits ? [Math.max(this.zoom[0], this.full[0]), this.zoom[1]] : this.full;
    const [low, high] = this.heights(from, to);
    this.isLog = this.log && low > 0;
    const ticks = this.isLog ? logTicks(low, high, 7) : niceTicks(low, high, Math.round(height / 60));
    const left = 26 + 8 * Math.max(...ticks.map((value) => shortNumber(value).length), 2);
    const box = { left, right: width - 20, top: 10, bottom: height - 42 };
    const place = this.isLog ? Math.log : (value) => value;
    const [bottom, top] = [place(low), place(high)];
    this.view = { width, height, box, from, to, low, high, ticks };
    this.scaleSteps(box, from, to);
    this.toY = (value) => box.bottom - ((place(Math.max(value, this.isLog ? low / 1e3 : -Infinity)) - bottom) / (top - bottom)) * (box.bottom - box.top);
  }

  allSteps() {
    const ends = this.series.flatMap((one) => [one.x.find((step) => step > 0 || !this.logSteps), one.x[one.x.length - 1]]);
    const all = ends.filter((step) => step > 0 || !this.logSteps); // a logarithm has no step 0
    let [from, to] = all.length ? [Math.min(...all), Math.max(...all)] : [this.logSteps ? 1 : 0, 2];
    if (from === to) [from, to] = this.logSteps ? [from / 2, to * 2] : [from - 1, to + 1];
    return [!this.logSteps && from > 0 && from <= to / 2 ? 0 : from, to];
  }

  scaleSteps(box, from, to) {
    const [place, back] = this.logSteps ? [Math.log, Math.exp] : [(step) => step, (step) => step];
    const perStep = (box.right - box.left) / (place(to) - place(from));
    const least = this.logSteps ? from / 1e3 : -Infinity; // far to the left of what is shown
    this.toX = (step) => box.left + (place(Math.max(step, least)) - place(from)) * perStep;
    this.toStep = (pixel) => back(place(from) + (pixel - box.left) / perStep);
    this.placeStep = place;
    this.stepAt = back;
  }

  heights(from, to) {
    let low = Infinity;
    let high = -Infinity;
    for (const one of this.series) {
      one.x.forEach((step, i) => {
        if (step < from || step > to) return;
        low = Math.min(low, one.low ? one.low[i] : one.y[i]);
        high = Math.max(high, one.high ? one.high[i] : one.y[i]);
      });
    }
    if (low > high) return [0, 1];
    const positive = low > 0;
    const space = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    return [this.log && positive ? low * 0.95 : low - space, high + space];
  }

  // --- drawing

  render() {
    this.measure();
    const { width, height, box } = this.view;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const marks = node("svg:g", { "clip-path": `url(#${this.clip})` });
    const ordered = [...this.series].sort((a, b) => (a.kind === "mean") - (b.kind === "mean")); // means lie on top
    ordered.forEach((one) => one.low && marks.append(this.bandPath(one)));
    ordered.forEach((one) => marks.append(...this.curvePaths(one)));
    this.overlay = node("svg:g", {});
    const area = { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 8 }; // whole dots
    const clip = node("svg:clipPath", { id: this.clip }, node("svg:rect", area));
    this.svg.replaceChildren(node("svg:defs", {}, clip), ...this.axes(), marks, this.overlay);
    if (!this.series.length) this.svg.append(node("svg:text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to draw here yet"));
    this.caption.textContent = this.log && !this.isLog && this.series.length ? "(no log scale: there are values of zero or less)" : "";
    if (this.cursor !== null) this.point(this.cursor, null);
  }

  axes() {
    const { box, from, to, ticks, height } = this.view;
    const grid = node("svg:g", { class: "grid" });
    const axis = node("svg:g", { class: "axis" });
    for (const value of ticks) {
      const y = this.toY(value);
      grid.append(node("svg:line", { x1: box.left, x2: box.right, y1: y, y2: y }));
      axis.append(node("svg:text", { x: box.left - 7, y: y + 4, "text-anchor": "end" }, shortNumber(value)));
    }
    const numTicks = Math.round((box.right - box.left) / 90);
    for (const step of this.logSteps ? logTicks(from, to, numTicks) : niceTicks(from, to, numTicks)) {
      const x = this.toX(step);
      axis.append(node("svg:line", { x1: x, x2: x, y1: box.bottom + 4, y2: box.bottom + 9 }));
      axis.append(node("svg:text", { x, y: box.bottom + 22, "text-anchor": "middle" }, shortNumber(step)));
    }
    axis.append(node("svg:line", { x1: box.left, x2: box.right, y1: box.bottom + 4, y2: box.bottom + 4 }));
    const middle = (box.top + box.bottom) / 2;
    axis.append(node("svg:text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, "environment steps"));
    axis.append(node("svg:text", { transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, this.yLabel || ""));
    return [grid, axis];
  }

  path(x, y) {
    return x.map((step, i) => `${i ? "L" : "M"}${this.toX(step).toFixed(1)} ${this.toY(y[i]).toFixed(1)}`).join("");
  }

  bandPath(one) {
    const back = [...one.x].reverse();
    const shape = this.path(one.x, one.high) + this.path(back, [...one.low].reverse()).replace("M", "L") + "Z";
    return node("svg:path", { class: `band c${one.color % 8}`, d: shape });
  }

  curvePaths(one) {
    const look = `c${one.color % 8} ${one.kind} d${Math.min(2, Math.floor(one.color / 8))}${one.alone ? " alone" : ""}`;
    const line = node("svg:path", { class: `curve ${look}`, d: this.path(one.x, one.y), "data-id": one.id });
    if (one.x.length > MAX_DOTS) return [line];
    return [line, ...one.x.map((step, i) => node("svg:circle", { class: `dot ${look}`, cx: this.toX(step), cy: this.toY(one.y[i]), r: one.kind === "mean" ? 3.2 : 2.2 }))];
  }

  // --- pointing and zooming

  listen() {
    const { svg } = this;
    const touches = new Map();
    let start = null;
    let pinch = null;
    const at = (event) => event.clientX - svg.getBoundingClientRect().left;
    svg.addEventListener("pointerdown", (event) => {
      touches.set(event.pointerId, at(event));
      if (touches.size === 2) pinch = [...touches.values()].map((pixel) => this.toStep(pixel));
      else if (event.pointerType === "mouse" && event.button === 0) start = at(event);
      if (event.pointerType === "mouse") svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (touches.has(event.pointerId)) touches.set(event.pointerId, at(event));
      if (pinch && touches.size === 2) this.stretch(pinch, [...touches.values()]);
      else if (start !== null && Math.abs(at(event) - start) > 6) this.select(start, at(event));
      else this.point(this.toStep(this.within(at(event))), event.clientY - svg.getBoundingClientRect().top);
    });
    const end = (event) => {
      touches.delete(event.pointerId);
      if (touches.size < 2) pinch = null;
      if (start !== null && event.type === "pointerup" && Math.abs(at(event) - start) > 6) this.setZoom([start, at(event)].map((pixel) => this.toStep(pixel)));
      else if (start !== null) this.overlay.replaceChildren();
      start = null;
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("pointerleave", () => this.leave());
    svg.addEventListener("blur", () => this.leave());
    svg.addEventListener("dblclick", () => this.setZoom(null));
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      this.zoomAround(this.toStep(at(event)), event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
  }

  // the first and the last point can be pointed at from just beside the axes
  within(pixel) {
    const { left, right } = this.view.box;
    return Math.abs(pixel - left) < 8 ? Math.max(left, pixel) : Math.min(right, pixel);
  }

  key(event) {
    const { from, to, box } = this.view;
    const here = this.cursor === null ? this.toStep((box.left + box.right) / 2) : this.cursor;
    const beside = (sign) => this.toStep(this.toX(here) + (sign * (box.right - box.left)) / 50);
    const actions = {
      ArrowLeft: () => this.point(Math.max(from, beside(-1)), null),
      ArrowRight: () => this.point(Math.min(to, beside(1)), null),
      "+": () => this.zoomAround(here, 0.7),
      "-": () => this.zoomAround(here, 1.4),
      Escape: () => this.setZoom(null),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  zoomAround(step, factor) {
    const [from, here, to] = [this.view.from, step, this.view.to].map(this.placeStep);
    this.setZoom([here - (here - from) * factor, here + (to - here) * factor].map(this.stepAt));
  }

  // two fingers keep the steps they were put on
  stretch(steps, pixels) {
    const { box } = this.view;
    const places = steps.map(this.placeStep);
    const perPixel = (places[1] - places[0]) / (pixels[1] - pixels[0]);
    if (!(perPixel > 0)) return;
    const from = places[0] - (pixels[0] - box.left) * perPixel;
    this.setZoom([from, from + (box.right - box.left) * perPixel].map(this.stepAt));
  }

  setZoom(range) {
    if (range) {
      const [from, to] = [Math.min(...range), Math.max(...range)];
      const clipped = [Math.max(this.full[0], from), Math.min(this.full[1], to)];
      const width = (ends) => this.placeStep(ends[1]) - this.placeStep(ends[0]);
      const share = width(clipped) / width(this.full);
      if (share < 1e-4) return;
      this.zoom = share > 0.999 ? null : clipped;
    } else this.zoom = null;
    this.render();
    this.onZoom();
  }

  select(a, b) {
    const { box } = this.view;
    const [left, right] = [Math.max(box.left, Math.min(a, b)), Math.min(box.right, Math.max(a, b))];
    this.tip.hidden = true;
    this.overlay.replaceChildren(node("svg:rect", { class: "selection", x: left, y: box.top, width: Math.max(0, right - left), height: box.bottom - box.top }));
  }

  leave() {
    this.cursor = null;
    this.tip.hidden = true;
    this.overlay.replaceChildren();
  }

  point(step, pixelY) {
    const { box, from, to } = this.view;
    const [pixel, margin] = [this.toX(step), (box.right - box.left) * 0.03];
    const found = this.series
      .filter((one) => pixel >= this.toX(one.x[0]) - margin && pixel <= this.toX(one.x[one.x.length - 1]) + margin)
      .map((one) => ({ one, i: nearestIndex(one.x, step) }))
      .filter(({ one, i }) => one.x[i] >= from && one.x[i] <= to);
    if (!found.length || step < from || step > to) return this.leave();
    this.cursor = step;
    const near = found.reduce((a, b) => (Math.abs(a.one.x[a.i] - step) <= Math.abs(b.one.x[b.i] - step) ? a : b));
    const x = this.toX(near.one.x[near.i]);
    if (pixelY !== null) found.sort((a, b) => Math.abs(this.toY(a.one.y[a.i]) - pixelY) - Math.abs(this.toY(b.one.y[b.i]) - pixelY));
    const rows = found.slice(0, TIP_ROWS).sort((a, b) => b.one.y[b.i] - a.one.y[a.i]);
    const spots = rows.map(({ one, i }) => node("svg:circle", { class: `spot c${one.color % 8}`, cx: this.toX(one.x[i]), cy: this.toY(one.y[i]), r: 4 }));
    this.overlay.replaceChildren(node("svg:line", { class: "rule", x1: x, x2: x, y1: box.top, y2: box.bottom }), ...spots);
    this.tell(near.one.x[near.i], rows, found.length - rows.length, x);
    return undefined;
  }

  tell(step, rows, more, x) {
    const lines = rows.map(({ one, i }) => {
      const range = one.low ? ` [${exactNumber(one.low[i])}, ${exactNumber(one.high[i])}]` : "";
      const key = node("span", { class: `key c${one.color % 8} d${Math.min(2, Math.floor(one.color / 8))}` });
      return node("div", {}, key, node("span", {}, one.label), node("i", {}, exactNumber(one.y[i]) + range));
    });
    const rest = more ? [node("div", { class: "soft" }, `and ${more} more`)] : [];
    this.tip.replaceChildren(node("b", {}, `step ${exactNumber(Math.round(step))}`), ...lines, ...rest);
    this.tip.hidden = false;
    const space = this.view.width - this.tip.offsetWidth;
    const beside = x < this.view.width / 2 ? x + 14 : x - this.tip.offsetWidth - 14;
    this.tip.style.left = `${Math.max(0, Math.min(space, beside))}px`;
    this.tip.style.top = `${this.svg.offsetTop + 12}px`;
  }
}
