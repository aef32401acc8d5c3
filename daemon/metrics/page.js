/*
 * The page at /: polls /page.json each second, keeps what came in between as samples and draws them.
 * Names and words are set as text, never parsed as HTML. The chosen device stands in the address
 * (#name), so that a bookmark finds it again.
 */
"use strict";
const SAMPLES = 180, RECENT = 10, POLL_MS = 1000;
const LAYERS = ["total", "throttle", "daemon", "backend"];
const OPS_OTHER = ["flush", "discard", "write_zeroes"];
const $ = id => document.getElementById(id);
const kept = new Map(); /* device name -> [{rates..., layers}, or null where no answer came] */
let before = null, latest = null, bounds = [], chosen = "", hover = -1;

/* ---- numbers in words ---- */

function scaled(value, units, step) {
	let i = 0;
	while (value >= step - .5 && i + 1 < units.length) {
		value /= step;
		i++;
	}
	return (value < 9.95 && value % 1 ? value.toFixed(1) : value.toFixed(0)) + units[i];
}
const asCount = n => scaled(n, ["", "k", "M", "G"], 1000);
const asBytes = n => scaled(n, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024);
const asRate = n => asBytes(n) + "/s";
const asTime = ns => ns === null ? "-" : ns < 6e10 ? scaled(ns, ["ns", "us", "ms", "s"], 1000) :
	ns < 3.6e12 ? Math.round(ns / 6e10) + "min" : Math.round(ns / 3.6e12) + "h";

/* ---- samples ---- */

/* A counter that fell is one of a device made anew. */
const grown = (now, old) => now < old ? now : now - old;
const sum = numbers => numbers.reduce((all, one) => all + one, 0);

function sampleOf(now, old, seconds) {
	const rate = (ops, key) => sum(ops.map(op =>
		grown(now.ops[op][key], old.ops[op][key]))) / seconds;
	const sample = {
		read: rate(["read"], "done"), write: rate(["write"], "done"), other: rate(OPS_OTHER, "done"),
		readBytes: rate(["read"], "bytes"), writeBytes: rate(["write", ...OPS_OTHER], "bytes"),
		inflight: now.inflight, layers: {},
	};
	for (const layer of LAYERS) {
		const n = now.layers[layer], o = old.layers[layer];
		const anew = n.count < o.count;
		sample.layers[layer] = {
			count: anew ? n.count : n.count - o.count,
			sum_ns: anew ? n.sum_ns : grown(n.sum_ns, o.sum_ns),
			bins: Uint32Array.from(n.bins, (count, i) => anew ? count : grown(count, o.bins[i])),
		};
	}
	return sample;
}

const meanOf = layer => layer.count ? layer.sum_ns / layer.count : null;

/* The end of the bin that the fraction q of all requests lies below. */
function quantileOf(bins, q) {
	const all = sum([...bins]);
	let below = 0;
	for (let i = 0; i < bins.length && all; i++) {
		below += bins[i];
		if (below >= q * all)
			return bounds[Math.min(i, bounds.length - 1)];
	}
	return null;
}

/* Of the last samples together. */
function recentOf(samples, layer) {
	const all = { count: 0, sum_ns: 0, bins: new Array(bounds.length + 1).fill(0) };
	for (const sample of samples.slice(-RECENT).filter(Boolean)) {
		all.count += sample.layers[layer].count;
		all.sum_ns += sample.layers[layer].sum_ns;
		sample.layers[layer].bins.forEach((count, i) => all.bins[i] += count);
	}
	return all;
}

function keep(name, sample) {
	const samples = kept.get(name) || [];
	samples.push(sample);
	kept.set(name, samples.slice(-SAMPLES));
}

/* ---- tables ---- */

function setText(element, text) {
	if (element.textContent !== text)
		element.textContent = text;
}

/* A body of nr rows with as many cells; the first one is the row's header. Rows stay, as does focus. */
function rowsOf(table, nr) {
	const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
	while (body.rows.length > nr)
		body.deleteRow(-1);
	while (body.rows.length < nr) {
		const row = body.insertRow();
		heads.forEach((head, i) => {
			const cell = document.createElement(i ? "td" : "th");
			cell.className = head.className;
			cell.dataset.label = head.textContent.trim();
			if (!i)
				cell.scope = "row";
			cell.setAttribute("role", i ? "cell" : "rowheader");
			row.append(cell);
		});
		row.setAttribute("role", "row");
	}
	return [...body.rows];
}

