# shellcheck shell=bash
# Images that QEMU makes and fills at random, for the tests of qcow2; sourced. RANDOM is the caller's, from its seed.

create() { timeout 60 qemu-img create -q -f qcow2 -o "$@"; }

# The options of qemu-img and qemu-io that name an image: image_words IMAGE; a caller that needs others has its own.
image_words() { words=(-f qcow2 "$1"); }

# A random multiple of 512 below BYTES.
place() { place=$(((RANDOM << 15 | RANDOM) % ($1 / 512) * 512)); }

# fill IMAGE BYTES [COMMAND...]: qemu-io writes, zeroes and discards in the first BYTES, then the commands.
fill() {
	local image=$1 bytes i at how commands=()
	bytes=$(numfmt --from=iec "${2^^}")
	shift 2
	for ((i = 0; i < 30; i++)); do
		place "$bytes"
		at=$place
		place $((bytes / 16))
		if ((place == 0 || at + place > bytes)); then continue; fi
		case $((RANDOM % 8)) in
		0) how="write -z" ;;
		1) how="write -z -u" ;;
		2) how="discard" ;;
		*) how="write -P $((RANDOM % 255 + 1))" ;;
		esac
		commands+=(-c "$how $at $place")
	done
	for how in "$@"; do commands+=(-c "$how"); done
	image_words "$image"
	timeout 60 qemu-io -t unsafe "${commands[@]}" "${words[@]}" >/dev/null
}
