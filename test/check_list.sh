# shellcheck shell=bash
# What ./dev check runs, in order: the cheapest and most telling first. Sourced by check.sh.
#
# Only what hangs reaches a time limit: each is ten times and more of what the test takes on two CPUs with
# nothing beside it. What hangs and neither works nor waits for a CPU has ten seconds for a line (test/watch/tap_watch.c).

# Seeds of this state of the tree, beside those that all have: each change brings others, and who checks a change again
# has the same. --soak: such that nobody has had.
new_seeds=$tree_number new_seed_nr=256
if [ "$mode" = soak ]; then new_seeds=$(date -u +%Y%m%d%H%M)00000 new_seed_nr=100000; fi
echo "new seeds: from $new_seeds"

# folders, names, and that what is listed here exists
tap structure 600 test/structure.py
tap kept 300 test/kept.py
tap check-queue 300 test/check_queue_test.sh
tap check-turns 60 test/check_turns_test.sh

# What comes from the network comes while compilers run.
things='guest-install guest-kernel-7.2 guest-kernel-6.12 guest-selftests guest-qemu-nbd guest-nginx guest-programs guest-kernel-uml'
get_things() {
	step_run guest-install test/vm/vm.sh --install
	step_run guest-kernel-7.2 test/vm/kernel.sh get 7.2
	step_run guest-kernel-6.12 test/vm/kernel.sh get 6.12
	step_run guest-selftests bench/kublk.sh
	# without one the tests that need it are skipped, as without the next
	step_run guest-qemu-nbd timeout 900 test/vm/qemu_nbd.sh
	step_run guest-nginx test/vm/nginx.sh
	step_run guest-programs test/vm/lean_programs.sh
	step_run guest-kernel-uml test/vm/vm.sh --uml # compiles for minutes
}
if [ "$mode" != fast ]; then
	get_things &
	getting=$!
fi

phase builds
step build-asan build asan
# Every rule of the protocol broken, connections cut at every byte: they mostly wait, as compilers do not. Some of their
# cases are about deadlines of 10 s.
third=()
if [ "$mode" = fast ]; then third=(--third "$tree_number"); fi
beside tap_run conformance 1800 -s 20 build/asan/test/conformance --seed "$new_seeds" --only ^rbd- "${third[@]}"
if [ "$mode" != fast ]; then
	if turn nbd-faults net backends/nbd test/interop; then beside tap_run nbd-faults 3600 -s 20 build/asan/test/nbd_faults; fi
	if turn nvme-faults net backends/nvme test/interop; then beside tap_run nvme-faults 3600 -s 20 build/asan/test/nvme_faults; fi
	# librbd and its cluster
	if turn conformance-rbd backends/rbd storage/io.c test/conformance; then beside tap_run conformance-rbd 1800 -s 60 -b 60 build/asan/test/conformance --seed "$new_seeds" --only rbd-; fi
	if turn web-faults net backends/http backends/s3_disk; then beside tap_run web-faults 3600 build/asan/test/web_faults; fi
fi
# The unit tests run in the first build only; of the others what is run.
programs='ublkd ublkd-keeper ublkd-manual man ublkctl ublktrace sim'
released='ublkd-faults zoned_cuts cache_cuts qcow2_cuts known bad_server exerciser share_memory powercut mon_command test_trace_btf'
if [ "$mode" = soak ]; then programs='' released='all ublkd-faults'; fi
# shellcheck disable=SC2086 # many targets
step build-release build release $programs $released
if [ "$mode" != fast ]; then
	step_run guest-ceph test/ceph/prebuild.sh & # needs mon_command
	making=$!
	# what has threads or talks to them
	threaded='test_reactor test_mailbox test_reactors test_socket test_socket_turns test_commands test_device_set test_device_set_work
		test_foreign_threads test_life test_nbd_examine test_qcow2_threads test_rbd_keys test_rbd_lost test_rbd_settle test_rbd_threads test_throttle_threads test_watchdog'
	if turn tsan reactor backends/rbd filters/throttle filters/shared; then
		# shellcheck disable=SC2086
		step build-tsan build tsan ublkd ublkd-keeper ublkctl $threaded
		with_tsan=1
	else
		threaded=''
	fi
	wait $getting $making
	if ! test/vm/uml/kernel.sh is_built; then
		no_uml=1 things=${things% guest-kernel-uml} skipped=$((skipped + 1))
		printf 'SKIP guest-kernel-uml: see %s; the suites of the quick guest run on the emulated 7.2\n' "$logs/guest-kernel-uml.log"
	fi
	for name in $things guest-ceph; do step_count "$name"; done
fi

# ---- in what the others leave of the CPUs ----

# clang-tidy compiles what it reads, with all warnings; --soak also links it
clang_targets=skeletons
if [ "$mode" = soak ]; then clang_targets=''; fi
later nice step_run build-clang build_niced clang $clang_targets
later nice tap_run lint 5400 -b 20000 nice -n 10 test/lint.sh build/clang
if [ "$mode" != fast ]; then
	# of what the tests run; --soak builds it as a user does
	packed=UBLKD_PACKAGE_BUILD=build/release
	if [ "$mode" = soak ]; then packed=CMAKE_BUILD_PARALLEL_LEVEL=2; fi
	later nice tap_run package 5400 -s 120 -b 20000 nice -n 10 env $packed test/package/package.sh
