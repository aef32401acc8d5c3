/* The page at /: polls /heatmap.json and paints what came in between as columns. */
"use strict";
const COLUMNS = 120, LEFT = 70, BOTTOM = 20;
const $ = id => document.getElementById(id);
const canvas = $("map"), context = canvas.getContext("2d");
let bounds = [], before = null, columns = {};

const name = ns => ns < 1e3 ? ns + "ns" : ns < 1e6 ? (ns / 1e3).toPrecision(3) + "us" :
	ns < 1e9 ? (ns / 1e6).toPrecision(3) + "ms" : (ns / 1e9).toPrecision(3) + "s";

function color(part) {
	const t = Math.sqrt(part);
	return `hsl(${220 - 190 * t} 85% ${14 + 48 * t}%)`;
}

function draw() {
	const rows = bounds.length + 1, all = columns[$("device").value + "/" + $("layer").value] || [];
	const width = (canvas.width - LEFT) / COLUMNS, height = (canvas.height - BOTTOM) / rows;
	let max = 0, last = 0, cells = 0;

	context.fillStyle = "#101418";
	context.fillRect(0, 0, canvas.width, canvas.height);
	for (const column of all)
		for (const count of column)
			max = Math.max(max, count);
	all.forEach((column, i) => column.forEach((count, row) => {
		if (!count)
			return;
		context.fillStyle = color(count / max);
		context.fillRect(LEFT + (COLUMNS - all.length + i) * width, (rows - 1 - row) * height,
			Math.ceil(width), Math.ceil(height));
		cells++;
	}));
	/* for tests, and for whoever cannot see it */
	canvas.dataset.columns = all.length;
	canvas.dataset.cells = cells;
	context.fillStyle = "#93a1b0";
	context.font = "12px system-ui, sans-serif";
	for (let row = 0; row < bounds.length; row += 6)
		context.fillText(name(bounds[row]), 4, (rows - 1 - row) * height + 4);
	context.fillText("now", canvas.width - 28, canvas.height - 4);
	if (all.length) {
		last = all[all.length - 1].reduce((sum, count) => sum + count, 0);
		canvas.dataset.requests = last;
		$("note").textContent = last + " requests in the last interval";
	}
}

function take(data) {
	const names = data.devices.map(device => device.name), list = $("device"), now = {};

	bounds = data.boundaries;
	if (names.join() !== [...list.options].map(option => option.value).join()) {
		const chosen = list.value;
		list.replaceChildren(...names.map(text => new Option(text, text)));
		if (names.includes(chosen))
			list.value = chosen;
	}
	for (const device of data.devices)
		for (const [layer, bins] of Object.entries(device.layers)) {
			const key = device.name + "/" + layer, old = before && before[key];

			now[key] = bins;
			if (!old)
				continue;
			columns[key] = columns[key] || [];
			/* a device made anew counts from zero */
			columns[key].push(bins.map((count, i) => Math.max(0, count - old[i])));
			columns[key] = columns[key].slice(-COLUMNS);
		}
	before = now;
	draw();
}

async function poll() {
	try {
		take(await (await fetch("/heatmap.json", { cache: "no-store" })).json());
	} catch (error) {
		$("note").textContent = "ublkd does not answer";
	}
	setTimeout(poll, 1000);
}
$("device").onchange = $("layer").onchange = draw;
poll();