function fillTable(table, lines) {
	rowsOf(table, lines.length).forEach((row, i) =>
		lines[i].forEach((text, column) => setText(row.cells[column], String(text))));
}

const isStuck = device => device.verdict.verdict !== "nothing-stuck";

function deviceLine(device) {
	const samples = kept.get(device.name) || [], last = samples[samples.length - 1];
	const mean = last ? meanOf(recentOf(samples, "total")) : null;
	return [
		null, device.state, device.path || "-",
		device.size_bytes ? asBytes(device.size_bytes) : "-", device.backend,
		device.connection_nr ? device.connection_up + " of " + device.connection_nr + " up" : "-",
		asCount(device.inflight), last ? asCount(last.read + last.write + last.other) : "-",
		last ? asRate(last.readBytes + last.writeBytes) : "-", asTime(mean),
		device.verdict.verdict.replaceAll("-", " "),
	];
}

function showDevices() {
	const devices = latest.devices;
	rowsOf($("devices"), devices.length).forEach((row, i) => {
		const device = devices[i], line = deviceLine(device);
		let button = row.cells[0].querySelector("button");
		if (!button) {
			button = document.createElement("button");
			button.type = "button";
			button.onclick = () => choose(button.textContent);
			row.cells[0].append(button);
		}
		setText(button, device.name);
		line.forEach((text, column) => column && setText(row.cells[column], text));
		row.cells[1].className = "state " +
			(device.state === "live" ? "good" : device.state === "failed" ? "bad" : "");
		row.cells[10].className = "full " + (isStuck(device) ? "alarm" : "dim");
		row.cells[5].classList.toggle("alarm", device.connection_up < device.connection_nr);
		if (device.name === chosen)
			row.setAttribute("aria-current", "true");
		else
			row.removeAttribute("aria-current");
	});
	$("left-out").hidden = !latest.left_out;
	setText($("left-out"), latest.left_out + " more devices are not shown: see ublkctl top");
}

function showTrouble() {
	const list = $("trouble").querySelector("ul");
	const lines = latest.devices.filter(device => isStuck(device) || device.error);
	while (list.children.length > lines.length)
		list.lastChild.remove();
	while (list.children.length < lines.length) {
		const item = document.createElement("li");
		for (const kind of ["b", "span", "div"])
			item.append(document.createElement(kind));
		item.lastChild.className = "cure";
		list.append(item);
	}
	lines.forEach((device, i) => {
		const [name, where, cure] = list.children[i].children;
		setText(name, device.name);
		setText(where, ": " + [device.error, isStuck(device) ? device.verdict.where : ""]
			.filter(Boolean).join("; "));
		setText(cure, device.verdict.cure ? "To do: " + device.verdict.cure : "");
	});
	$("trouble").hidden = !lines.length;
	/* Read aloud, so without ages, which change each second. */
	$("note").className = "heard";
	setText($("note"), lines.length ? "Needs attention: " + lines.map(device => device.name).join(", ") : "");
}

function showSummary() {
	const samples = latest.devices.map(device => (kept.get(device.name) || []).at(-1)).filter(Boolean);
	const iops = sum(samples.map(s => s.read + s.write + s.other));
	const bytes = sum(samples.map(s => s.readBytes + s.writeBytes));
	const nr = latest.devices.length + latest.left_out;
	setText($("summary"), latest.version + ": " + nr + (nr === 1 ? " device, " : " devices, ") +
		asCount(iops) + " IOPS, " + asRate(bytes) + ", " +
		asCount(sum(latest.devices.map(device => device.inflight))) + " in flight");
}

