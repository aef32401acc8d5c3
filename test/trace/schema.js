// Holds perfetto.proto against the public schema: each field and each value of an enum by name,
// number and type; then decodes a trace by both, packet by packet.
// Usage: node schema.js FOLDER_OF_NODE_MODULES PROTO TREE TRACE; TREE is a copy of Perfetto's source
// (https://github.com/google/perfetto). Prints JSON.
'use strict';
const [modules, proto, tree, file] = process.argv.slice(2);
const protobuf = require(`${modules}/protobufjs`);
const path = require('path');

const theirs = new protobuf.Root();
theirs.resolvePath = (origin, target) => target.startsWith('protos/') ? path.join(tree, target) : target;
theirs.loadSync('protos/perfetto/trace/trace.proto').resolveAll();
const ours = protobuf.loadSync(proto).resolveAll();

let compared = 0;
const differ = [];
const form = f => [f.id, f.type, f.resolvedType?.fullName, f.repeated, f.required, f.packed, f.defaultValue].join();

function compare(namespace) {
	for (const one of namespace.nestedArray ?? []) {
		const other = theirs.lookup(one.fullName);
		for (const f of one.fieldsArray ?? []) {
			const g = other?.fields?.[f.name];
			compared++;
			if (!g || form(f) !== form(g)) differ.push(`${one.fullName}.${f.name}`);
		}
		for (const [name, value] of Object.entries(one.values ?? {})) {
			compared++;
			if (other?.values?.[name] !== value) differ.push(`${one.fullName}.${name}`);
		}
		compare(one);
	}
}

compare(ours);
const bytes = require('fs').readFileSync(file);
const text = root => {
	const type = root.lookupType('perfetto.protos.Trace'), trace = type.decode(bytes);
	const packet = root.lookupType('perfetto.protos.TracePacket');
	return {
		packets: trace.packet.map(p => JSON.stringify(packet.toObject(p, { longs: String, enums: String, bytes: String }))),
		bytes: type.encode(trace).finish().length,
		error: type.verify(trace),
	};
};
const a = text(theirs), b = text(ours);
console.log(JSON.stringify({
	compared, differ, packets: a.packets.length, bytes: bytes.length, bytes_again: a.bytes, error: a.error,
	packets_differ: a.packets.length - b.packets.length || a.packets.filter((p, i) => p !== b.packets[i]).length,
}));
