#!/bin/bash
# The demo: serves two disks from examples/demo.yaml, creates a file system on one, runs a load with
# data verification on the other, shows statistics meanwhile, and removes everything at the end.
# ./dev demo runs it on this machine or in the test guest. Needs root and the ublk driver.
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/demo_lib.sh"

step "two disks from $here/demo.yaml"
serve demo.yaml "s|/var/tmp/ublkd-demo.img|$work/file.img|"
memory=$(node ram) file=$(node disk)

step "a file system on $file"
use_filesystem "$file"

step "random reads and writes on $memory, every block verified"
run_load "$memory"

step "the file system is clean"
umount "$work/mnt"
fsck.ext4 -fn "$file"

step "everything is removed"
remove "$memory" "$file"

finished "two disks served, ext4 checked, data verified, nothing left behind"
