// What is drawn: only by setting the data of Bokeh's sources.
const MOST_EDGES = 20000, MOST_LIT = 1500;

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

// Numbers of the values above least, largest first
function largest(values, most, least) {
  const found = [];
  for (let e = 0; e < values.length; e++) if (values[e] > least) found.push(e);
  found.sort((a, b) => values[b] - values[a]);
  return found.slice(0, most);
}

const maximum = values => values.reduce((a, b) => b > a ? b : a, 0) || 1;

// Position of the slider -> capacity: square, since most capacities are small
const limit = () => network(state.variant).widest * (+$('threshold').value / 1000) ** 2;

// First position in ascending numbers that is not below value
function position(ascending, value) {
  let low = 0, high = ascending.length;
  while (low < high) { const mid = (low + high) >> 1; if (ascending[mid] < value) low = mid + 1; else high = mid; }
  return low;
}

function drawEdges() {
  const {cap, sorted, widest} = network(state.variant), least = limit();
  const count = sorted.length - position(sorted, least);
  const drawn = Math.max(least, sorted[sorted.length - MOST_EDGES] ?? 0), chosen = [];
  for (let e = 0; e < cap.length; e++) if (cap[e] >= drawn) chosen.push(e);
  chosen.sort((a, b) => cap[a] - cap[b]);  // wide lines over thin ones
  edges.data = segments(chosen, e => cap[e] / widest);
  const shown = count > chosen.length ? `the ${chosen.length} largest of ${count}` : `${count}`;
  $('shown').textContent = `≥ ${least.toPrecision(3)}: ${shown} of ${sorted.length} edges`;
}

function drawLit(node) {
  if (node === null) { lit.data = segments([], e => 0); return; }
  const {amount} = passages(node), top = maximum(amount);
  lit.data = segments(largest(amount, MOST_LIT, 0.005 * top), e => Math.sqrt(amount[e] / top));
}

// 0; where all scores are above a quarter of the largest, the least: from 0 they would look alike (as figure.py)
function startOfScale(values) {
  const least = values.reduce((a, b) => b < a ? b : a, Infinity), top = maximum(values);
  return top / 4 < least && least < top ? least : 0;
}

function drawHeat() {
  const height = levels[topLevel()].size, width = inputNodes.length;
  const values = Float64Array.from({length: height * width}, (_, k) => known(Math.floor(k / width), k % width));
  colours.setv({low: startOfScale(values), high: maximum(values)});
  const matrix = new data.matrix.constructor(values, [height, width]);  // Bokeh's own kind of array
  image.data = {image: [matrix], x: [-0.5], y: [-0.5], dw: [width], dh: [height]};
}

function drawPair() {
  const source = targetNode(state.target), sink = inputNodes[state.input];
  const net = network(state.variant), result = state.flow = pairFlow(source, sink);
  const crossing = [];
  for (let e = 0; e < net.cap.length; e++) if (result.reached[net.from[e]] && !result.reached[net.to[e]]) crossing.push(e);
  crossing.sort((a, b) => net.cap[b] - net.cap[a]);
  const carrying = largest(result.flow, Infinity, 0), top = maximum(result.flow);
  flow.data = segments(carrying.slice(0, MOST_EDGES), e => result.flow[e] / top);
  const widest = crossing.length ? net.cap[crossing[0]] : 1;
  cut.data = segments(crossing.slice(0, MOST_LIT), e => Math.sqrt(net.cap[e] / widest));
  marks.data = {x: [levelOf[source], levelOf[sink]], y: [placeOf[source], placeOf[sink]]};
  cells.data = {x: [state.input], y: [state.target]};
  const cutValue = crossing.reduce((sum, e) => sum + net.cap[e], 0);
  showPair(source, sink, result, cutValue, carrying.length, crossing);
  sayPair(source, sink, result, cutValue, carrying.length, crossing);
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
