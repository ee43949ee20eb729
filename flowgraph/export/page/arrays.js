// What is known: levels, nodes, edges and scores of the data that document.py packed.
//
// The scripts of this folder are one function's body, put together in the order maxflow, arrays, layout, drawing,
// words, controls. Its arguments: graph, heat (figures), edges, lit, flow, cut, marks, cells, image (data sources),
// colours (the heat map's mapper), data (see document.py).
const {levels, layers, inputs, offsets, labels, tokens} = data;
const n = offsets[levels.length];
const levelOf = new Int32Array(n), placeOf = new Int32Array(n);
levels.forEach((level, k) => {
  for (let p = 0; p < level.size; p++) { levelOf[offsets[k] + p] = k; placeOf[offsets[k] + p] = p; }
});
const inputNodes = inputs.flatMap(k => Array.from({length: levels[k].size}, (_, p) => offsets[k] + p));
const columnOf = new Map(inputNodes.map((node, column) => [node, column]));
const state = {variant: null, method: null, layer: layers.length, target: 0, input: 0, cursor: null, flow: null};
const topLevel = () => layers[state.layer - 1];
const targetNode = position => offsets[topLevel()] + position;

function unpacked(Kind, text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  return new Kind(bytes.buffer);
}

// Edges of a variant in order of their sources, and by target; unpacked when they are first asked for
function network(variant) {
  if (variant.net) return variant.net;
  const degree = unpacked(Int32Array, variant.degree), to = unpacked(Int32Array, variant.target);
  const cap = unpacked(Float64Array, variant.capacity), from = new Int32Array(cap.length);
  const start = new Int32Array(n + 1), startTo = new Int32Array(n + 1), byTo = new Int32Array(cap.length);
  for (let v = 0; v < n; v++) from.fill(v, start[v], start[v + 1] = start[v] + degree[v]);
  for (const v of to) startTo[v + 1]++;
  for (let v = 0; v < n; v++) startTo[v + 1] += startTo[v];
  const fill = startTo.slice();
  for (let e = 0; e < cap.length; e++) byTo[fill[to[e]]++] = e;
  const sorted = cap.slice().sort();  // capacities alone, smallest first
  return variant.net = {n, from, to, cap, start, byTo, startTo, sorted, widest: sorted.at(-1) ?? 0, flows: new Map()};
}

// Scores of the chosen method at the chosen level, row by row; null where the page does not hold them
function scores() {
  const key = `${state.method}/${state.layer}`;
  const found = state.variant.scores.find(s => s.key === key);
  return found ? found.array ??= unpacked(Float64Array, found.values) : null;
}

// Score of a cell; NaN where the page neither holds it nor has computed it yet
function known(target, input) {
  const found = scores();
  if (found) return found[target * inputNodes.length + input];
  const pair = `${targetNode(target)}/${inputNodes[input]}`;
  return state.method === 'flow' ? network(state.variant).flows.get(pair)?.value ?? NaN : NaN;
}

function scoreOf(target, input) {
  if (state.method === 'flow' && !scores()) return pairFlow(targetNode(target), inputNodes[input]).value;
  return known(target, input);
}

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
