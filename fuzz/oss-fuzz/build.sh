#!/bin/bash -eu
# Makes one program of each target, and an archive of its seeds. OSS-Fuzz sets CC, CFLAGS with the
# sanitizer's flags, and OUT.
AIOPROD_NATIVE=required pip3 install ".[schema-registry]"
seeds=$(mktemp -d)
python3 -m fuzz.write_seeds "$seeds"
for target in fuzz/fuzz_*.py; do
  name=$(basename -s .py "$target")
  # Modules that aioprod imports by name when they are used are not found by PyInstaller.
  compile_python_fuzzer "$target" --paths . --collect-submodules aioprod --collect-submodules fuzz
  zip -q -j "$OUT/${name}_seed_corpus.zip" "$seeds/$name"/*
done
