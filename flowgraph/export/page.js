// What the page does with the models that Bokeh drew. Arguments: graph, heat (figures), edges, lit, flow, cut,
// nodes, marks, cells, image (data sources), colours (the heat map's mapper), data (see page.py).
for (const variant of data.variants) {  // plain arrays, whose parts are plain arrays too
  variant.capacity = Float64Array.from(variant.capacity);
  for (const found of variant.scores) found.values = Float64Array.from(found.values);
}
const $ = id => document.getElementById(id);
const MOST_EDGES = 20000, MOST_LIT = 1500;
const {levels, layers, inputs, offsets, labels, tokens} = data;
const n = offsets[levels.length];
const levelOf = new Int32Array(n), placeOf = new Int32Array(n);
levels.forEach((level, k) => {
  for (let p = 0; p < level.size; p++) { levelOf[offsets[k] + p] = k; placeOf[offsets[k] + p] = p; }
});
const inputNodes = inputs.flatMap(k => Array.from({length: levels[k].size}, (_, p) => offsets[k] + p));
const columnOf = new Map(inputNodes.map((node, column) => [node, column]));
const state = {variant: null, method: null, layer: layers.length, target: 0, input: 0, cursor: null, flow: null};
const digits = value => Number(value).toPrecision(6);

// --- the arrays ---

function network(variant) {
  if (variant.net) return variant.net;
  const from = Int32Array.from(variant.source), to = Int32Array.from(variant.target), cap = variant.capacity;
  const start = new Int32Array(n + 1), startTo = new Int32Array(n + 1);
  for (let e = 0; e < cap.length; e++) { start[from[e] + 1]++; startTo[to[e] + 1]++; }
  for (let v = 0; v < n; v++) { start[v + 1] += start[v]; startTo[v + 1] += startTo[v]; }
  const byTo = new Int32Array(cap.length), fill = startTo.slice();
  for (let e = 0; e < cap.length; e++) byTo[fill[to[e]]++] = e;
  const sorted = Int32Array.from(cap.keys()).sort((a, b) => cap[b] - cap[a]);  // largest first
  return variant.net = {n, from, to, cap, start, byTo, startTo, sorted, flows: new Map()};
}

// Scores of the chosen method at the chosen level: {values, columns}, or null where the page does not hold them
function scores() {
  const key = `${state.method}/${state.layer}`;
  return state.variant.scores.find(s => s.key === key) ?? null;
}

function scoreOf(target, input) {
  const found = scores();
  if (found) return found.values[target * inputNodes.length + input];
  return state.method === 'flow' ? pairFlow(targetNode(target), inputNodes[input]).value : NaN;
}

const targetNode = position => offsets[layers[state.layer - 1]] + position;

function pairFlow(source, sink) {
  const net = network(state.variant), key = `${source}/${sink}`;
  if (!net.flows.has(key)) net.flows.set(key, maximumFlow(net, source, sink));
  return net.flows.get(key);
}

// How much of node's content passes each edge: down to the inputs it comes from, up to the nodes it goes to.
// Edges run from larger node numbers to smaller ones, so one sweep over the nodes meets each in its order.
function passages(node) {
  const {from, to, cap, start, byTo, startTo} = network(state.variant);
  const amount = new Float64Array(cap.length), share = new Float64Array(n);
  share[node] = 1;
  for (let v = node; v >= 0; v--) if (share[v] > 0)
    for (let e = start[v]; e < start[v + 1]; e++) { amount[e] = share[v] * cap[e]; share[to[e]] += amount[e]; }
  const down = share.slice();
  share.fill(0); share[node] = 1;
  for (let v = node; v < n; v++) if (share[v] > 0)
    for (let k = startTo[v]; k < startTo[v + 1]; k++) {
      const e = byTo[k]; amount[e] = share[v] * cap[e]; share[from[e]] += amount[e];
    }
  return {amount, down, up: share};
}

// --- drawing: only by setting the data of Bokeh's sources ---

function segments(chosen, strength) {
  const {from, to} = network(state.variant);
  const x0 = [], y0 = [], x1 = [], y1 = [], alpha = [], width = [];
  for (const e of chosen) {
    const s = strength(e);
    x0.push(levelOf[from[e]]); y0.push(placeOf[from[e]]); x1.push(levelOf[to[e]]); y1.push(placeOf[to[e]]);
    alpha.push(0.1 + 0.9 * s); width.push(0.4 + 2.6 * s);
  }
  return {x0, y0, x1, y1, alpha, width};
}

function largest(values, most, least) {
  const found = [];
  for (let e = 0; e < values.length; e++) if (values[e] > least) found.push(e);
  found.sort((a, b) => values[b] - values[a]);
  return found.slice(0, most);
}

