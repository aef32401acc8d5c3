# shellcheck shell=bash
# What ./dev check runs, in order: the cheapest and most telling first. Sourced by check.sh.
#
# Only what hangs reaches a time limit: each is ten times and more of what the test takes on two CPUs with
# nothing beside it.

if [ "$mode" = soak ]; then export UBLKD_SOAK=1; fi

# folders, names, and that what is listed here exists
tap structure 600 test/structure.py
step build-asan build asan
# it mostly waits, as compilers do not
tap_run conformance 1800 build/asan/test/conformance &
conformance=$!
# The unit tests run in the first build only; of the others what is run, and what clang-tidy reads.
programs='ublkd ublkd-keeper ublkd-manual man ublkctl ublktrace sim'
released='zoned_cuts cache_cuts qcow2_cuts known bad_server exerciser share_memory powercut mon_command test_trace_btf'
if [ "$mode" = soak ]; then programs='' released=''; fi
# shellcheck disable=SC2086 # many targets
step build-release build release $programs $released
# shellcheck disable=SC2086
step build-clang build clang $programs
# in what the others leave of the CPUs
tap_run lint 3600 nice -n 19 test/lint.sh build/clang &
lint=$!
units asan
if [ "$mode" != fast ]; then
	# every rule of the protocol broken, connections cut at every byte: it mostly waits
	tap_run nbd-faults 3600 build/asan/test/nbd_faults &
	nbd_faults=$!
	tap_run nvme-faults 3600 build/asan/test/nvme_faults &
	nvme_faults=$!
	tap_run web-faults 3600 build/asan/test/web_faults &
	web_faults=$!
	# each of them finds new inputs for 15 minutes; what a check runs below mutates what is known
	if [ "$mode" = soak ]; then
		fuzz_seconds=900
		step build-fuzz build fuzz fuzz_http_answer fuzz_nbd_handshake fuzz_nbd_reply fuzz_nvme_pdu fuzz_nvme_fabrics \
			fuzz_nvme_auth fuzz_qcow2_header fuzz_qcow2_snapshot fuzz_qcow2_luks fuzz_qcow2_decompress \
			fuzz_cache_index fuzz_s3_manifest fuzz_s3_map fuzz_s3_list fuzz_s3_refusal
		tap_run fuzz-network $((14 * fuzz_seconds + 900)) test/fuzz/libfuzzer.sh build/fuzz $fuzz_seconds \
			fuzz_http_answer fuzz_nbd_handshake fuzz_nbd_reply fuzz_nvme_fabrics fuzz_nvme_auth \
			fuzz_qcow2_header fuzz_qcow2_snapshot fuzz_qcow2_luks fuzz_qcow2_decompress fuzz_cache_index \
			fuzz_s3_manifest fuzz_s3_map fuzz_s3_list fuzz_s3_refusal &
		fuzz_network=$!
		# longer: whatever a target sends goes through it
		tap_run fuzz-nvme-target $((4 * fuzz_seconds + 900)) test/fuzz/libfuzzer.sh build/fuzz $((4 * fuzz_seconds)) \
			fuzz_nvme_pdu &
		fuzz_nvme=$!
	fi