fi

# ---- guests ----

# One beside the tests of this machine that talk to others, then two at a time; the long ones first. Where a suite runs is
# in its head (docs/hacking.md).
if [ "$mode" != fast ]; then
	if [ "$mode" = soak ]; then guest_seconds=3600; fi
	if turn powercut-7.2 test/vm/powercut.sh; then later guest guest_script powercut-7.2 3600 test/vm/powercut.sh 7.2; fi
	if [ "$mode" = full ]; then
		export UBLKD_THIRD=$((tree_number % 3))
		left_out+=("two thirds of selftests-7.2")
	fi
	later guest guest_script selftests-7.2 7200 test/selftests/selftests.sh 7.2
	if [ "$mode" = soak ]; then add_guests 'With --soak' always; fi
	if [ "$mode" = full ]; then leave_out_guests 'With --all'; else add_guests 'With --all' always; fi
	add_guests 'By turns'
	add_guests 'Runs on' always
	later guest guest_script guest-runner 1800 test/vm/selftest.sh
fi
# ---- this machine: what talks to others ----

export CMOCKA_MESSAGE_OUTPUT=TAP
host tap-watch 300 test/tap_watch_test.sh
if [ "$mode" = fast ]; then lane=compute; fi
units asan
lane=host
if [ "$mode" != fast ]; then
	for test in $threaded; do host "tsan-${test#test_}" 900 build/tsan/test/$test; done
	host uapi 60 test/selftests/uapi.py
fi
host bench-report 600 test/bench/report.sh
host bench-host 600 test/bench/host.sh
host bench-metal 60 test/bench/metal.py
host bench-scale 60 test/bench/scale.py
host bench-own 60 test/bench/own.py
host bench-per-io 60 test/bench/per_io.py
host cli 900 test/cli/cli.sh build/release/bin
host interop-nbd-info 900 test/interop/nbd_info.sh build/asan/bin
host interop-qemu-locks 600 test/interop/qemu_locks.sh build/asan/test
host interop-nvme-target 300 test/interop/nvme_target_test.py
host interop-nvme-discover 600 test/interop/nvme_discover.sh build/asan/bin
host ceph-cluster 900 test/ceph/cluster_test.sh
host s3-disk-snapshots 900 test/interop/s3_disk_snapshots.sh build/asan/test
if turn ceph-s3 backends/s3_disk backends/http net/http test/ceph; then host ceph-s3 600 test/ceph/s3_test.sh build/asan/test; fi
host top 900 test/cli/top.py build/asan/bin
if turn peers net backends/nbd backends/nvme daemon/api test/cli; then host peers 900 test/cli/peers.py build/asan/bin; fi
# ublkctl gives a node that never comes 10 s
host attach 900 -s 20 test/cli/attach.py build/asan/bin
host cli-cache 900 test/cli/cache.py build/asan/bin
host create-image 600 test/cli/create_image.sh build/asan/bin
if turn s3-gc backends/s3_disk net/http test/cli; then host s3-gc 600 test/cli/s3_gc.py build/asan; fi
host page 900 test/page/page.sh build/asan
host trace-timeline 1800 test/trace/timeline.sh build/asan
host trace-record 900 test/trace/record.sh build/release
host trace-target 1800 test/trace/target.sh build/release
host trace-selftest 900 test/trace/selftest.sh build/release/bin
if [ "$mode" != fast ]; then
	phase 'tests of this machine, beside a guest'
	limit[guest]=1
	if [ "$mode" = soak ]; then limit[guest]=0; fi
	run_later host
	limit[guest]=2
fi

# ---- this machine: what only computes: beside two guests, with --fast beside the others ----

