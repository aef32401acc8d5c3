// Decodes a trace with protobufjs and perfetto.proto, encodes it again and counts what is in it.
// Usage: node protobufjs.js FOLDER_OF_NODE_MODULES PROTO TRACE; prints JSON.
'use strict';
const [modules, proto, file] = process.argv.slice(2);
const protobuf = require(`${modules}/protobufjs`);
const Trace = protobuf.loadSync(proto).lookupType('perfetto.protos.Trace');
const bytes = require('fs').readFileSync(file);
const trace = Trace.decode(bytes);

const names = new Map(), found = {};
const flows = { begin: new Set(), end: new Set() };
const tracks = new Set();
let slices = 0, ends = 0, counters = 0;
for (const packet of trace.packet) {
	for (const entry of packet.internedData?.eventNames ?? []) names.set(String(entry.iid), entry.name);
	const track = packet.trackDescriptor;
	if (track && !track.process && !track.counter) tracks.add(String(track.uuid));
	const event = packet.trackEvent;
	if (!event) continue;
	slices += event.type === 1;
	ends += event.type === 2;
	counters += event.type === 4;
	for (const id of event.flowIds) flows.begin.add(String(id));
	for (const id of event.terminatingFlowIds) flows.end.add(String(id));
	if (event.type === 1) found[names.get(String(event.nameIid))] = (found[names.get(String(event.nameIid))] ?? 0) + 1;
}
// What a message type does not know is dropped when it is encoded again: nothing may be.
const again = Trace.encode(trace).finish();
console.log(JSON.stringify({
	slices, ends, counters, tracks: tracks.size, names: found, packets: trace.packet.length,
	flows: flows.begin.size, flows_open: [...flows.begin].filter(id => !flows.end.has(id)).length,
	bytes: bytes.length, bytes_again: again.length,
	error: Trace.verify(trace),
}));