fi
tap made-up 1200 test/made_up/made_up.sh build/asan
tap qcow2-snapshots 1200 build/asan/test/qcow2_snapshots
tap qcow2-made 600 build/asan/test/qcow2_made
tap qcow2-look 600 build/asan/test/qcow2_look
tap cache-look 600 build/asan/test/cache_look
tap cache-warms 600 build/asan/test/cache_warms
tap cache-drops 600 build/asan/test/cache_drops
tap file-steps 600 build/asan/test/file_steps
tap queue-steps 600 build/asan/test/queue_steps
tap zone-steps 600 build/asan/test/zone_steps
tap shmem-steps 600 build/asan/test/shmem_steps
tap reactor-steps 600 build/asan/test/reactor_steps
# 4,000 power cuts each, 100,000 with --soak
tap qcow2-cuts 7200 build/release/test/qcow2_cuts
tap cache-cuts 3600 build/release/test/cache_cuts
tap zoned-cuts 3600 build/release/test/zoned_cuts
tap fuzz-yaml 1200 build/asan/test/fuzz_yaml
tap fuzz-http-answer 1200 build/asan/test/fuzz_http_answer
tap fuzz-nbd-handshake 1200 build/asan/test/fuzz_nbd_handshake
tap fuzz-nbd-reply 1200 build/asan/test/fuzz_nbd_reply
tap fuzz-nvme-auth 1200 build/asan/test/fuzz_nvme_auth
tap fuzz-nvme-fabrics 1200 build/asan/test/fuzz_nvme_fabrics
tap fuzz-nvme-pdu 1200 build/asan/test/fuzz_nvme_pdu
tap fuzz-qcow2-header 1200 build/asan/test/fuzz_qcow2_header
tap fuzz-qcow2-snapshot 1200 build/asan/test/fuzz_qcow2_snapshot
tap fuzz-qcow2-decompress 1200 build/asan/test/fuzz_qcow2_decompress
tap fuzz-qcow2-luks 1200 build/asan/test/fuzz_qcow2_luks
tap fuzz-cache-index 1200 build/asan/test/fuzz_cache_index
tap fuzz-s3-manifest 1200 build/asan/test/fuzz_s3_manifest
tap fuzz-s3-map 1200 build/asan/test/fuzz_s3_map
tap fuzz-s3-list 1200 build/asan/test/fuzz_s3_list
tap fuzz-s3-refusal 1200 build/asan/test/fuzz_s3_refusal
tap bench-report 600 test/bench/report.sh
tap bench-host 600 test/bench/host.sh
tap bench-metal 60 test/bench/metal.py
tap bench-scale 60 test/bench/scale.py
tap bench-own 60 test/bench/own.py
tap cli 900 test/cli/cli.sh build/release/bin
tap interop-nbd-info 900 test/interop/nbd_info.sh build/asan/bin
tap interop-qemu-locks 600 test/interop/qemu_locks.sh build/asan/test
tap interop-nvme-target 300 test/interop/nvme_target_test.py
tap interop-nvme-discover 600 test/interop/nvme_discover.sh build/asan/bin
# the oracle of the others, against qemu-img
if [ "$mode" = soak ]; then tap interop-qcow2-oracle 900 test/interop/qcow2_oracle.sh build/asan; fi
tap interop-qcow2-qemu 1800 test/interop/qcow2_qemu.sh build/asan
tap interop-qcow2-hostile 1800 test/interop/qcow2_hostile.sh build/asan
tap ceph-cluster 900 test/ceph/cluster_test.sh
tap s3-disk-snapshots 900 test/interop/s3_disk_snapshots.sh build/asan/test
tap ceph-s3 600 test/ceph/s3_test.sh build/asan/test
tap top 900 test/cli/top.py build/asan/bin
tap peers 900 test/cli/peers.py build/asan/bin
tap attach 900 test/cli/attach.py build/asan/bin
tap cli-cache 900 test/cli/cache.py build/asan/bin
tap create-image 600 test/cli/create_image.sh build/asan/bin
tap s3-gc 600 test/cli/s3_gc.py build/asan
tap page 900 test/page/page.sh build/asan
tap trace-timeline 1800 test/trace/timeline.sh build/asan
tap trace-record 900 test/trace/record.sh build/release
tap trace-target 1800 test/trace/target.sh build/release
tap trace-selftest 900 test/trace/selftest.sh build/release/bin
tap sim-asan 1800 build/asan/bin/sim --runs 128 --ios 1000
# an adopted device fails while requests wait for a server that is gone: its end has a deadline
tap sim-unasked-stop 600 build/release/bin/sim --only-runs --seed 20261123000027931 --runs 1
# seeds that no check has had before, beside those that all have
new_seeds=$(date -u +%Y%m%d%H%M)00000 new_seed_nr=512
if [ "$mode" = soak ]; then new_seed_nr=100000; fi
echo "sim-new: $new_seed_nr seeds from $new_seeds"
if [ "$mode" = soak ]; then tap mutate 7200 test/mutate/mutate.py; fi
tap sim-new 7200 build/release/bin/sim --only-runs --seed "$new_seeds" --runs $new_seed_nr
wait $conformance $lint
tap_count conformance
tap_count lint

