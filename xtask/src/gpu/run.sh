#!/bin/sh
# Runs what is in this folder on this machine, and writes a report; with --help, says how.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# Copies may have lost it.
chmod +x "$here"/bin/* 2>/dev/null

# Where the loader may not look: drivers that containers mount, toolkits, and the compiler that Python packages bring.
wheels='
import glob, sys
for folder in sys.path:
    for library in glob.glob(folder + "/nvidia/*/lib/libnvrtc.so.*"):
        print(library.rpartition("/")[0])'
newline='
'
IFS=$newline
for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/local/cuda/lib64 /opt/rocm/lib \
    $(python3 -c "$wheels" 2>/dev/null </dev/null); do
    if [ -d "$folder" ]; then
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
        export LD_LIBRARY_PATH
    fi
done

exec "$here/bin/xtask" run-bundle --folder "$here" "$@"
