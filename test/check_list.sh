# shellcheck shell=bash
# What ./dev check runs, in order: the cheapest and most telling first. Sourced by check.sh.

step build-asan build asan
step build-release build release
units asan
tap fuzz-yaml 60 build/asan/test/fuzz_yaml