// Position of the slider -> capacity: square, since most capacities are small
const limit = () => (network(state.variant).cap[network(state.variant).sorted[0]] ?? 0) * (+$('threshold').value / 1000) ** 2;

function drawEdges() {
  const {cap, sorted} = network(state.variant), least = limit();
  let low = 0, high = sorted.length;  // first position in sorted whose capacity is below the limit
  while (low < high) { const mid = (low + high) >> 1; if (cap[sorted[mid]] >= least) low = mid + 1; else high = mid; }
  const shown = Array.from(sorted.subarray(0, Math.min(low, MOST_EDGES))).reverse();
  const top = cap[sorted[0]] || 1;
  edges.data = segments(shown, e => cap[e] / top);
  const drawn = low > MOST_EDGES ? `the ${MOST_EDGES} largest of ${low}` : `${low}`;
  $('shown').textContent = `≥ ${least.toPrecision(3)}: ${drawn} of ${sorted.length} edges`;
}

function drawLit(node) {
  if (node === null) { lit.data = segments([], e => 0); return; }
  const {amount} = passages(node);
  const top = amount.reduce((a, b) => Math.max(a, b), 0) || 1;
  lit.data = segments(largest(amount, MOST_LIT, 0.005 * top), e => Math.sqrt(amount[e] / top));
}

function drawHeat() {
  const found = scores(), height = levels[layers[state.layer - 1]].size, width = inputNodes.length;
  const values = new Float64Array(height * width);
  for (let i = 0; i < height; i++) for (let j = 0; j < width; j++)
    values[i * width + j] = found ? found.values[i * width + j] : known(i, j);
  colours.high = values.reduce((a, b) => b > a ? b : a, 0) || 1;
  const matrix = new data.matrix.constructor(values, [height, width]);  // Bokeh's own kind of array
  image.data = {image: [matrix], x: [-0.5], y: [-0.5], dw: [width], dh: [height]};
}

// Flow of a pair that was asked for already; blank for the others
const known = (i, j) => state.method === 'flow'
  ? network(state.variant).flows.get(`${targetNode(i)}/${inputNodes[j]}`)?.value ?? NaN : NaN;

function drawPair() {
  const source = targetNode(state.target), sink = inputNodes[state.input];
  const net = network(state.variant), result = state.flow = pairFlow(source, sink);
  const crossing = [];
  for (let e = 0; e < net.cap.length; e++) if (result.reached[net.from[e]] && !result.reached[net.to[e]]) crossing.push(e);
  crossing.sort((a, b) => net.cap[b] - net.cap[a]);
  const cutValue = crossing.reduce((sum, e) => sum + net.cap[e], 0);
  const top = result.flow.reduce((a, b) => Math.max(a, b), 0) || 1;
  const carrying = largest(result.flow, Infinity, 0);
  flow.data = segments(carrying.slice(0, MOST_EDGES), e => result.flow[e] / top);
  const widest = crossing.length ? net.cap[crossing[0]] : 1;
  cut.data = segments(crossing.slice(0, MOST_LIT), e => Math.sqrt(net.cap[e] / widest));
  marks.data = {x: [levelOf[source], levelOf[sink]], y: [placeOf[source], placeOf[sink]]};
  cells.data = {x: [state.input], y: [state.target]};
  showPair(source, sink, result, cutValue, carrying.length, crossing);
  const name = v => `${labels[levelOf[v]][placeOf[v]]} (${levels[levelOf[v]].name}, ${placeOf[v]})`;
  const value = scoreOf(state.target, state.input);
  say(`${name(source)} from ${name(sink)}: ${data.names[state.method] ?? state.method} `
    + `${Number.isNaN(value) ? 'not in this file' : digits(value)}; maximum flow ${digits(result.value)} over `
    + `${carrying.length} edges, minimum cut ${digits(cutValue)} of ${crossing.length} edges`);
}

function drawTheme() {
  const dark = document.documentElement.dataset.theme === 'dark';
  const text = dark ? '#e8edf2' : '#1b1f24', line = dark ? '#343d47' : '#d1d9e0';
  for (const figure of [graph, heat]) {
    for (const side of ['left', 'right', 'above', 'below']) for (const part of figure[side]) {
      for (const name of ['major_label_text_color', 'axis_label_text_color', 'title_text_color'])
        if (name in part.properties) part[name] = text;
      for (const name of ['axis_line_color', 'major_tick_line_color']) if (name in part.properties) part[name] = line;
    }
  }
  for (const [name, [light, night]] of Object.entries(data.palette)) {
    const renderer = graph.renderers.find(r => r.name === name);
    renderer.glyph[name === 'nodes' ? 'fill_color' : 'line_color'] = dark ? night : light;
  }
}

// --- words and numbers: only by textContent, so nothing a token holds can become markup ---

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