function showReactors() {
	const old = before ? before.reactors : [];
	const seconds = before ? (latest.time_ns - before.time_ns) / 1e9 : 0;
	$("reactors-section").hidden = !latest.reactors.length;
	fillTable($("reactors"), latest.reactors.map((now, i) => {
		const o = old[i], total = o ? sum(["callback_ns", "kernel_ns", "poll_ns", "idle_ns"]
			.map(key => grown(now[key], o[key]))) : 0;
		const busy = o ? grown(now.callback_ns, o.callback_ns) + grown(now.kernel_ns, o.kernel_ns) : 0;
		return [i, now.cpu + (now.pinned ? "" : " (not pinned)"),
			total ? (100 * busy / total).toFixed(0) + "%" : "-",
			seconds ? asCount(grown(now.turns, o.turns) / seconds) : "-",
			asCount(now.stalls), asTime(now.turn_ns_max)];
	}));
}

function showTables(device, samples) {
	fillTable($("layers"), LAYERS.map(layer => {
		const recent = recentOf(samples, layer), always = device.layers[layer];
		return [layer, asTime(meanOf(recent)), asTime(quantileOf(recent.bins, .5)),
			asTime(quantileOf(recent.bins, .99)), asTime(meanOf(always)),
			asTime(quantileOf(always.bins, .99))];
	}));
	$("links").hidden = !device.connection_nr;
	fillTable($("connections"), (device.connections || []).map(c =>
		[c.queue + "." + c.connection, c.state, asTime(c.state_ns), asCount(c.answered),
			asCount(c.lost), asCount(c.failed_tries), asCount(c.resent), c.last_end || "-"]));
}

/* ---- charts ---- */

const LEFT = 58, TOP = 8, FOOT = 18;

/* Each line: name, color, of a sample its value or null, whether it is dashed. */
const CHARTS = [
	{ id: "iops", format: asCount, step: 1000, lines: [["read", 0, s => s.read], ["write", 1, s => s.write],
		["other", 4, s => s.other]] },
	{ id: "bandwidth", format: asRate, step: 1024, lines: [["read", 0, s => s.readBytes],
		["write", 1, s => s.writeBytes]] },
	{ id: "latency", format: asTime, log: true, lines: [
		["total p99", 4, s => quantileOf(s.layers.total.bins, .99), true],
		...LAYERS.map((layer, i) => [layer, i, s => meanOf(s.layers[layer])])] },
	{ id: "inflight", format: asCount, step: 1000, lines: [["in flight", 2, s => s.inflight]] },
];

/* 1, 2 or 5 times a power of ten (of bytes: of those of a unit), not below value. */
function niceAbove(value, step) {
	const unit = step ** Math.floor(Math.log(Math.max(value, 1)) / Math.log(step));
	const power = 10 ** Math.floor(Math.log10(Math.max(value / unit, 1)));
	return [1, 2, 5, 10].map(n => n * power * unit).find(n => n >= value * .999);
}

/* What the values lie between, and where there are lines across. */
function rangeOf(chart, values) {
	const high = Math.max(...values, 0), low = Math.min(...values);
	if (!chart.log) {
		const top = niceAbove(high, chart.step);
		return { at: value => value / top, marks: [0, top / 2, top] };
	}
	const from = Math.floor(Math.log10(values.length ? low : 1e3));
	const to = Math.max(from + 1, Math.ceil(Math.log10(values.length ? high : 1e6)));
	return {
		at: value => (Math.log10(value) - from) / (to - from),
		marks: Array.from({ length: to - from + 1 }, (_, i) => 10 ** (from + i)),
	};
}

function makeShape(svg, kind, attributes) {
	const shape = document.createElementNS(svg.namespaceURI, kind);
	for (const [name, value] of Object.entries(attributes))
		shape.setAttribute(name, value);
	return shape;
}

/* A line stops where there is no value (or 0 on a logarithmic scale); one value alone is a dot. */
function drawLine(svg, shapes, [, color, valueOf, dashed], samples, x, y) {
	let d = "", points = 0, pen = false;
	samples.forEach((sample, i) => {
		const value = sample && valueOf(sample);
		if (value === null || value === undefined || !isFinite(y(value))) {
			pen = false;
			return;
		}
		d += pen ? `L${x(i).toFixed(1)} ${y(value).toFixed(1)}` :
			`M${x(i).toFixed(1)} ${y(value).toFixed(1)}h0`;
		pen = true;
		points++;
	});
	if (points)
		shapes.push(makeShape(svg, "path", { class: "line c" + color + (dashed ? " dash" : ""), d,
			"stroke-linecap": "round" }));
	return points;
}

