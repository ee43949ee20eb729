// Maximum flow by Dinic's algorithm (E. A. Dinic 1970), on doubles.
//
// net: n nodes; edge e runs from[e] -> to[e] with capacity cap[e]; edges sorted by from, those of node v are
// start[v] .. start[v+1]-1; byTo lists edges sorted by to, likewise with startTo.
// Returns the flow on each edge, its value, and which nodes can still be reached from s: the cut's source side.
function maximumFlow(net, s, t) {
  const {n, from, to, cap, start, byTo, startTo} = net;
  const flow = new Float64Array(cap.length);
  const depth = new Int32Array(n), next = new Int32Array(n), queue = new Int32Array(n);
  // below this an edge is full: what rounding leaves of the largest capacity, and never a capacity itself
  const dust = cap.reduce((a, b) => Math.max(a, b), 0) * 1e-15;
  // arcs of v: 0 .. out-1 are its outgoing edges, with the room left on them, then its incoming ones, with the
  // flow that can go back; an arc is taken as (edge, way), way 1 along the edge and -1 against it
  const out = v => start[v + 1] - start[v];
  const degree = v => out(v) + startTo[v + 1] - startTo[v];
  const room = (e, way) => way > 0 ? cap[e] - flow[e] : flow[e];
  function label() {
    depth.fill(-1); depth[s] = 0; queue[0] = s;
    for (let head = 0, tail = 1; head < tail && depth[t] < 0; head++) {
      const v = queue[head], below = depth[v] + 1;
      for (let e = start[v]; e < start[v + 1]; e++)
        if (depth[to[e]] < 0 && cap[e] - flow[e] > dust) { depth[to[e]] = below; queue[tail++] = to[e]; }
      for (let k = startTo[v]; k < startTo[v + 1]; k++) {
        const e = byTo[k];
        if (depth[from[e]] < 0 && flow[e] > dust) { depth[from[e]] = below; queue[tail++] = from[e]; }
      }
    }
    return depth[t] >= 0;
  }
  let value = 0;
  while (label()) {
    next.fill(0);
    const path = [];  // arcs from s to v
    let v = s;
    for (;;) {
      if (v === t) {
        let least = Infinity;
        for (const [, e, way] of path) least = Math.min(least, room(e, way));
        for (const [, e, way] of path) flow[e] += way * least;
        value += least;
        const full = path.findIndex(([, e, way]) => room(e, way) <= dust);
        v = path[full][0];
        path.length = full;
        continue;
      }
      const outgoing = out(v), last = degree(v), below = depth[v] + 1;
      let step = null;
      for (; next[v] < last; next[v]++) {
        const way = next[v] < outgoing ? 1 : -1;
        const e = way > 0 ? start[v] + next[v] : byTo[startTo[v] + next[v] - outgoing];
        const w = way > 0 ? to[e] : from[e];
        if (depth[w] === below && room(e, way) > dust) { step = [v, e, way]; v = w; break; }
      }
      if (step) { path.push(step); continue; }
      if (v === s) break;
      v = path.pop()[0];
      next[v]++;
    }
  }
  return {value, flow, reached: Uint8Array.from(depth, d => d >= 0 ? 1 : 0)};
}
