# shellcheck shell=bash
# What ./dev check runs, in order: the cheapest and most telling first. Sourced by check.sh.

if [ "$mode" = soak ]; then export UBLKD_SOAK=1; fi

step build-asan build asan
# it mostly waits, as compilers do not
tap_run conformance 300 build/asan/test/conformance &
conformance=$!
step build-release build release
step build-clang build clang
units asan
wait $conformance
tap_count conformance
if [ "$mode" != fast ]; then
	# every rule of the protocol broken, connections cut at every byte: it mostly waits
	tap_run nbd-faults 900 build/asan/test/nbd_faults &
	nbd_faults=$!
	step build-fuzz build fuzz fuzz_nbd_handshake fuzz_nbd_reply
	fuzz_seconds=30
	if [ "$mode" = soak ]; then fuzz_seconds=900; fi
	tap_run fuzz-nbd $((2 * fuzz_seconds + 120)) test/fuzz/libfuzzer.sh build/fuzz $fuzz_seconds \
		fuzz_nbd_handshake fuzz_nbd_reply &
	fuzz_nbd=$!
fi
tap file-steps 60 build/asan/test/file_steps
tap fuzz-yaml 120 build/asan/test/fuzz_yaml
tap fuzz-nbd-handshake 120 build/asan/test/fuzz_nbd_handshake
tap fuzz-nbd-reply 120 build/asan/test/fuzz_nbd_reply
tap bench-report 60 test/bench/report.sh
tap bench-host 120 test/bench/host.sh
tap cli 120 test/cli/cli.sh build/release/bin
tap interop-nbd-info 120 test/interop/nbd_info.sh build/asan/bin
tap top 120 test/cli/top.py build/asan/bin
tap page 120 test/page/page.sh build/asan
tap trace-timeline 300 test/trace/timeline.sh build/asan
tap trace-record 120 test/trace/record.sh build/release
tap trace-target 120 test/trace/target.sh build/release
tap trace-selftest 120 test/trace/selftest.sh build/release/bin
tap sim-asan 300 build/asan/bin/sim --runs 128 --ios 1000
tap lint 600 test/lint.sh build/clang

if [ "$mode" != fast ]; then
	step guest-install test/vm/vm.sh --install
	step guest-kernel-7.2 test/vm/kernel.sh get 7.2
	step guest-kernel-6.12 test/vm/kernel.sh get 6.12
	tap_run guest-runner 400 test/vm/selftest.sh &
	guest_runner=$!
	daemon='ublkd ublkd-keeper ublkctl'
	# what has threads or talks to them
	threaded='test_reactor test_mailbox test_reactors test_socket test_commands test_fleet test_fleet_probe
		test_nbd_probe test_throttle_threads test_watchdog'
	# shellcheck disable=SC2086 # many targets
	step build-tsan build tsan $daemon $threaded
	for test in $threaded; do
		CMOCKA_MESSAGE_OUTPUT=TAP tap "tsan-${test#test_}" 120 build/tsan/test/$test
	done
	tap package 600 test/package/package.sh
	# shellcheck disable=SC2086 # many targets
	step build-faults build faults $daemon
	step guest-fio test/vm/lean_fio.sh
	step guest-selftests bench/kublk.sh
	# without one the tests that need it are skipped
	step guest-qemu-nbd timeout 300 test/vm/qemu_nbd.sh
	# more than a million I/Os: 256 seeds of 4000 requests and more
	tap sim 600 build/release/bin/sim
	wait $guest_runner $nbd_faults $fuzz_nbd
	tap_count guest-runner
	tap_count nbd-faults
	tap_count fuzz-nbd

	# Of these some have little to do with the kernel, some more on one of them, and both lanes shall end
	# together: they run on one kernel, on both with --soak.
	pick() { if [ "$mode" = soak ] || [ "$1" = "$2" ]; then echo "${@:3}"; fi; }
	suites() {
		echo daemon io datapath recovery upgrade resize gc
		pick "$1" 7.2 scaling inuse
		pick "$1" 6.12 flush fs many faults cycle histogram watchdog udev
	}
	# these are long
	more_suites() {
		pick "$1" 7.2 nbd_outage
		pick "$1" 6.12 nbd systemd
	}
	more_limit=900
	if [ "$mode" = soak ]; then more_limit=3600; fi
	# ublktrace: all of it on both kernels with --soak, otherwise what differs between them
	trace_exact() { if [ "$1" = 7.2 ]; then echo trace_csv trace_cost trace_loss; fi; }
	trace_suites() {
		if [ "$mode" = soak ]; then
			echo trace trace_latency trace_stacks trace_points timeline
			[ "$1" = 7.2 ] || echo trace_csv
		elif [ "$1" = 7.2 ]; then
			echo trace trace_latency
		else
			echo trace_csv trace_points trace_stacks timeline
		fi
	}
	# these compare times: on the instruction clock a busy machine does not disturb them
	timed_suites() {
		pick "$1" 7.2 pause stuck why
		pick "$1" 6.12 layers throttle
	}
	idle_suite() { pick "$1" 6.12 idle; }
	for kernel in 7.2 6.12; do
		(
			for suite in $(suites "$kernel"); do guest "$kernel" "$suite" 400; done
			for suite in $(more_suites "$kernel"); do guest "$kernel" "$suite" $more_limit; done
			guest_flags=-i
			for suite in $(timed_suites "$kernel"); do guest "$kernel" "$suite" 400; done
			guest_flags='-c 4'
			for suite in $(idle_suite "$kernel"); do guest "$kernel" "$suite" 400; done
			guest_flags=-i
			# tracing patches the kernel's code: two CPUs on one kernel, exact times on the other
			if [ "$kernel" = 6.12 ]; then guest_flags=-s; fi
			guest "$kernel" bpftrace 400
			guest_flags=-i
			for suite in $(trace_exact "$kernel"); do guest "$kernel" $suite 400; done
			guest_flags='-s -n'
			for suite in $(trace_suites "$kernel"); do guest "$kernel" $suite 600; done
			# the one kernel has the selftests, the other the power cuts of both: they end together
			if [ "$kernel" = 7.2 ] || [ "$mode" = soak ]; then
				tap_run "selftests-$kernel" 7200 test/selftests/selftests.sh "$kernel"
			fi
			if [ "$kernel" = 6.12 ]; then
				for series in 7.2 6.12; do
					tap_run "powercut-$series" 1200 test/vm/powercut.sh "$series"
				done
				# the same daemon with every memory access, and every access of two threads, checked
				guest_flags=''
				guest 7.2 faults 400 asan
				guest 6.12 many 400 tsan
			fi
		) &
	done
	wait
	tap_count guest-7.2-faults-asan
	tap_count guest-6.12-many-tsan
	for kernel in 7.2 6.12; do
		for suite in $(suites "$kernel") $(more_suites "$kernel") $(timed_suites "$kernel") \
			$(idle_suite "$kernel") bpftrace \
			$(trace_exact "$kernel") $(trace_suites "$kernel"); do
			tap_count "guest-$kernel-$suite"
		done
		for test in powercut-$kernel selftests-$kernel; do
			if [ -e "$logs/$test.end" ]; then tap_count "$test"; fi
		done
	done
fi