lane=compute
computes made-up 1200 test/made_up/made_up.sh build/asan
host qcow2-snapshots 1200 build/asan/test/qcow2_snapshots --seed "$new_seeds"
host qcow2-made 600 build/asan/test/qcow2_made
host qcow2-changed 600 build/asan/test/qcow2_changed
host qcow2-versions 600 build/asan/test/qcow2_versions
host qcow2-bases 600 build/asan/test/qcow2_bases
host qcow2-look 600 build/asan/test/qcow2_look
host cache-look 600 build/asan/test/cache_look
host cache-warms 600 build/asan/test/cache_warms
host cache-drops 600 build/asan/test/cache_drops
host cache-asides 600 build/asan/test/cache_asides
host cache-versions 600 build/asan/test/cache_versions
host cache-unknown 600 build/asan/test/cache_unknown
host file-steps 600 build/asan/test/file_steps
host queue-steps 600 build/asan/test/queue_steps
host zone-steps 600 build/asan/test/zone_steps
host shmem-steps 600 build/asan/test/shmem_steps
host reactor-steps 600 build/asan/test/reactor_steps
# FLUSHes that fail, over each node
host lost-flushes 900 build/asan/test/lost_flushes --seed "$new_seeds"
# 4,000 power cuts each, 100,000 with --soak
computes qcow2-cuts 7200 build/release/test/qcow2_cuts --seed "$new_seeds"
computes cache-cuts 3600 build/release/test/cache_cuts --seed "$new_seeds"
computes zoned-cuts 3600 build/release/test/zoned_cuts --seed "$new_seeds"
# fuzz PROGRAM FOLDER: inputs that are kept, and some made of them
fuzz() {
	if turn "${1//_/-}" "$2" test/fuzz; then computes "${1//_/-}" 1200 build/asan/test/$1; fi
}
fuzz fuzz_yaml config
fuzz fuzz_http_answer net/http
fuzz fuzz_nbd_handshake backends/nbd
fuzz fuzz_nbd_reply backends/nbd
fuzz fuzz_nvme_auth backends/nvme
fuzz fuzz_nvme_fabrics backends/nvme
fuzz fuzz_nvme_pdu backends/nvme
fuzz fuzz_qcow2_header backends/qcow2
fuzz fuzz_qcow2_snapshot backends/qcow2
fuzz fuzz_qcow2_decompress backends/qcow2
fuzz fuzz_qcow2_luks backends/qcow2
fuzz fuzz_cache_index filters/cache
fuzz fuzz_s3_manifest backends/s3_disk
fuzz fuzz_s3_map backends/s3_disk
fuzz fuzz_s3_list backends/s3_disk
fuzz fuzz_s3_refusal backends/s3_disk
# the oracle of the others, against qemu-img
if [ "$mode" = soak ]; then computes interop-qcow2-oracle 900 test/interop/qcow2_oracle.sh build/asan; fi
if turn interop-qcow2-qemu backends/qcow2; then host interop-qcow2-qemu 1800 test/interop/qcow2_qemu.sh build/asan; fi
if turn interop-qcow2-hostile backends/qcow2; then host interop-qcow2-hostile 1800 test/interop/qcow2_hostile.sh build/asan; fi
# what is put in on purpose, and connections cut at every byte, run without ASan
sim_only=--only-runs sim_runs=64
if [ "$mode" = soak ]; then sim_only=; fi
if [ -n "${UBLKD_ALL:-}" ]; then sim_runs=128; fi
computes sim-asan 1800 build/asan/bin/sim $sim_only --runs $sim_runs --ios 1000
# an adopted device fails while requests wait for a server that is gone: its end has a deadline
computes sim-unasked-stop 600 build/release/bin/sim --only-runs --seed 20261123000027931 --runs 1
if [ "$mode" = soak ]; then computes mutate 7200 test/mutate/mutate.py; fi
computes sim-new 7200 build/release/bin/sim --only-runs --seed "$new_seeds" --runs $new_seed_nr
if [ "$mode" != fast ]; then
	computes sim-net 1800 build/release/bin/sim --net
	# more than a million I/Os: 256 seeds of 4000 requests and more
	computes sim 1800 build/release/bin/sim
fi
if [ "$mode" = soak ]; then
	# what that brings knows the format as well
	host interop-qcow2-qemu-new 1800 test/interop/qcow2_qemu.sh build/asan build/vm/qemu-nbd
	# each of them finds new inputs for 15 minutes; what runs above mutates what is known
	libfuzzer_seconds=900
	step build-fuzz build fuzz fuzz_http_answer fuzz_nbd_handshake fuzz_nbd_reply fuzz_nvme_pdu fuzz_nvme_fabrics \
		fuzz_nvme_auth fuzz_qcow2_header fuzz_qcow2_snapshot fuzz_qcow2_luks fuzz_qcow2_decompress \
		fuzz_cache_index fuzz_s3_manifest fuzz_s3_map fuzz_s3_list fuzz_s3_refusal
	beside tap_run fuzz-network $((14 * libfuzzer_seconds + 900)) -b $((4 * libfuzzer_seconds)) test/fuzz/libfuzzer.sh build/fuzz $libfuzzer_seconds \
		fuzz_http_answer fuzz_nbd_handshake fuzz_nbd_reply fuzz_nvme_fabrics fuzz_nvme_auth \
		fuzz_qcow2_header fuzz_qcow2_snapshot fuzz_qcow2_luks fuzz_qcow2_decompress fuzz_cache_index \
		fuzz_s3_manifest fuzz_s3_map fuzz_s3_list fuzz_s3_refusal
	# longer: whatever a target sends goes through it
	beside tap_run fuzz-nvme-target $((4 * libfuzzer_seconds + 900)) -b $((8 * libfuzzer_seconds)) test/fuzz/libfuzzer.sh build/fuzz $((4 * libfuzzer_seconds)) \
		fuzz_nvme_pdu
fi

# these take both CPUs for hours: no guest beside them
if [ "$mode" = soak ]; then
	phase 'long tests of this machine'
	limit[guest]=0
	run_later compute
	limit[guest]=2
fi

if [ "$mode" = fast ]; then phase 'tests'; else phase 'guests, and what computes'; fi
run_later
