// The reader's choices and what they show. Choices outlive a refresh: they are kept by name, not by place.

const MEMORY = `rl-training report ${location.pathname}`;
const byId = (id) => document.getElementById(id);
let data = JSON.parse(byId("data").textContent);
const choices = { metric: null, smooth: 0, mean: true, runs: false, log: false, logSteps: false, hidden: [], zoom: {}, ...remembered() };
const panels = new Map();

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(MEMORY)) || {};
  } catch {
    return {}; // a page opened as a file may have no storage
  }
}

function remember() {
  for (const [task, panel] of panels) choices.zoom[task] = panel.zoom;
  byId("reset").disabled = ![...panels.values()].some((panel) => panel.zoom);
  try {
    sessionStorage.setItem(MEMORY, JSON.stringify(choices));
  } catch { /* the choices hold until the page is closed */ }
}

const groupId = (group) => `group ${group.label}`;
const runId = (run) => `run ${run.name}`;
const isShown = (run) => !choices.hidden.includes(runId(run)) && !choices.hidden.includes(groupId(data.groups[run.group]));

function setShown(id, shown) {
  choices.hidden = choices.hidden.filter((other) => other !== id);
  if (!shown) choices.hidden.push(id);
}

// --- what is drawn

function meanSeries(group, number, metric) {
  const band = group.bands[metric];
  const runs = data.runs.filter((run) => run.group === number);
  if (!band || !runs.some(isShown)) return [];
  const [y, low, high] = band.y.map((values) => smoothed(band.x, values, choices.smooth));
  const seeds = band.n === group.size ? `${band.n} run${band.n > 1 ? "s" : ""}` : `${band.n} of ${group.size} runs`;
  const spread = !low && metric === "eval_return_mean" ? spreadOf(runs.find((run) => run.curves[metric]), metric) : null;
  return [{ id: groupId(group), label: `${group.label} (${seeds})`, kind: "mean", color: group.color, x: band.x, y, low, high, ...spread }];
}

// with one seed there is no interval over seeds: the band is one standard deviation over the episodes of each evaluation
function spreadOf(run, metric) {
  const [axis, values] = run.curves[metric];
  if (!run.spread || run.spread.length !== values.length || !run.spread.some((std) => std > 0)) return null;
  const x = run.axes[axis];
  const [y, low, high] = [0, -1, 1].map((sign) => smoothed(x, values.map((value, i) => value + sign * run.spread[i]), choices.smooth));
  return { x, y, low, high };
}

function runSeries(run, metric) {
  if (!run.curves[metric] || !isShown(run)) return [];
  const [axis, values] = run.curves[metric];
  const x = run.axes[axis];
  const group = data.groups[run.group];
  return [{ id: runId(run), label: `${group.label} seed ${run.seed}`, kind: "run", alone: !choices.mean, color: group.color, x, y: smoothed(x, values, choices.smooth) }];
}

function drawAll() {
  const metric = choices.metric;
  const yLabel = (data.metrics.find((one) => one.key === metric) || { label: "" }).label;
  data.tasks.forEach((task, number) => {
    const groups = data.groups.map((group, i) => [group, i]).filter(([group]) => group.task === number);
    const means = choices.mean ? groups.flatMap(([group, i]) => meanSeries(group, i, metric)) : [];
    const singles = choices.runs ? groups.flatMap(([, i]) => data.runs.filter((run) => run.group === i).flatMap((run) => runSeries(run, metric))) : [];
    panels.get(task).show([...means, ...singles], { yLabel, log: choices.log, logSteps: choices.logSteps });
  });
}

// --- the controls

function buildPanels() {
  const old = new Set(panels.keys());
  for (const task of data.tasks) {
    if (!panels.has(task)) {
      const panel = new Panel(task, panels.size, { onZoom: remember });
      panel.zoom = choices.zoom[task] || null;
      panels.set(task, panel);
    }
    old.delete(task);
  }
  for (const task of old) {
    panels.get(task).element.remove();
    panels.delete(task);
  }
  byId("panels").append(...data.tasks.map((task) => panels.get(task).element));
}