function named(node, parent) {
  const [k, p] = [levelOf[node], placeOf[node]];
  element('code', tokens[k][p], parent);
  if (!tokens[k][p].trim()) parent.append(labels[k][p]);  // nothing to be seen: spelt out
  parent.append(` (${levels[levelOf[node]].name}, ${placeOf[node]})`);
}

function number(value, parent) {
  const made = element('data', Number.isNaN(value) ? 'not in this file' : digits(value), parent);
  made.value = String(value);
  return made;
}

function fact(name, parent) {
  element('dt', name, parent);
  return element('dd', undefined, parent);
}

function row(table, cells, kind = 'td') {
  const line = element('tr', undefined, table);
  for (const cell of cells) {
    const made = element(kind, typeof cell === 'string' ? cell : undefined, line);
    if (typeof cell === 'function') cell(made);
  }
}

function showPair(source, sink, result, cutValue, carrying, crossing) {
  const list = $('pair'); list.replaceChildren();
  named(source, fact('target', list));
  named(sink, fact('input', list));
  const shown = number(scoreOf(state.target, state.input), fact(data.names[state.method] ?? state.method, list));
  shown.id = 'value';
  number(result.value, fact('maximum flow', list)).id = 'flow-value';
  fact('edges that carry it', list).textContent = String(carrying);
  number(cutValue, fact('minimum cut', list)).id = 'cut-value';

  const table = $('cut'), most = 12; table.replaceChildren();
  row(table, ['from', 'to', 'capacity'], 'th');
  const {from, to, cap} = network(state.variant);
  for (const e of crossing.slice(0, most))
    row(table, [cell => named(from[e], cell), cell => named(to[e], cell), cell => number(cap[e], cell)]);
  if (crossing.length > most) row(table, [`and ${crossing.length - most} more`]);
}

function showTop() {
  const table = $('top'), found = scores(), width = inputNodes.length; table.replaceChildren();
  if (!found) { row(table, [state.method === 'flow' ? 'computed for the pairs you choose' : 'not in this file']); return; }
  const values = Array.from(found.values.subarray(state.target * width, (state.target + 1) * width));
  const order = [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, 8);
  row(table, ['input', data.names[state.method] ?? state.method], 'th');
  for (const j of order) row(table, [cell => named(inputNodes[j], cell), cell => number(values[j], cell)]);
}

function say(text) { $('status').textContent = text; }

function sayNode(node) {
  const {down, up} = passages(node);
  const name = v => `${labels[levelOf[v]][placeOf[v]]} ${digits(down[v])}`;
  const from = [...inputNodes].filter(v => v !== node && down[v] > 0).sort((a, b) => down[b] - down[a]).slice(0, 3);
  const top = layers[layers.length - 1], to = [];
  for (let p = 0; p < levels[top].size; p++) if (up[offsets[top] + p] > 0 && offsets[top] + p !== node) to.push(offsets[top] + p);
  to.sort((a, b) => up[b] - up[a]);
  say(`${labels[levelOf[node]][placeOf[node]]} (${levels[levelOf[node]].name}, ${placeOf[node]})`
    + (from.length ? `; comes from ${from.map(name).join(', ')}` : '')
    + (to.length ? `; goes to ${to.slice(0, 3).map(v => `${labels[top][placeOf[v]]} ${digits(up[v])}`).join(', ')}` : ''));
}

// --- what a person does ---

function point(node) {
  if (node === state.cursor) return;
  state.cursor = node;
  drawLit(node);
  if (node === null) say(''); else sayNode(node);
}

function choose(node) {
  if (columnOf.has(node)) state.input = columnOf.get(node);
  const layer = layers.indexOf(levelOf[node]);
  if (layer >= 0) {
    state.target = placeOf[node];
    if (layer + 1 !== state.layer) { state.layer = layer + 1; $('level').value = String(state.layer); drawHeat(); }
  }
  selected();
}

function selected() {
  $('target').value = String(state.target);
  $('input').value = String(state.input);
  drawPair();
  if (state.method === 'flow' && !scores()) drawHeat();
  showTop();
}

function nodeAt(x, y) {
  const k = Math.round(x), p = Math.round(y);
  const there = k >= 0 && k < levels.length && p >= 0 && p < levels[k].size && Math.abs(x - k) < 0.35;
  return there ? offsets[k] + p : null;
}

function cellAt(x, y) {
  const i = Math.round(y), j = Math.round(x);
  return i >= 0 && i < levels[layers[state.layer - 1]].size && j >= 0 && j < inputNodes.length ? [i, j] : null;
}