if [ "$mode" != fast ]; then
	step guest-install test/vm/vm.sh --install
	step guest-kernel-7.2 test/vm/kernel.sh get 7.2
	step guest-kernel-6.12 test/vm/kernel.sh get 6.12
	tap_run guest-runner 1800 test/vm/selftest.sh &
	guest_runner=$!
	tap_run package 3600 nice -n 19 test/package/package.sh &
	package=$!
	daemon='ublkd ublkd-keeper ublkctl'
	# what has threads or talks to them
	threaded='test_reactor test_mailbox test_reactors test_socket test_socket_turns test_commands test_device_set test_device_set_work
		test_foreign_threads test_life test_nbd_examine test_qcow2_threads test_rbd_keys test_rbd_lost test_rbd_settle test_rbd_threads test_throttle_threads test_watchdog'
	# shellcheck disable=SC2086
	step build-tsan build tsan $daemon $threaded
	for test in $threaded; do
		CMOCKA_MESSAGE_OUTPUT=TAP tap "tsan-${test#test_}" 900 build/tsan/test/$test
	done
	# shellcheck disable=SC2086
	step build-faults build faults $daemon
	step guest-programs test/vm/lean_programs.sh
	step guest-selftests bench/kublk.sh
	tap uapi 60 test/selftests/uapi.py
	# without one the tests that need it are skipped
	step guest-qemu-nbd timeout 900 test/vm/qemu_nbd.sh
	# what that brings knows the format as well
	if [ "$mode" = soak ]; then
		tap interop-qcow2-qemu-new 1800 test/interop/qcow2_qemu.sh build/asan build/vm/qemu-nbd
	fi
	# the same
	step guest-ceph test/ceph/prebuild.sh
	step guest-nginx test/vm/nginx.sh
	tap sim-net 1800 build/release/bin/sim --net
	# more than a million I/Os: 256 seeds of 4000 requests and more
	tap sim 1800 build/release/bin/sim
	wait $guest_runner $package $nbd_faults $nvme_faults $web_faults
	tap_count guest-runner
	tap_count package
	tap_count nbd-faults
	tap_count nvme-faults
	tap_count web-faults
	if [ "$mode" = soak ]; then
		wait $fuzz_network $fuzz_nvme
		tap_count fuzz-network
		tap_count fuzz-nvme-target
	fi

	# Two guests at a time, the long ones first. Many suites have little to do with the kernel: they run on one
	# of the two, on both with --soak.
	both='7.2 6.12'
	one() { if [ "$mode" = soak ]; then echo "$both"; else echo "$1"; fi; }
	long=2700
	if [ "$mode" = soak ]; then long=3600; fi
	for kernel in $(one 7.2); do
		later tap_run "selftests-$kernel" 7200 test/selftests/selftests.sh "$kernel"
	done
	guests "$(one 7.2)" $long '' nbd_outage inuse
	guests "$(one 7.2)" $long '' rbd
	guests "$(one 6.12)" $long '' nbd systemd
	guests "$(one 7.2)" 1200 '' nvme
	guests "$(one 6.12)" 1200 '' resize
	guests "$both" 1200 '' upgrade recovery
	guests "$(one 7.2)" 1200 '' zoned zoned_below
	guests "$both" 1200 '' integrity
	guests "$(one 7.2)" 1200 '' setro partitions shared_memory
	guests "$(one 7.2)" 1200 '' datapath
	guests "$(one 7.2)" 1200 '' qcow2 cache
	guests "$(one 7.2)" $long '' s3
	guests "$(one 7.2)" 1200 '' stripe http shared metal
	guests "$(one 6.12)" 1200 '' blocked cgroup
	# numbers of docs/rbd.md and docs/performance.md
	if [ "$mode" = soak ]; then guests "7.2" 1200 '' rbd_many; guests 7.2 1200 -i qcow2_many; fi
	# the kernel's target by its own initiator: for who doubts what the suite before says of ours
	if [ "$mode" = soak ]; then guests "$both" 1200 '' nvme_target; fi
	guests "$(one 7.2)" 1200 '' io
	guests "$(one 6.12)" 1200 '' daemon
	# tracing patches the kernel's code: two CPUs on one kernel (-s), exact times on the other (-i)
	guests 7.2 1200 -i bpftrace
	if [ "$mode" = soak ]; then guests 6.12 1200 -s bpftrace; fi
	guests "$(one 6.12)" 1800 '-s -n' trace_points trace_stacks timeline
	guests "$(one 7.2)" 1800 '-s -n' trace trace_latency
	guests 7.2 1200 -i trace_csv
	if [ "$mode" = soak ]; then
		guests 7.2 1200 -i trace_loss trace_cost
		guests 6.12 1800 '-s -n' trace_csv
	fi
	# these compare times: on the instruction clock a busy machine does not disturb them
	guests "$(one 7.2)" 1200 -i pause why stuck
	guests "$(one 6.12)" 1200 -i throttle layers
	guests "$(one 6.12)" 1200 '' cycle fs histogram watchdog udev flush attach demo
	for kernel in $(one 7.2); do
		later tap_run "powercut-$kernel" 3600 test/vm/powercut.sh "$kernel"
	done
	guests "$(one 6.12)" 1200 '' gc
	guests "$(one 7.2)" 1200 '-m 800M' hostile_scarce
	guests "$(one 7.2)" 1200 '' scaling unprivileged
	# the same daemon with every memory access, and every access of two threads, checked
	later guest guest-6.12-many-tsan 6.12 many 1200 tsan
	later guest guest-7.2-faults-asan 7.2 faults 1200 asan
	if [ "$mode" = soak ]; then
		later guest guest-7.2-hostile_state-asan 7.2 hostile_state 1200 asan
		# what those above run as well
		guests "$both" 1200 '' hostile_state hostile_clients hostile_inuse hostile_mounts faults many
		guests "$both" 1200 '-c 4' idle
	fi
	later guest guest-6.12-hostile_clients-asan 6.12 hostile_clients 1200 asan
	run_later
fi
