#!/bin/sh
# An emulator that tells nothing, not even its version.
sleep 1000 &
wait