function drawChart(chart, samples) {
	const svg = $(chart.id), width = svg.clientWidth, height = svg.clientHeight;
	const values = chart.lines.flatMap(([, , valueOf]) => samples.map(s => s && valueOf(s)))
		.filter(value => value !== null && value !== undefined && (!chart.log || value > 0));
	const range = rangeOf(chart, values), shapes = [];
	const x = i => LEFT + (width - LEFT - 8) * (SAMPLES - samples.length + i) / (SAMPLES - 1);
	const y = value => height - FOOT - (height - FOOT - TOP) * range.at(value);
	const shown = samples[hover] || samples.at(-1);

	svg.setAttribute("viewBox", "0 0 " + width + " " + height);
	for (const mark of range.marks) {
		shapes.push(makeShape(svg, "line", { class: "grid", x1: LEFT, x2: width, y1: y(mark), y2: y(mark) }));
		shapes.push(makeShape(svg, "text", { x: LEFT - 6, y: y(mark) + 4, "text-anchor": "end" }));
		shapes.at(-1).textContent = chart.format(mark);
	}
	for (const [text, at, anchor] of [[SAMPLES / 60 + " min ago", LEFT, "start"], ["now", width, "end"]]) {
		shapes.push(makeShape(svg, "text", { x: at, y: height - 3, "text-anchor": anchor }));
		shapes.at(-1).textContent = text;
	}
	if (samples[hover])
		shapes.push(makeShape(svg, "line", { class: "at", x1: x(hover), x2: x(hover), y1: TOP, y2: height - FOOT }));
	svg.dataset.points = sum(chart.lines.map(line => drawLine(svg, shapes, line, samples, x, y)));
	svg.replaceChildren(...shapes);

	const keys = chart.lines.map(([name, , valueOf]) =>
		name + " " + (shown ? chart.format(valueOf(shown)) : "-"));
	svg.setAttribute("aria-label", svg.parentNode.querySelector("h3").textContent +
		" in the last three minutes; now: " + keys.join(", "));
	const caption = svg.parentNode.querySelector("figcaption");
	while (caption.children.length <= keys.length)
		caption.append(document.createElement("span"));
	keys.forEach((key, i) => {
		caption.children[i + 1].className = "key c" + chart.lines[i][1];
		setText(caption.children[i + 1], key);
	});
}

/* Which sample the pointer is over; the values of that one are shown in all charts. */
function onPointer(event) {
	const samples = kept.get(chosen) || [], width = event.currentTarget.clientWidth;
	const part = (event.offsetX - LEFT) / (width - LEFT - 8);
	hover = event.type === "pointerleave" ? -1 :
		Math.round(part * (SAMPLES - 1)) - SAMPLES + samples.length;
	showDetail();
}

/* ---- the heat map ---- */

function heat(part, light) {
	const t = Math.sqrt(part);
	return light ? `hsl(${215 + 20 * t} 80% ${88 - 62 * t}%)` : `hsl(${220 - 190 * t} 85% ${20 + 44 * t}%)`;
}

