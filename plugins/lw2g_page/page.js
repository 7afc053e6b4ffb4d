"use strict";
(() => {
  const SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const DASHES = [[], [9, 3], [3, 2]];
  const make = (name, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(name), attributes);
    element.append(...children);
    return element;
  };
  const unpack = async (id) => {
    const letters = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const CATEGORIES = ["part", "kind", "decision", "what"];  // fields whose values a figure's key explains
  const distinct = (values) => [...new Set(values)];

  // -- numbers --------------------------------------------------------------------------------------------

  const shown = (value, field) => {
    if (value === null || value === undefined) return "-";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number" || field.digits === null) return String(value);
    return value.toFixed(field.digits).replace(/^-(0(\.0*)?)$/, "$1");  // no minus before a zero
  };
  const isText = (values, at) => {
    const types = new Set(values.map((row) => typeof row[at]));
    return types.has("string") && !types.has("number");  // numbers stay in line where words stand for one of them
  };
  const MOST = 1500;
  const NAMED = 24;  // classes whose names stand at the axes of their confusion

  function table(definition, rows, all) {
    const cells = rows.slice(0, MOST);
    const kinds = definition.fields.map((_, at) => (isText(cells, at) ? "text" : ""));
    const head = definition.fields.map((field, at) =>
      make("th", { scope: "col", textContent: field.title, className: kinds[at] }));
    const body = cells.map((row) => make("tr", {}, ...row.map((value, at) =>
      make("td", { textContent: shown(value, definition.fields[at]), className: kinds[at] }))));
    const cut = rows.length > MOST ? `, of which the first ${MOST} are shown` : "";
    const caption = `${definition.title}: ${rows.length} rows${cut}`;
    const save = make("button", { type: "button", className: "save", textContent: "Save all as CSV" });
    save.onclick = () => {
      const quoted = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
      const lines = [definition.fields.map((field) => field.title), ...all];
      const text = lines.map((line) => line.map(quoted).join(",")).join("\r\n");
      const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      make("a", { href: url, download: `${definition.name}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    };
    const region = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption },
      make("table", {}, make("caption", { textContent: caption }),
        make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
    return [region, save];
  }

  // -- drawings -------------------------------------------------------------------------------------------

  const CONFIG = {
    background: null, font: "system-ui, sans-serif", padding: 2,
    view: { stroke: null },
    axis: {
      labelColor: "var(--muted)", titleColor: "var(--muted)", titleFontWeight: "normal", gridColor: "var(--line)",
      domain: false, ticks: false, labelFontSize: 11, titleFontSize: 12, labelPadding: 5, titlePadding: 8,
      gridOpacity: 0.7, labelLimit: 120, labelSeparation: 6,
    },
    axisBand: { grid: false },
    text: { fontSize: 12 }, rule: { aria: false }, tick: { aria: false },
  };
  const colour = (row, at) => (row.control ? "var(--control)" : `var(--c${at % 10})`);
  const dash = (row, at) => (row.control ? [2, 3] : DASHES[Math.floor(at / 10) % DASHES.length]);

  // Where an axis of accuracies begins: at 0, or at a multiple of ten where all lie in the upper half.
  const beginning = (definition, data) => {
    const values = data.flatMap((datum) => definition.accuracies.map((name) => datum[name])).filter(Number.isFinite);
    const least = Math.min(100, ...values);
    return least < 50 ? 0 : Math.min(90, 10 * Math.floor((least - 1) / 10));
  };

  // Whole numbers that an axis names: each, or every so many that about `most` are named, the last one among them.
  const wholeSteps = (first, last, most) => {
    const every = Math.max(1, Math.ceil((last - first) / most));
    return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => last - at * every).reverse();
  };

  function filled(part, section, definition, panel, data) {
    const accurate = definition.accuracies.length && (!definition.accurate.length || definition.accurate.includes(panel));
    const from = accurate ? beginning(definition, data) : 0;
    const labels = section.rows.map((row) => row.label);
    const steps = wholeSteps(1, Math.max(...data.map((datum) => datum.after).filter(Number.isFinite)), 20);
    const [texts, colours, forms] = [0, 1, 2].map((at) => definition.key.map((entry) => entry[at]));
    const scales = {
      // thousands by letters, small numbers as they are: 280m would be read as millions
      "@short": "abs(datum.value) < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')",
      "@steps": steps,
      "@accuracy": accurate ? { domain: [from, 100], nice: false, zero: false, clamp: true } : { zero: false, padding: 8 },
      "@key": { domain: texts, range: colours.map((name) => `var(--${name})`) },
      "@forms": { domain: texts, range: forms.map((form) => form ?? "circle") },
      "@rows": { domain: labels, range: section.rows.map(colour) },
      "@dashes": { domain: labels, range: section.rows.map(dash) },
      "@shapes": { domain: labels, range: section.rows.map((_, at) => SHAPES[at % SHAPES.length]) },
      "@tip": definition.fields.map(({ name, title, digits }) =>
        digits === null ? { field: name, title } : { field: name, title, type: "quantitative", format: `.${digits}f` }),
    };
    const walk = (value) => {
      if (typeof value === "string") return scales[value] ?? value.replace("@panel", panel).replace("@from", from ? `, the axis begins at ${from}` : "");
      if (Array.isArray(value)) return value.map(walk);
      if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, walk(v)]));
      return value;
    };
    return walk(part);
  }

  const wrapped = (text, most) => text.split(" ").reduce((lines, word) => {
    const last = lines.at(-1);
    if (last && last.length + word.length < most) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
    return lines;
  }, []);

  const LAYOUTS = {
    rows(spec, data, width) {
      const whole = Object.groupBy(data, (datum) => datum.row);
      const labels = Object.entries(whole).map(([row, found]) => {
        const counted = found.map((one) => one.value).filter(Number.isFinite);
        const sum = counted.reduce((all, value) => all + value, 0).toLocaleString("en", { maximumFractionDigits: 1 });
        const total = found[0].part === undefined ? "" : `: ${counted.length ? sum : found[0].value ?? "not counted"}`;
        return { row, lines: wrapped(row + total, width / 6.9) };
      });
      const most = Math.max(...labels.map((label) => label.lines.length));
      spec.height = labels.length * (26 + 14 * most);
      spec.datasets.labels = labels.map(({ row, lines }) => ({ row, label: lines }));
    },
    cells(spec, data, width) {
      const size = Math.max(1, ...data.map((datum) => Math.max(datum.task, datum.after ?? datum.retrieved)));
      const cell = Math.min(46, (width - 60) / size);
      spec.width = Math.min(width, cell * size + 60);
      spec.height = Math.max(7, Math.min(34, cell)) * distinct(data.map((datum) => datum.task)).length;
    },
    square(spec, data, width) {
      spec.width = Math.min(width, 660);
      spec.height = spec.width - 60;
      const names = new Map(data.flatMap((one) => [[one.true, one.true_name], [one.predicted, one.predicted_name]]));
      const count = 1 + Math.max(...names.keys());
      if (count > NAMED) return;  // a name in the middle of each class, where there is room for names
      const axis = { grid: false, labelOverlap: spec.width / count < 16, values: Array.from({ length: count }, (_, at) => at + 0.5), labelLimit: 90,
        labelExpr: `${JSON.stringify(Array.from({ length: count }, (_, at) => names.get(at) ?? String(at)))}[floor(datum.value)]` };
      const { x, y } = spec.layer[0].encoding;
      x.axis = { ...axis, labelAngle: -40, labelAlign: "right", labelBaseline: "middle" };
      y.axis = axis;
    },
    flow(spec, data) {
      spec.height = Math.max(140, 26 * data.length);
    },
  };

  async function plot(place, definition, section, data, extra, panel) {
    const width = Math.floor(place.clientWidth);
    const spec = filled(definition.drawing, section, definition, panel, data);
    spec.data = { name: "rows" };
    spec.datasets = { ...extra, rows: data };
    spec.width = width;
    spec.autosize = { type: "fit-x", contains: "padding" };
    const reading = place.closest("figure").querySelector(".reading").textContent;
    spec.description = `${[definition.title, panel].filter(Boolean).join(": ")}. ${reading} The numbers are in the table below.`;
    LAYOUTS[definition.layout]?.(spec, data, width);
    if (panel === "sets") {  // there is no half of one
      const costs = data.map((datum) => datum.cost);
      const least = Math.floor(Math.min(...costs));
      const most = Math.max(least + 1, Math.ceil(Math.max(...costs)));
      spec.encoding.x.axis.values = wholeSteps(least, most, 4);
      spec.encoding.x.scale.domain = [least, most];
    }
    await vegaEmbed(place, spec, { actions: false, renderer: "svg", config: CONFIG, tooltip: { theme: "own" }, logLevel: 1 });
  }

  const swatch = (row, at) => {
    const [w, h] = [30, 12];
    const dashes = dash(row, at).join(" ");
    const dot = { circle: "M19 6a4 4 0 1 1-8 0a4 4 0 1 1 8 0", square: "M11.5 2.5h7v7h-7z", "triangle-up": "M15 2l4 7h-8z",
      diamond: "M15 1.5l4 4.5l-4 4.5l-4-4.5z", "triangle-down": "M15 10l-4-7h8z", cross: "M13.5 2h3v2.5H19v3h-2.5V10h-3V7.500H11v-3h2.500z" };
    const holder = make("span", { className: "swatch" });
    holder.innerHTML = `<svg width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" aria-hidden="true" style="color:${colour(row, at)}">` +
      `<path d="M0 6H30" stroke="currentColor" stroke-width="2" stroke-dasharray="${dashes}"/>` +
      `<path d="${dot[SHAPES[at % SHAPES.length]]}" fill="currentColor"/></svg>`;
    return holder;
  };

  async function draw(figure, definition, numbers, section) {
    document.querySelector(`a[href="#${figure.id}"]`).hidden = figure.hidden = Boolean(numbers.why);
    if (numbers.why) return;
    const field = (name) => definition.fields.findIndex((one) => one.name === name);
    figure.querySelector(".facts").textContent = numbers.facts.join(" · ").replaceAll(" %", "\u00a0%");
    let rows = numbers.rows;
    for (const choice of figure.querySelectorAll(".picks select")) {
      const at = field(choice.name);
      if (!choice.options.length) {
        choice.append(...distinct(rows.map((row) => row[at])).map((text) => make("option", { textContent: text, value: text })));
        choice.value = section.picked[choice.name] ?? choice.value;
        choice.onchange = () => draw(figure, definition, numbers, section);
      }
      choice.parentElement.hidden = choice.options.length < 2;
      rows = rows.filter((row) => row[at] === choice.value);
    }
    const own = field("row");
    const visible = own < 0 ? rows : rows.filter((row) => !section.hidden.has(row[own]));
    const data = visible.map((row) => Object.fromEntries(row.map((value, at) => [definition.fields[at].name, value])));
    const panels = figure.querySelector(".panels");
    const names = definition.panel ? distinct(data.map((datum) => datum[definition.panel])) : [""];
    const places = names.map(() => make("div", { className: "plot" }));
    panels.replaceChildren(...names.map((name, at) =>
      make("div", { className: "panel" }, ...(name ? [make("h4", { textContent: name })] : []), places[at])));
    for (const [at, name] of names.entries()) {
      const of = (one) => !name || !(definition.panel in one) || one[definition.panel] === name;
      const extra = Object.fromEntries(Object.entries(numbers.extra).map(([key, found]) => [key, found.filter(of)]));
      await plot(places[at], definition, section, data.filter(of), extra, name);
    }
    const words = new Set(rows.flat());
    for (const entry of figure.querySelectorAll(".colours li:not(.bar, .tick, .shade)")) {
      entry.hidden = definition.fields.some(({ name }) => CATEGORIES.includes(name)) && !words.has(entry.textContent);
    }
    const legend = figure.querySelector(".legend");
    if (definition.legend) {
      const present = new Set(rows.map((row) => row[own]));
      legend.replaceChildren(...section.rows.flatMap((row, at) => {
        if (!present.has(row.label)) return [];
        const button = make("button", { type: "button", ariaPressed: String(!section.hidden.has(row.label)), title: `${row.label}: show or hide this row everywhere` },
          swatch(row, at), ...whole(row.label));
        button.onclick = async () => {
          section.hidden.delete(row.label) || section.hidden.add(row.label);
          await drawAll(section, section.numbers);
          figure.querySelectorAll(".legend button")[legendPlace(figure, row.label)]?.focus();
        };
        return [make("li", {}, button)];
      }));
    }
    const details = figure.querySelector("details");
    details.querySelectorAll(":scope > :not(summary)").forEach((old) => old.remove());
    const fill = () => details.open && details.children.length === 1 && details.append(...table(definition, rows, numbers.rows));
    details.ontoggle = fill;
    fill();
  }
  const whole = (text) => text.split(/(\(?--[a-z][a-z-]*\)?)/).map((part, at) =>
    (at % 2 ? make("span", { className: "whole", textContent: part }) : part));  // no line breaks inside an option
  const legendPlace = (figure, label) =>
    [...figure.querySelectorAll(".legend button")].findIndex((button) => button.textContent === label);

  // -- the page -------------------------------------------------------------------------------------------

  let defined;
  async function drawAll(section, numbers) {
    for (const definition of defined) {
      if (!(definition.name in numbers)) continue;
      const figure = document.getElementById(`${section.id}-${definition.name}`);
      await draw(figure, definition, numbers[definition.name], section);
    }
    const missing = defined.filter(({ name }) => numbers[name]?.why).map(({ name, title }) => `${title} (${numbers[name].why})`);
    const note = document.getElementById(`${section.id}-${numbers === section.inside ? "run" : "rows"}-missing`);
    note.textContent = missing.length ? `Not shown: ${missing.join("; ")}.` : "";
  }

  const cue = (region) => region.classList.toggle("more", region.scrollLeft + region.clientWidth + 1 < region.scrollWidth);
  const cues = () => document.querySelectorAll(".scroll").forEach(cue);

  async function begin() {
    const root = document.documentElement;
    document.querySelectorAll("[data-theme-choice]").forEach((button) => {
      button.onclick = () => {
        root.dataset.theme = button.dataset.themeChoice;
        document.querySelectorAll("[data-theme-choice]").forEach((one) => { one.ariaPressed = String(one === button); });
      };
    });
    defined = await unpack("defined");
    document.addEventListener("scroll", (event) => event.target.matches?.(".scroll") && cue(event.target), true);
    document.addEventListener("toggle", cues, true);
    const sections = [];
    for (const element of document.querySelectorAll("section.report")) {
      const section = { id: element.id, hidden: new Set(), ...(await unpack(`${element.id}-rows`)) };
      element.querySelectorAll(".key").forEach((key) => key.append(swatch(section.rows[key.dataset.row], +key.dataset.row)));
      const choice = element.querySelector(".chooser select");
      const inside = async () => {
        if (choice.value) section.inside = await unpack(choice.value);
        if (section.inside) await drawAll(section, section.inside);
      };
      choice.onchange = inside;
      sections.push(section);
      await drawAll(section, section.numbers);
      await inside();
    }
    cues();
    let width = innerWidth;
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(async () => {
        if (innerWidth === width) return;
        width = innerWidth;
        delete root.dataset.ready;
        cues();
        for (const section of sections) {
          await drawAll(section, section.numbers);
          if (section.inside) await drawAll(section, section.inside);
        }
        root.dataset.ready = "yes";
      }, 150);
    });
    addEventListener("beforeprint", () => {
      const few = document.querySelectorAll("details.origin").length <= 10;
      document.querySelectorAll(few ? "details.origin, details.remarks" : "details.remarks").forEach((one) => { one.open = true; });
    });
    root.dataset.ready = "yes";
  }
  begin().catch((error) => {
    document.getElementById("main").prepend(make("p", { className: "why", role: "alert", textContent: `The figures cannot be drawn here: ${error.message}` }));
    throw error;
  });
})();
