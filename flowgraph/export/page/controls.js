// What a person does: pointer, keys, choosers; then the first picture.

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
    if (layer + 1 !== state.layer) { state.layer = layer + 1; $('level').value = String(state.layer); pickLevel(); return; }
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
  return i >= 0 && i < levels[topLevel()].size && j >= 0 && j < inputNodes.length ? [i, j] : null;
}

function options(id, entries, chosen) {
  const select = $(id);
  select.replaceChildren();
  for (const [value, text] of entries) element('option', text, select).value = String(value);
  select.value = String(chosen);
  select.disabled = entries.length < 2;
}

const numbered = nodes => nodes.map((v, k) => [k, `${placeOf[v]} ${label(v)}`]);

function pickVariant() {
  const kind = $('kind').value, head = $('head').value;
  const heads = data.variants.filter(v => v.kind === kind).map(v => v.head);
  options('head', heads.map(h => [h, h]), heads.includes(head) ? head : heads[0]);
  state.variant = data.variants.find(v => v.kind === kind && v.head === $('head').value);
  const names = data.methods.filter(m => m === 'flow' || state.variant.scores.some(s => s.method === m));
  options('method', names.map(m => [m, methodName(m)]), names.includes(state.method) ? state.method : names[0]);
  state.method = $('method').value;
  // at first as many edges as can be told apart
  const {sorted, widest} = network(state.variant);
  const least = sorted[Math.max(sorted.length - data.first_edges, 0)] ?? 0;
  $('threshold').value = String(Math.ceil(1000 * Math.sqrt(least / (widest || 1))));
  drawEdges();
  pickLevel();
}

function pickLevel() {
  state.layer = +$('level').value;
  const size = levels[topLevel()].size;
  state.target = Math.min(state.target, size - 1);
  options('target', numbered(Array.from({length: size}, (_, p) => targetNode(p))), state.target);
  drawHeat();
  selected();
}

// The step of an arrow key, which then does not scroll the page
function step(event, steps) {
  if (event.key in steps) event.preventDefault();
  return steps[event.key];
}

const within = (k, count) => Math.min(Math.max(k, 0), count - 1);

$('graph-area').addEventListener('keydown', event => {
  const now = state.cursor ?? targetNode(state.target);
  const by = step(event, {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]});
  if (by) {
    const k = within(levelOf[now] + by[0], levels.length);
    point(offsets[k] + within(placeOf[now] + by[1], levels[k].size));
  }
  if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(now); }
  if (event.key === 'Escape') point(null);
});
$('heat-area').addEventListener('keydown', event => {
  const by = step(event, {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]});
  if (!by) return;
  state.target = within(state.target + by[0], levels[topLevel()].size);
  state.input = within(state.input + by[1], inputNodes.length);
  selected();
});

$('method').addEventListener('change', () => { state.method = $('method').value; drawHeat(); selected(); });
$('kind').addEventListener('change', pickVariant);
$('head').addEventListener('change', pickVariant);
$('level').addEventListener('change', pickLevel);
$('target').addEventListener('change', () => { state.target = +$('target').value; selected(); });
$('input').addEventListener('change', () => { state.input = +$('input').value; selected(); });
$('threshold').addEventListener('input', drawEdges);

const system = matchMedia('(prefers-color-scheme: dark)');
function theme(dark) {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  drawTheme();
}
$('theme').addEventListener('click', () => theme(document.documentElement.dataset.theme !== 'dark'));
system.addEventListener('change', () => theme(system.matches));

// what Bokeh's events call (document.py)
window.flowgraph = {
  state, data,
  pointAt: at => point(nodeAt(at.x, at.y)),
  chooseAt: at => { const node = nodeAt(at.x, at.y); if (node !== null) choose(node); },
  cellAt: at => { const cell = cellAt(at.x, at.y); if (cell) sayCell(...cell); else say(''); },
  chooseCell: at => { const cell = cellAt(at.x, at.y); if (cell) { [state.target, state.input] = cell; selected(); } },
  leave: () => { point(null); say(''); },
};

Object.assign(state, {method: data.first.method, layer: data.first.layer, target: data.first.target, input: data.first.input});
options('kind', [...new Set(data.variants.map(v => v.kind))].map(k => [k, k]), data.variants[0].kind);
options('level', layers.map((_, l) => [l + 1, String(l + 1)]), state.layer);
options('input', numbered(inputNodes), state.input);
theme(system.matches);
pickVariant();
document.querySelector('main').hidden = false;
// ready when it has been painted: after the frame that lays it out
requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.ready = 'true'; }));