function buildMetrics() {
  const known = data.metrics.map((one) => one.key);
  if (!known.includes(choices.metric)) choices.metric = known[0] || null;
  const kinds = new Map();
  for (const { key, label } of data.metrics) {
    const kind = /return|length/.test(key) ? "Returns and episodes" : key.startsWith("time/") ? "Speed" : "Learning";
    const option = node("option", { value: key }, label);
    option.selected = key === choices.metric;
    kinds.set(kind, [...(kinds.get(kind) || []), option]);
  }
  byId("metric").replaceChildren(...[...kinds].map(([kind, options]) => node("optgroup", { label: kind }, ...options)));
}

function buildChips() {
  const groups = new Map(data.groups.map((group) => [group.label, group]));
  const chips = [...groups.values()].map((group) => {
    const chip = node("button", { type: "button", class: "chip", "aria-pressed": !choices.hidden.includes(groupId(group)) });
    chip.append(node("span", { class: `key c${group.color % 8} d${Math.min(2, Math.floor(group.color / 8))}` }), node("span", {}, group.label));
    chip.addEventListener("click", () => choose(() => setShown(groupId(group), choices.hidden.includes(groupId(group)))));
    return chip;
  });
  byId("chips").replaceChildren(...chips);
}

function buildRuns() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.runs.filter((run) => words.every((word) => `${run.name} ${data.groups[run.group].label}`.toLowerCase().includes(word)));
  const labels = rows.map((run) => {
    const box = node("input", { type: "checkbox" });
    box.checked = !choices.hidden.includes(runId(run));
    box.addEventListener("change", () => choose(() => setShown(runId(run), box.checked)));
    return node("label", {}, box, node("span", { class: `key c${data.groups[run.group].color % 8}` }), node("span", {}, run.name));
  });
  byId("runs").replaceChildren(...labels);
  byId("num-runs").textContent = rows.length === data.runs.length ? rows.length : `${rows.length} of ${data.runs.length}`;
  return rows;
}

function choose(change) {
  change();
  remember();
  buildChips();
  drawAll();
}

function connectControls() {
  byId("metric").addEventListener("change", (event) => choose(() => { choices.metric = event.target.value; }));
  byId("smooth").value = choices.smooth * 100;
  byId("smooth").addEventListener("input", (event) => choose(() => { choices.smooth = event.target.value / 100; tellSmooth(); }));
  for (const name of ["mean", "runs", "log", "logSteps"]) {
    const box = byId(`show-${name}`);
    box.checked = choices[name];
    box.addEventListener("change", () => choose(() => { choices[name] = box.checked; }));
  }
  byId("reset").addEventListener("click", () => panels.forEach((panel) => panel.setZoom(null)));
  byId("filter").addEventListener("input", buildRuns);
  for (const shown of [true, false]) {
    byId(shown ? "pick-all" : "pick-none").addEventListener("click", () => choose(() => {
      for (const run of buildRuns()) setShown(runId(run), shown);
      buildRuns();
    }));
  }
}

function tellSmooth() {
  byId("smooth-value").textContent = `${Math.round(choices.smooth * 100)} %`;
}

function showData(fresh) {
  data = fresh;
  buildPanels();
  buildMetrics();
  buildChips();
  buildRuns();
  drawAll();
  remember();
}

// --- while training goes on

function refreshSections(sections) {
  for (const [id, html] of Object.entries(sections)) {
    const section = byId(id);
    if (section.dataset.html === html) continue; // a table that is being read, or a film, is left alone
    const open = [...section.querySelectorAll("details")].map((details) => details.open);
    section.innerHTML = html; // escaped where it was made; the page's policy runs no script but this one
    section.querySelectorAll("details").forEach((details, i) => { details.open = open[i] || false; });
    section.dataset.html = html;
  }
}

async function follow(seconds) {
  let tag = "";
  const live = byId("live");
  live.hidden = false;
  for (;;) {
    await new Promise((wake) => { setTimeout(wake, seconds * 1000); });
    try {
      const answer = await fetch("live.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        const fresh = await answer.json();
        refreshSections(fresh.sections);
        showData(fresh.data);
      } else if (answer.status !== 304) throw new Error(answer.statusText);
      live.classList.remove("lost");
      live.textContent = `live, ${new Date().toLocaleTimeString()}`;
    } catch {
      live.classList.add("lost");
      live.textContent = "the server does not answer; trying again";
    }
  }
}

connectControls();
tellSmooth();
showData(data);
window.addEventListener("beforeprint", () => panels.forEach((panel) => panel.leave()));
if (document.body.dataset.live) follow(Number(document.body.dataset.live));
