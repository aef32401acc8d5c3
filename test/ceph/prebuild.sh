#!/bin/bash
# Makes the clusters that guests start from (cluster.sh prebuild), where Ceph is installed. Where it is not, the tests
# that need it are skipped.
set -euo pipefail

cluster=$(dirname "$(readlink -f "$0")")/cluster.sh
if ! "$cluster" check; then exit 0; fi
"$cluster" prebuild --store bluestore
"$cluster" prebuild --store memstore
