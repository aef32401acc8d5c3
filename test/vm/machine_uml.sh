# shellcheck shell=bash
# The quick machine of guest.sh: User-mode Linux, a kernel that is a program of this machine (uml/kernel.sh builds
# it). Its root is the folder itself, by hostfs: what is mounted there for writing, the guest can write. Sourced.
#
# machine_start: sets $machine, the process whose end is the guest's.

# Its memory is a file in $run/memory. Processes run in stubs under seccomp, which SMP needs.
# noreboot: a guest that panics or restarts ends. The hardening is that of the emulated guests: none.
machine_start() {
	mkdir "$run/uml"
	mount --bind "$share" "$root/.vm"
	mount --bind "$out" "$root/out"
	TMPDIR=$run/memory "$kernel/linux" "mem=$memory" "ncpus=$cpus" umid=guest "uml_dir=$run/uml" \
		root=/dev/root rootfstype=hostfs "hostfs=$root" rw init=/init seccomp=on \
		con=null con0=null,fd:1 console=tty0 ssl=null ssl0=null,fd:7 ssl1=null,fd:8 ssl2=fd:9,null \
		noreboot quiet panic=-1 oops=panic rcupdate.rcu_expedited=1 cryptomgr.notests log_buf_len=1M \
		</dev/null >"$run/console" 2>"$run/machine.log" 7>>"$run/stdout" 8>>"$run/stderr" 9<>"$run/orders.in" &
	machine=$!
}
