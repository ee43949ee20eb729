// Words and numbers: only by textContent, so nothing a token holds can become markup.
const $ = id => document.getElementById(id);
const digits = value => Number(value).toPrecision(6);
const methodName = method => data.names[method] ?? method;
const label = node => labels[levelOf[node]][placeOf[node]];
const place = node => `(${levels[levelOf[node]].name}, ${placeOf[node]})`;

function say(text) { $('status').textContent = text; }

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

function named(node, parent) {
  const token = tokens[levelOf[node]][placeOf[node]];
  element('code', token, parent);
  if (!token.trim()) parent.append(label(node));  // nothing to be seen: spelt out
  parent.append(` ${place(node)}`);
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
  number(scoreOf(state.target, state.input), fact(methodName(state.method), list)).id = 'value';
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
  const values = found.subarray(state.target * width, (state.target + 1) * width);
  const order = [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, 8);
  row(table, ['input', methodName(state.method)], 'th');
  for (const j of order) row(table, [cell => named(inputNodes[j], cell), cell => number(values[j], cell)]);
}

function sayPair(source, sink, result, cutValue, carrying, crossing) {
  const value = scoreOf(state.target, state.input);
  say(`${label(source)} ${place(source)} from ${label(sink)} ${place(sink)}: ${methodName(state.method)} `
    + `${Number.isNaN(value) ? 'not in this file' : digits(value)}; maximum flow ${digits(result.value)} over `
    + `${carrying} edges, minimum cut ${digits(cutValue)} of ${crossing.length} edges`);
}

function sayNode(node) {
  const {down, up} = passages(node);
  const three = (nodes, amount) => nodes.filter(v => v !== node && amount[v] > 0)
    .sort((a, b) => amount[b] - amount[a]).slice(0, 3).map(v => `${label(v)} ${digits(amount[v])}`).join(', ');
  const top = layers[layers.length - 1];
  const from = three(inputNodes, down), to = three(Array.from({length: levels[top].size}, (_, p) => offsets[top] + p), up);
  say(`${label(node)} ${place(node)}` + (from && `; comes from ${from}`) + (to && `; goes to ${to}`));
}

function sayCell(target, input) {
  const value = known(target, input), sink = inputNodes[input];
  say(`${label(targetNode(target))} (${target}) holds of ${label(sink)} (${placeOf[sink]}): `
    + (Number.isNaN(value) ? 'choose the pair to compute it' : digits(value)));
}
