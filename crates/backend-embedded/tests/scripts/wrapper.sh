#!/bin/sh
# Starts the emulator and waits for it, where `exec` would have made it the emulator.
qemu-system-riscv64 "$@"
exit $?
