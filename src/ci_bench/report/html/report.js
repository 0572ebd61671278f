"use strict";
/* The report's own part: which charts a case has, and how each is told to Observable Plot. The names in charts only ever become
   text nodes, attributes and options, never markup. */
(() => {
  const colour = (number) => `var(--c${number % 8})`;
  const moods = { bad: "var(--bad)", open: "var(--open)", unsure: "var(--unsure)", new: "var(--new)", better: "var(--good)", good: "var(--c5)" };
  const dashes = [null, "7 3", "2 3", "9 3 2 3"];
  const thin = { stroke: "currentColor", strokeOpacity: 0.12 };
  const figures = (value) => (value === null || value === undefined ? "unknown" : String(Number(value.toPrecision(4))));
  const floor = 1e-3;

  function element(name, { text, ...attributes } = {}, ...children) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function figure(kind, title, legend, note, label, options, heading = "h4") {
    const holder = element("div", { "data-chart": kind });
    const items = legend.map(([name, swatch]) => {
      const item = element("li", {}, element("span", { class: `swatch ${swatch}`, "aria-hidden": "true" }), name);
      return item;
    });
    const caption = element("figcaption", {}, element(heading, { text: title }));
    if (items.length) caption.append(element("ul", { class: "legend" }, ...items));
    if (note) caption.append(element("p", { text: note, class: "muted" }));
    ciBench.chart(holder, { label: `${title}. ${label}`, options });
    return element("figure", {}, caption, holder);
  }

  const edge = { r: 5, stroke: "var(--bad)", fill: "var(--ground)", strokeWidth: 1.8, symbol: "triangle", className: "beyond" };
  const past = (value, unit) => `${figures(value)} ${unit}, beyond the axis`;
  const cutNote = (number) => number && `${number} beyond the axis: a triangle at its edge, whose title says the value.`;

  /* Names that fit: what all have in common at both ends is left out first, so that what differs stays. */
  function distinct(names, most) {
    if (names.length < 2 || names.every((name) => name.length <= most)) return names;
    const same = (texts) => { let n = 0; while (n < texts[0].length && texts.every((text) => text[n] === texts[0][n])) n += 1; return n; };
    const front = same(names);
    const shown = unlike(names, names.map((name) => (name.length <= most || front < 8 ? name : `…${name.slice(front - 4)}`)), most);
    return numbered(names, shown, most);
  }

  /* Names that differ in several places may still look alike: a number tells them apart, and the title has the whole name. */
  function numbered(names, shown, most) {
    return shown.map((text, i) => {
      const alike = [...new Set(names.filter((_, j) => shown[j] === text))];
      const number = `#${alike.indexOf(names[i]) + 1}`;
      return alike.length > 1 ? `${text.slice(0, Math.max(3, most - number.length - 1))} ${number}` : text;
    });
  }

  /* The middle of what is still too long is left out; of names that would look alike, the part around their difference stays. */
  function unlike(names, front, most) {
    const half = Math.max(3, Math.floor((most - 1) / 2));
    const shown = front.map((name) => (name.length <= most ? name : `${name.slice(0, half)}…${name.slice(-half)}`));
    return shown.map((text, i) => {
      const twins = names.filter((name, j) => shown[j] === text && name !== names[i]);
      if (!twins.length) return text;
      const at = Math.min(...twins.map((name) => { let n = 0; while (names[i][n] === name[n] && n < names[i].length) n += 1; return n; }));
      const from = Math.max(0, Math.min(at - 2, names[i].length - 2 * half));
      return `${from ? "…" : ""}${names[i].slice(from, from + 2 * half)}${from + 2 * half < names[i].length ? "…" : ""}`;
    });
  }

  /* A chart's series were taken in turns, and share where. */
  function points(chart, series) {
    const [at, launches] = chart.places[series.places];
    return series.values.map((value, i) => ({ value, at: at[i], launch: launches[i] }));
  }
  function doubtful(chart, series) {
    const every = points(chart, series);
    return series.doubtful.map((i, n) => ({ ...every[i], doubt: series.doubts[n] }));
  }
  const named = (series) => series.map((one) => [one.label, `s${one.colour % 8}`]);

  function said(chart) {
    return chart.series.map((one) => {
      const range = one.interval ? `, interval ${figures(one.interval[0])} to ${figures(one.interval[1])}` : "";
      const doubt = one.doubtful.length ? `, ${one.doubtful.length} doubtful` : "";
      return `${one.label}: ${one.values.length + one.left_out} samples, median ${figures(one.median)}${range}${doubt}`;
    }).join("; ");
  }

  /* How the samples of each side and arm are spread: a stroke for each sample, a thick one for the median, a bar for the interval. */
  function spread(chart) {
    const rows = chart.series;
    const axis = ciBench.usual(rows.map((one) => one.values));
    const within = (all) => all.filter((point) => !ciBench.beyond(axis, point.value));
    const far = rows.flatMap((one, row) => points(chart, one).filter((point) => ciBench.beyond(axis, point.value)).map((point) => ({ ...point, row, label: one.label })));
    const options = () => ({
      height: 52 * rows.length + 72, marginLeft: 14, marginTop: 22,
      x: { label: chart.unit, nice: !axis, ...(axis && { domain: axis }) }, y: { domain: rows.map((_, i) => i), axis: null, padding: 0.45 },
      marks: [
        Plot.gridX(thin),
        ...rows.flatMap((one, i) => [
          Plot.tickX(within(points(chart, one)), { x: "value", y: () => i, stroke: colour(one.colour), strokeOpacity: 0.4, className: "samples" }),
          Plot.tickX([one.median], { x: (value) => ciBench.held(axis, value), y: () => i, stroke: colour(one.colour), strokeWidth: 3.5, className: "median" }),
          one.interval ? Plot.ruleY([one.interval], { x1: (range) => ciBench.held(axis, range[0]), x2: (range) => ciBench.held(axis, range[1]), y: () => i, dy: 19, stroke: colour(one.colour), strokeWidth: 4, className: "interval" }) : null,
          Plot.dot(within(doubtful(chart, one)), { x: "value", y: () => i, r: 4, stroke: "var(--bad)", strokeWidth: 1.5, className: "doubtful" }),
          Plot.text([one.label], { frameAnchor: "left", y: () => i, text: (label) => label, dy: -20, fill: colour(one.colour), fontWeight: 600, lineWidth: 36, textOverflow: "ellipsis-end", className: "name" }),
        ]),
        ...(far.length ? [Plot.dot(far, { x: (point) => ciBench.held(axis, point.value), y: "row", title: (point) => `${point.label}\n${past(point.value, chart.unit)}`, ...edge })] : []),
      ],
    });
    const told = rows.some((one) => one.interval) ? "A stroke is a sample, a thick one the median, a bar the judged interval." : "A stroke is a sample, a thick one the median.";
    const note = [told, cutNote(far.length)].filter(Boolean).join(" ");
    return figure("spread", `${chart.title}: spread of the samples`, [], note, `In ${chart.unit}. ${said(chart)}`, options);
  }

  /* The samples in the order taken; a dashed line is where a new launch begins. */
  function order(chart) {
    const rows = chart.series;
    const marks = rows.flatMap((one) => one.doubtful);
    const axis = ciBench.usual(rows.map((one) => one.values));
    const within = (all) => all.filter((point) => !ciBench.beyond(axis, point.value));
    const far = rows.flatMap((one) => points(chart, one).filter((point) => ciBench.beyond(axis, point.value)).map((point) => ({ ...point, label: one.label })));
    const options = () => ({
      height: 272, marginLeft: 52, x: { label: "order taken (launch, block)", ticks: [] }, y: { label: chart.unit, nice: !axis, ...(axis && { domain: axis }) },
      marks: [
        Plot.gridY(thin),
        Plot.ruleX(chart.starts, { stroke: "currentColor", strokeOpacity: 0.35, strokeDasharray: "3 3", className: "launch" }),
        ...rows.map((one, i) => Plot.dot(within(points(chart, one)), { x: "at", y: "value", r: 2.6, stroke: colour(one.colour), fill: colour(one.colour), symbol: ["circle", "square", "triangle", "diamond2"][i % 4], className: "samples", tip: true, title: (point) => `${one.label}\n${figures(point.value)} ${chart.unit}, launch ${point.launch + 1}` })),
        ...rows.map((one) => Plot.dot(within(doubtful(chart, one)), { x: "at", y: "value", r: 6, stroke: "var(--bad)", strokeWidth: 1.8, className: "doubtful", title: "doubt" })),
        ...(far.length ? [Plot.dot(far, { x: "at", y: (point) => ciBench.held(axis, point.value), title: (point) => `${point.label}\n${past(point.value, chart.unit)}, launch ${point.launch + 1}`, ...edge })] : []),
      ],
    });
    const ringed = marks.length ? [["taken while throttled or disturbed", "sbad"]] : [];
    const cut = rows.reduce((sum, one) => sum + one.left_out, 0);
    const reasons = [...new Set(rows.flatMap((one) => one.doubts))].slice(0, 3).join("; ");
    const note = [reasons && `Doubtful: ${reasons}.`, cut && `${cut} further samples are not drawn.`, cutNote(far.length)].filter(Boolean).join(" ");
    return figure("order", `${chart.title}: samples in the order taken`, [...named(rows), ...ringed], note, `In ${chart.unit}. ${said(chart)}`, options);
  }

  /* Medians of base and head beside each other, metric by metric. */
  function dots(chart) {
    const rows = chart.rows.map((row, index) => ({ ...row, index }));
    const pairs = rows.filter((row) => row.base !== null && row.head !== null);
    const one = rows.every((row) => row.base === null);
    const all = rows.flatMap((row) => [row.base, row.head]).filter((value) => value !== null);
    const wide = Math.min(...all) > 0 && Math.max(...all) > 30 * Math.min(...all);
    const options = (width) => ({
      height: 26 * rows.length + 68, marginLeft: Math.min(240, width * 0.45), x: { label: chart.unit, nice: true, ...(wide ? { type: "log", tickFormat: "~g", ticks: 5 } : { zero: true }) },
      y: { type: "point", domain: rows.map((row) => row.index), label: null },
      marks: [
        Plot.axisY({ tickSize: 0, label: null, tickFormat: (index) => labels(width)[index], title: (index) => rows[index].label }),
        Plot.gridX(thin),
        Plot.ruleY(pairs, { y: "index", x1: "base", x2: "head", stroke: (row) => moods[row.mood], strokeWidth: 3, strokeOpacity: 0.6 }),
        Plot.dot(rows, { y: "index", x: "base", r: 5, stroke: colour(0), fill: "var(--ground)", strokeWidth: 2, className: "base" }),
        Plot.dot(rows, { y: "index", x: "head", r: 4, fill: colour(1), className: "head", tip: true, title: (row) => `${row.label}\nbase ${figures(row.base)}, head ${figures(row.head)} ${chart.unit}` }),
      ],
    });
    const labels = (width) => distinct(rows.map((row) => row.label), Math.floor(Math.min(230, width * 0.43) / 7.5));
    const text = rows.map((row) => `${row.label}: base ${figures(row.base)}, head ${figures(row.head)}`).join("; ");
    return figure("dots", `${chart.title}${chart.arm ? ` of ${chart.arm}` : ""}${wide ? " (logarithmic)" : ""}`, one ? [["head", "s1"]] : [["base", "s0"], ["head", "s1"]], "", `In ${chart.unit}. ${text}`, options);
  }

  const signals = { loss: "Loss", grad_norm: "Gradient norm" };
  const along = (steps, values) => values.map((value, i) => ({ step: steps[i], value })).filter((point) => point.value !== null);
  const seedOf = (chart, all) => (new Set(all.map((one) => one.seed)).size > 1 ? `, seed ${chart.seed}` : "");
  /* The word stands above the frame, on the side of its line that has room for it. */
  const left = (step, steps) => (step === null ? [] : [
    Plot.ruleX([step], { stroke: "var(--bad)", strokeWidth: 1.5, strokeDasharray: "4 3", className: "divergence" }),
    Plot.text([step], { x: (value) => value, frameAnchor: "top", dy: -9, dx: 0, text: (value) => `diverges at step ${value}`, fill: "var(--bad)", textAnchor: step > (steps[0] + steps.at(-1)) / 2 ? "end" : "start", className: "divergence" }),
  ]);

  /* Training runs above each other. The band is the noise envelope: how far rounding alone may drive a run from the reference. */
  function curves(chart, all) {
    const band = chart.low.map((low, i) => ({ step: chart.steps[i], low, high: chart.high[i] }));
    const options = () => ({
      height: 298, marginLeft: 52, marginTop: 40, x: { label: "step" }, y: { label: signals[chart.signal].toLowerCase(), nice: true },
      marks: [
        Plot.gridY(thin),
        Plot.areaY(band, { x: "step", y1: "low", y2: "high", fill: "var(--band)", fillOpacity: 0.45, className: "envelope" }),
        ...chart.curves.map((curve, i) => Plot.lineY(along(chart.steps, curve.values), { x: "step", y: "value", stroke: colour(curve.colour), strokeWidth: 2, strokeDasharray: dashes[i % 4], className: "curve" })),
        ...left(chart.first_step, chart.steps),
      ],
    });
    const legend = chart.curves.map((curve) => [curve.label, `s${curve.colour % 8}`]);
    if (band.length) legend.push(["noise envelope, at the limit of parity", "sband"]);
    const some = chart.steps.length < chart.total ? `${chart.steps.length} of ${chart.total} steps are drawn.` : "";
    const ends = chart.curves.map((curve) => `${curve.label} ends at ${figures(curve.values.filter((value) => value !== null).at(-1))}`).join("; ");
    const parted = chart.first_step === null ? "" : `; first divergent step ${chart.first_step}`;
    return figure("curves", `${signals[chart.signal]}${seedOf(chart, all)}`, legend, some, `${chart.total} steps; ${ends}${parted}`, options);
  }

  /* The same difference that parity is judged by, which is too small to be seen between the curves. */
  function scores(chart, all) {
    const options = () => ({
      height: 298, marginLeft: 52, marginTop: 40, x: { label: "step" }, y: { type: "log", label: "rounding envelopes from the reference", tickFormat: "~g", nice: true },
      marks: [
        Plot.gridY(thin),
        Plot.ruleY([chart.limit], { stroke: "var(--bad)", strokeWidth: 1.5, className: "limit" }),
        Plot.text([chart.limit], { y: (value) => value, frameAnchor: "right", dy: -7, text: () => "parity ends here", fill: "var(--bad)", className: "limit" }),
        ...chart.curves.map((curve, i) => Plot.lineY(along(chart.steps, curve.values), { x: "step", y: (point) => Math.max(point.value, floor), stroke: colour(curve.colour), strokeWidth: 2, strokeDasharray: dashes[i % 4], className: "curve", marker: chart.steps.length < 60 ? "dot" : null })),
        ...left(chart.first_step, chart.steps),
      ],
    });
    const worst = chart.curves.map((curve) => `${curve.label}: at most ${figures(Math.max(...curve.values.filter((value) => value !== null)))}`).join("; ");
    const low = chart.curves.some((curve) => curve.values.some((value) => value !== null && value < floor));
    const title = `${signals[chart.signal]}${seedOf(chart, all)}: distance from the reference`;
    return figure("scores", title, chart.curves.map((curve) => [curve.label, `s${curve.colour % 8}`]), low ? "Distances below 0.001, and none at all, are drawn at 0.001." : "", `${worst}; limit ${chart.limit}`, options);
  }

  /* All judged changes of the run with their intervals; left is better, right is worse. */
  function changes(chart) {
    const rows = chart.rows.map((row, index) => ({ ...row, index }));
    const usual = ciBench.usual([rows.map((row) => row.change), [-10, 10]]);
    const axis = usual && [Math.min(usual[0], 0), Math.max(usual[1], 0)];
    const far = rows.filter((row) => ciBench.beyond(axis, row.change));
    const options = (width) => ({
      height: (names(width).some((name) => name.includes("\n")) ? 36 : 22) * rows.length + 72, marginLeft: Math.min(470, width * 0.45), x: { label: "change in % (right is worse)", nice: !axis, grid: false, ...(axis && { domain: [Math.min(0, axis[0]), Math.max(0, axis[1])] }) },
      y: { type: "band", domain: rows.map((row) => row.index), label: null },
      marks: [
        Plot.axisY({ tickSize: 0, label: null, tickFormat: (index) => names(width)[index], title: (index) => rows[index].label }),
        Plot.gridX(thin),
        Plot.ruleX([0], { stroke: "currentColor" }),
        Plot.tickX(rows.filter((row) => !ciBench.beyond(axis, row.threshold)), { y: "index", x: "threshold", stroke: "var(--muted)", className: "threshold" }),
        Plot.ruleY(rows, { y: "index", x1: (row) => ciBench.held(axis, row.low), x2: (row) => ciBench.held(axis, row.high), stroke: (row) => moods[row.mood], strokeWidth: 2.5, className: "interval" }),
        Plot.dot(rows.filter((row) => !far.includes(row)), { y: "index", x: "change", r: 4.5, fill: (row) => moods[row.mood], symbol: (row) => row.mood, className: "change", tip: true, title: (row) => `${row.label}\n${row.verdict}: ${figures(row.change)} % (${figures(row.low)} to ${figures(row.high)} %)` }),
        ...(far.length ? [Plot.dot(far, { ...edge, y: "index", x: (row) => ciBench.held(axis, row.change), symbol: () => "beyond", title: (row) => `${row.label}\n${row.verdict}: ${past(row.change, "%")}` })] : []),
      ],
      symbol: { domain: ["bad", "open", "unsure", "better", "good", "new", "beyond"], range: ["circle", "triangle", "wye", "diamond2", "square", "star", "cross"] },
    });
    const parts = rows.map((row) => row.label.split(" · "));
    const metrics = parts.map((part) => part.at(-1)), cases = parts.map((part) => part.slice(0, -1).join(" · "));
    /* Case and metric on one line if both fit, else on two. */
    const names = (width) => {
      const most = Math.floor(Math.min(460, width * 0.44) / 7.5);
      const [first, second] = [distinct(cases, most), distinct(metrics, most)];
      const joined = first.map((name, i) => (name ? `${name} · ${second[i]}` : second[i]));
      return joined.every((name) => name.length <= most) ? joined : first.map((name, i) => `${name}\n${second[i]}`);
    };
    const note = `A dot is the judged change, a bar its interval, a grey stroke the least change that counts. Circle: regressed, triangle: open, diamond: improved, square: unchanged.${chart.left_out ? ` ${chart.left_out} more are not drawn.` : ""}${far.length ? ` Cross: ${far.length} beyond the axis, the title says the value.` : ""}`;
    const label = rows.slice(0, 10).map((row) => `${row.label}: ${row.verdict}, ${figures(row.change)} %, ${figures(row.low)} to ${figures(row.high)} %`).join("; ");
    return figure("changes", "Judged changes, the worst first", [], note, label, options, "h3");
  }

  /* What each arm takes over one parameter of a grid, at places of equal distance. */
  function sweep(chart) {
    const along = chart.curves.map((curve) => curve.values.map((value, i) => ({ value, place: chart.places[i], label: curve.label })));
    const room = Math.max(2, Math.floor(25 / Math.max(...chart.places.map((place) => place.length)))); // labels beside each other in the narrowest window
    const ticks = chart.places.filter((_, i) => i % Math.ceil(chart.places.length / room) === 0);
    const options = () => ({
      height: 264, marginLeft: 60, marginBottom: 36, x: { type: "point", domain: chart.places, label: chart.parameter, ticks },
      y: { type: "log", label: chart.unit, tickFormat: "~g", ticks: 5 },
      marks: [
        Plot.gridY(thin),
        ...along.map((rows, i) => Plot.lineY(rows, { x: "place", y: "value", stroke: colour(chart.curves[i].colour), strokeWidth: 2, strokeDasharray: dashes[i % 4], className: "curve" })),
        ...along.map((rows, i) => Plot.dot(rows, { x: "place", y: "value", r: 3, fill: colour(chart.curves[i].colour), tip: true, title: (row) => `${row.label}, ${chart.parameter}=${row.place}\n${figures(row.value)} ${chart.unit}` })),
      ],
    });
    const note = chart.cases > 1 ? `Each place is the geometric mean of ${chart.cases} cases.` : "";
    const label = chart.curves.map((curve) => `${curve.label}: ${figures(curve.values[0])} to ${figures(curve.values.at(-1))}`).join("; ");
    return figure("sweep", `${chart.name}: step time of head over ${chart.parameter} (logarithmic)`, chart.curves.map((curve) => [curve.label, `s${curve.colour % 8}`]), note, `In ${chart.unit}. ${label}`, options, "h3");
  }

  function drawCase(details, data) {
    const inside = details.querySelector(".inside");
    if (inside.dataset.built) return;
    inside.dataset.built = "yes";
    const mine = data.cases[Number(inside.dataset.number)];
    inside.innerHTML = mine.html; /* the report's own markup: every text in it was escaped when it was made */
    inside.querySelector(".charts").append(
      ...mine.curves.filter((one) => one.signal === "loss").map((one) => curves(one, mine.curves)),
      ...mine.scores.filter((one) => one.signal === "loss").map((one) => scores(one, mine.scores)),
      ...mine.samples.flatMap((one) => [spread(one), order(one)]),
      ...mine.dots.map(dots),
      ...mine.curves.filter((one) => one.signal !== "loss").map((one) => curves(one, mine.curves)),
      ...mine.scores.filter((one) => one.signal !== "loss").map((one) => scores(one, mine.scores)),
    );
  }

  function goto(hash) {
    const target = hash.length > 1 ? document.getElementById(hash.slice(1)) : null;
    if (!target || target.tagName !== "DETAILS") return;
    target.open = true;
    target.querySelector("summary").focus({ preventScroll: true });
    target.scrollIntoView();
  }

  ciBench.data.then((data) => {
    const overview = document.getElementById("changes");
    if (overview) overview.append(changes(data.changes));
    const grids = document.getElementById("sweeps");
    if (grids) grids.append(...data.sweeps.map(sweep));
    for (const details of document.querySelectorAll("details.case")) {
      details.addEventListener("toggle", () => { if (details.open) drawCase(details, data); });
      if (details.open) drawCase(details, data);
    }
    const table = document.getElementById("cases");
    if (table) {
      ciBench.table(table, {
        search: document.getElementById("search"),
        filters: [...document.querySelectorAll("select.filter")],
        count: document.getElementById("count"),
        what: "rows",
        onChange: (shown) => {
          const kept = new Set(shown.map((row) => row.dataset.case));
          for (const details of document.querySelectorAll("details.case")) details.hidden = !kept.has(details.id);
        },
      });
    }
    const all = document.getElementById("open-all");
    if (all) {
      all.addEventListener("click", () => {
        for (const details of document.querySelectorAll("details.case:not([hidden])")) details.open = true;
      });
    }
    goto(location.hash);
    addEventListener("hashchange", () => goto(location.hash));
    document.documentElement.dataset.ready = "yes";
  });
})();