function sayCell(cell) {
  if (!cell) { say(''); return; }
  const [i, j] = cell, found = scores(), value = found ? found.values[i * inputNodes.length + j] : known(i, j);
  const sink = inputNodes[j], top = layers[state.layer - 1];
  say(`${labels[top][i]} (${i}) holds of ${labels[levelOf[sink]][placeOf[sink]]} (${placeOf[sink]}): `
    + (Number.isNaN(value) ? 'choose the pair to compute it' : digits(value)));
}

function options(id, entries, chosen) {
  const select = $(id);
  select.replaceChildren();
  for (const [value, text] of entries) element('option', text, select).value = String(value);
  select.value = String(chosen);
  select.disabled = entries.length < 2;
}

function pickVariant() {
  const kind = $('kind').value, head = $('head').value;
  const heads = data.variants.filter(v => v.kind === kind).map(v => v.head);
  options('head', heads.map(h => [h, h]), heads.includes(head) ? head : heads[0]);
  state.variant = data.variants.find(v => v.kind === kind && v.head === $('head').value);
  const names = data.methods.filter(m => m === 'flow' || state.variant.scores.some(s => s.method === m));
  options('method', names.map(m => [m, data.names[m] ?? m]), names.includes(state.method) ? state.method : names[0]);
  state.method = $('method').value;
  // at first as many edges as can be told apart
  const {cap, sorted} = network(state.variant), top = cap[sorted[0]] || 1;
  const least = cap[sorted[Math.min(sorted.length, data.first_edges) - 1]] ?? 0;
  $('threshold').value = String(Math.ceil(1000 * Math.sqrt(least / top)));
  drawEdges();
  drawHeat();
  selected();
}

function pickLevel() {
  state.layer = +$('level').value;
  state.target = Math.min(state.target, levels[layers[state.layer - 1]].size - 1);
  const size = levels[layers[state.layer - 1]].size, top = layers[state.layer - 1];
  options('target', Array.from({length: size}, (_, p) => [p, `${p} ${labels[top][p]}`]), state.target);
  drawHeat();
  selected();
}

function move(event, steps) {
  const step = steps[event.key];
  if (step) event.preventDefault();
  return step;
}

$('graph-area').addEventListener('keydown', event => {
  const now = state.cursor ?? targetNode(state.target);
  let [k, p] = [levelOf[now], placeOf[now]];
  const step = move(event, {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]});
  if (step) {
    k = Math.min(Math.max(k + step[0], 0), levels.length - 1);
    p = Math.min(Math.max(p + step[1], 0), levels[k].size - 1);
    point(offsets[k] + p);
  }
  if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(now); }
  if (event.key === 'Escape') point(null);
});
$('heat-area').addEventListener('keydown', event => {
  const step = move(event, {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]});
  if (!step) return;
  state.target = Math.min(Math.max(state.target + step[0], 0), levels[layers[state.layer - 1]].size - 1);
  state.input = Math.min(Math.max(state.input + step[1], 0), inputNodes.length - 1);
  selected();
});

$('method').addEventListener('change', () => { state.method = $('method').value; drawHeat(); selected(); });
$('kind').addEventListener('change', pickVariant);
$('head').addEventListener('change', pickVariant);
$('level').addEventListener('change', pickLevel);
$('target').addEventListener('change', () => { state.target = +$('target').value; selected(); });
$('input').addEventListener('change', () => { state.input = +$('input').value; selected(); });
$('threshold').addEventListener('input', drawEdges);
$('theme').addEventListener('click', () => {
  document.documentElement.dataset.theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  drawTheme();
});

window.flowgraph = {
  state, data, scoreOf,
  pointAt: at => point(nodeAt(at.x, at.y)), leave: () => { point(null); },
  chooseAt: at => { const node = nodeAt(at.x, at.y); if (node !== null) choose(node); },
  cellAt: at => sayCell(cellAt(at.x, at.y)),
  chooseCell: at => { const cell = cellAt(at.x, at.y); if (cell) { [state.target, state.input] = cell; selected(); } },
};
document.documentElement.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', event => {
  document.documentElement.dataset.theme = event.matches ? 'dark' : 'light';
  drawTheme();
});
drawTheme();
state.method = data.first.method;
state.target = data.first.target;
state.input = data.first.input;
options('kind', [...new Set(data.variants.map(v => v.kind))].map(k => [k, k]), data.variants[0].kind);
options('level', layers.map((_, l) => [l + 1, String(l + 1)]), state.layer);
options('input', inputNodes.map((v, j) => [j, `${placeOf[v]} ${labels[levelOf[v]][placeOf[v]]}`]), state.input);
state.variant = data.variants[0];
state.layer = data.first.layer;
$('level').value = String(state.layer);
const top = layers[state.layer - 1];
options('target', labels[top].map((label, p) => [p, `${p} ${label}`]), state.target);
pickVariant();
document.documentElement.dataset.ready = 'true';
