"""One measurement: fio on one device, and what the whole machine did meanwhile."""
import json
import os
import shutil
import subprocess

from systems import Refused

# Of fio's start and of a device that was just made: not counted.
WARM_PART = 0.2
COLUMNS = ["family", "system", "jobs", "rw", "bs", "qd", "round", "iops", "p50_us", "p99_us", "p999_us",
           "cpu_s_per_mio", "switches_per_io", "cache_misses_per_io"]


def busy_seconds():
    """CPU time of everybody, interrupts too; a guest's own time is in user."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(n) for n in file.readline().split()[1:8]]
    user, nice, system, _, _, irq, softirq = fields
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def context_switches():
    with open("/proc/stat", encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith("ctxt ")).split()[1])


class Counter:
    """Cache misses of all CPUs, by perf, where there is one and the machine counts them."""

    def __init__(self, folder):
        self.file = os.path.join(folder, "perf")
        self.why = "perf is not installed" if not shutil.which("perf") else ""
        if not self.why and self.read(self.wrap(["true"])) is None:
            self.why = "this machine counts no cache misses"

    def wrap(self, command):
        return ["perf", "stat", "-a", "-x,", "-e", "cache-misses", "-o", self.file, "--", *command]

    def read(self, command):
        subprocess.run(command, capture_output=True, check=False)
        return self.value()

    def value(self):
        try:
            with open(self.file, encoding="utf-8") as file:
                lines = [line.split(",") for line in file if "cache-misses" in line]
            return int(lines[0][0])
        except (OSError, IndexError, ValueError):
            return None


def fio(device, load, jobs, seconds):
    rw, bs, qd = load
    return ["fio", "--name=metal", f"--filename={device}", "--ioengine=io_uring", "--direct=1", f"--rw={rw}", f"--bs={bs}",
            f"--iodepth={qd}", f"--numjobs={jobs}", "--group_reporting", "--time_based", f"--runtime={round(seconds * 1000)}ms",
            "--norandommap", "--randrepeat=0", "--percentile_list=50:99:99.9", "--output-format=json", "--thread"]


def run_fio(command, seconds):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 5 + 60, check=False)
    except subprocess.TimeoutExpired:
        raise Refused("fio does not end") from None
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines()
        raise Refused(f"fio: {lines[0] if lines else 'exit code %d' % done.returncode}")
    # fio may say something before it
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def measure(device, load, jobs, seconds, counter):
    """The fields of COLUMNS behind round. Refused: fio's words."""
    run_fio(fio(device, load, jobs, seconds * WARM_PART), seconds)
    command = fio(device, load, jobs, seconds)
    cpu_before, switches_before = busy_seconds(), context_switches()
    job = run_fio(command if counter.why else counter.wrap(command), seconds)
    cpu, switches = busy_seconds() - cpu_before, context_switches() - switches_before
    side = job["read" if "read" in load[0] else "write"]
    ios = side["total_ios"]
    if ios == 0:
        raise Refused("not one I/O has ended")
    percentile = {float(k): v / 1000 for k, v in side["clat_ns"]["percentile"].items()}
    misses = None if counter.why else counter.value()
    return {
        "iops": side["iops"],
        "p50_us": percentile[50.0],
        "p99_us": percentile[99.0],
        "p999_us": percentile[99.9],
        "cpu_s_per_mio": cpu * 1e6 / ios,
        "switches_per_io": switches / ios,
        "cache_misses_per_io": None if misses is None else misses / ios,
    }