function drawMap(samples) {
	const canvas = $("map"), context = canvas.getContext("2d"), layer = $("layer").value;
	const density = window.devicePixelRatio || 1, rows = bounds.length + 1;
	const width = canvas.clientWidth, height = canvas.clientHeight;
	const light = matchMedia("(prefers-color-scheme: light)").matches;
	const cellWidth = (width - LEFT - 8) / SAMPLES, cellHeight = (height - FOOT) / rows;
	const columns = samples.map(sample => sample ? sample.layers[layer].bins : []);
	const max = columns.reduce((most, bins) => bins.reduce((a, b) => Math.max(a, b), most), 0);
	let cells = 0;

	canvas.width = Math.round(width * density);
	canvas.height = Math.round(height * density);
	context.scale(density, density);
	columns.forEach((bins, i) => bins.forEach((count, row) => {
		if (!count)
			return;
		context.fillStyle = heat(count / max, light);
		context.fillRect(LEFT + (SAMPLES - columns.length + i) * cellWidth,
			(rows - 1 - row) * cellHeight, Math.ceil(cellWidth), Math.ceil(cellHeight));
		cells++;
	}));
	context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--dim");
	context.font = "11px system-ui, sans-serif";
	context.textAlign = "right";
	for (let row = 0; row < bounds.length; row += 6)
		context.fillText(asTime(bounds[row]), LEFT - 6, (rows - 1 - row) * cellHeight + 4);
	context.fillText("now", width, height - 3);
	context.textAlign = "left";
	context.fillText(SAMPLES / 60 + " min ago", LEFT, height - 3);

	const last = samples.at(-1), requests = last ? last.layers[layer].count : 0;
	canvas.dataset.columns = columns.length;
	canvas.dataset.cells = cells;
	canvas.dataset.requests = requests;
	setText($("map-note"), requests + " requests in the last interval");
	canvas.setAttribute("aria-label", "Heat map of latencies of the layer " + layer + "; " +
		"p99 now below " + asTime(last ? quantileOf(last.layers[layer].bins, .99) : null));
}

/* ---- all of it ---- */

function showDetail() {
	const device = latest && latest.devices.find(one => one.name === chosen);
	const samples = kept.get(chosen) || [];

	$("detail").hidden = !device;
	if (!device)
		return;
	setText($("chosen"), device.name + (device.path ? ", " + device.path : ""));
	setText($("why"), "why-stuck: " + device.verdict.where);
	$("why").className = isStuck(device) ? "alarm" : "dim";
	setText($("cure"), device.verdict.cure ? "To do: " + device.verdict.cure : "");
	for (const chart of CHARTS)
		drawChart(chart, samples);
	drawMap(samples);
	showTables(device, samples);
}

function choose(name) {
	chosen = name;
	hover = -1;
	location.replace("#" + encodeURIComponent(name));
	if (latest)
		showDevices();
	showDetail();
}

function chooseByAddress() {
	let name = "";
	try {
		name = decodeURIComponent(location.hash.slice(1));
	} catch (error) {
		/* not one of ours */
	}
	if (name && name !== chosen)
		choose(name);
}

function take(data) {
	const old = new Map((latest ? latest.devices : []).map(device => [device.name, device]));
	const seconds = latest ? (data.time_ns - latest.time_ns) / 1e9 : 0;

	/* The same answer, given to many who asked at once. */
	if (latest && data.time_ns === latest.time_ns)
		return;
	before = seconds > 0 ? latest : null;
	latest = data;
	bounds = data.boundaries;
	for (const name of kept.keys())
		if (!data.devices.some(device => device.name === name))
			kept.delete(name);
	for (const device of data.devices)
		if (before && old.has(device.name))
			keep(device.name, sampleOf(device, old.get(device.name), seconds));
	if (!data.devices.some(device => device.name === chosen) && data.devices.length && !location.hash)
		chosen = (data.devices.find(isStuck) || data.devices[0]).name;
	showSummary();
	showTrouble();
	showDevices();
	showReactors();
	showDetail();
}

async function poll() {
	try {
		take(await (await fetch("/page.json", { cache: "no-store" })).json());
	} catch (error) {
		for (const name of kept.keys())
			keep(name, null);
		$("note").className = "alarm";
		setText($("note"), "ublkd does not answer");
		showDetail();
	}
	setTimeout(poll, POLL_MS);
}

document.title = "ublkd " + location.host;
/* On a phone rows are cards: without roles a table that is no table in CSS would be none to be read aloud. */
for (const [selector, role] of [["table", "table"], ["thead tr", "row"], ["thead th", "columnheader"]])
	for (const element of document.querySelectorAll(selector))
		element.setAttribute("role", role);
for (const chart of CHARTS)
	for (const type of ["pointermove", "pointerleave"])
		$(chart.id).addEventListener(type, onPointer);
$("layer").onchange = showDetail;
addEventListener("resize", showDetail);
addEventListener("hashchange", chooseByAddress);
chooseByAddress();
poll();
