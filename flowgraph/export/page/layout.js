// Labels along the top follow the width that the window leaves a picture (page.css).

// Every k-th label, k the least at which neighbours do not touch
function spread(figure, count) {
  const axis = figure.above[0], pitch = figure.inner_width / count;
  const step = Math.max(1, Math.ceil(data.least_pitch / pitch));
  axis.ticker.ticks = Array.from({length: Math.ceil(count / step)}, (_, k) => k * step);
}

// Names of levels stand on end where they would touch
function turn(figure, names) {
  const widest = Math.max(...names.map(name => name.length)) * 6.6;
  figure.above[0].major_label_orientation = figure.inner_width / names.length < widest ? Math.PI / 2 : 'horizontal';
}

const fits = {heat: () => spread(heat, inputNodes.length), graph: () => turn(graph, levels.map(level => level.name))};
for (const [figure, fit] of [[heat, fits.heat], [graph, fits.graph]]) {
  figure.properties.inner_width.change.connect(fit);
  fit();
}
