#!/bin/bash
# Makes build/meshtrain-VERSION-linux-x86_64.tar.gz: what runs on any x86-64 Linux with glibc 2.36 or
# newer, wherever it is unpacked. Needs Debian's packages (install_dependencies.sh).
#   scripts/package.sh [--wheel|--deb] [--with-tests] [--check] [--build-dir DIR] [--output FILE]
#   --wheel        build/meshtrain-VERSION-py3-none-manylinux_2_36_x86_64.whl instead: pip puts the program itself on
#                  the PATH (no Python runs), and the extras cuda12 and cuda13 bring NVIDIA's libraries
#   --deb          build/meshtrain_VERSION_amd64.deb instead, for Debian 12, Ubuntu 24.04 and newer
#   --with-tests   the GPU's suites too, in libexec/ (for scripts/gpu_check.sh): a tarball that ends in -tests.tar.xz
#   --check        then trains and tokenizes with it: the tarball's where there is nothing but glibc (as root, with
#                  unshare or with sudo), the wheel's in an empty virtual environment, the .deb's unpacked
#   --build-dir    packs what is built there already, instead of building in build/release
# Inside: bin/meshtrain, lib/ (the parts for CUDA, MPI and SentencePiece, where they were built, and every shared
# library but glibc's, CUDA's, the driver's and Open MPI's), configs/, README.md, share/licenses/. Wheel and .deb have the
# libraries in lib/meshtrain and the texts in share/doc/meshtrain, because they share their folders with others.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."

readonly newest_glibc=2.36
most_bytes=$((64 * 1000 * 1000))
# Not packed: glibc's own, which belong to the kernel's and the loader's side of a system; the driver
# and CUDA's, which a machine with a GPU has in the versions that fit it; Open MPI, which must be that of
# the mpirun or srun that starts the processes.
readonly glibc='^(linux-vdso|ld-linux-x86-64|libc|libm|libmvec|libdl|libpthread|librt)\.so'
readonly cuda='^lib(cuda|cudart|cublas|cublasLt|cudnn|cudnn_[a-z_]*|nvrtc|nvrtc-builtins|nvJitLink|nccl)\.so'
readonly mpi='^libmpi\.so\.40$'

die() {
  echo "package.sh: $*" >&2
  exit 1
}

form=tarball
build=
with_tests=
check=
output=
while [ $# -gt 0 ]; do
  case $1 in
    --with-tests)
      with_tests=1
      most_bytes=$((40 * 1000 * 1000))  # with the sources 64 MiB, which is what some ways to a GPU carry
      ;;
    --wheel | --deb) form=${1#--} ;;
    --check) check=1 ;;
    --build-dir) build=$(cd "$from" && realpath "${2:?--build-dir needs a folder}"); shift ;;
    --output) output=${2:?--output needs a file}; shift ;;
    *)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
  shift
done

for tool in patchelf objdump readelf strip dpkg-query ${with_tests:+xz}; do
  command -v $tool >/dev/null || die "$tool is missing; scripts/install_dependencies.sh installs it"
done

if [ -z "$build" ]; then
  build=build/release
  scripts/build.sh release programs ${with_tests:+gpu_tests}
fi
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
[ -n "$version" ] || die "$build is not configured"
name=meshtrain-$version-linux-x86_64
lib=lib/meshtrain texts=share/doc/meshtrain licenses=share/doc/meshtrain/licenses
case $form in
  tarball) file=$name$([ -z "$with_tests" ] && echo .tar.gz || echo -tests.tar.xz) lib=lib texts=. licenses=share/licenses ;;
  wheel) file=meshtrain-$version-py3-none-manylinux_${newest_glibc/./_}_x86_64.whl ;;
  deb) file=meshtrain_${version}_amd64.deb ;;
esac
[ -z "$with_tests" ] || [ $form = tarball ] || die "--with-tests goes into tarballs only"
case $output in
  /*) ;;
  "") output=$PWD/build/$file ;;
  *) output=$from/$output ;;
esac
cuda_part=$(find "$build" -name libmeshtrain_cuda.so -print -quit)
mpi_part=$(find "$build" -name libmeshtrain_mpi.so -print -quit)
sentencepiece_part=$(find "$build" -name libmeshtrain_sentencepiece.so -print -quit)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/$name
mkdir -p "$root/bin" "$root/$lib" "$root/$licenses"
[ $form != tarball ] || scripts/source_sum.sh >"$root/SOURCES"

# The programs; gpu_tests.txt is CMake's list of the tests that also run on a GPU, one file a line.
binaries=("$root/bin/meshtrain")
install -s -m 755 "$build/app/meshtrain" "$root/bin/meshtrain"
for part in "$cuda_part" "$sentencepiece_part"; do
  [ -n "$part" ] || continue
  install -s -m 755 "$part" "$root/$lib/"
  binaries+=("$root/$lib/$(basename "$part")")
done
if [ -n "$with_tests" ]; then
  mkdir -p "$root/libexec"
  while read -r program; do
    # Names of sources (of asserts) and of default libraries are harmless, and so is the folder of the sources alone,
    # in whose place gpu_check.sh names its own (tests/support/sources.h).
    reads=$(strings -a "$program" | grep -F "$PWD" | grep -vE '\.(cc|h|so)$' | grep -vxF "$PWD" | head -1 || true)
    [ -z "$reads" ] || die "$(basename "$program") reads $reads, which is not where the GPU is"
    install -s -m 755 "$program" "$root/libexec/"
    binaries+=("$root/libexec/$(basename "$program")")
  done <"$build/tests/gpu_tests.txt"
fi

# needed FILE...: names and places of the libraries that these need, directly or not, and that are packed.
needed() {
  ldd "$@" | awk '/=>/ { print $1, $3 }' | sort -u | grep -Ev "$glibc|$cuda" || true
}
packages=
while read -r library place; do
  [ "$library" != libmeshtrain_cuda.so ] || continue
  [ -f "$place" ] || die "$library is not found on this machine"
  real=$(readlink -f "$place")
  install -m 755 "$real" "$root/$lib/$library"
  strip --strip-unneeded "$root/$lib/$library"
  package=$(dpkg-query -S "$real" "${real#/usr}" 2>/dev/null | head -1 | cut -d: -f1) || true
  [ -n "$package" ] || die "$place belongs to no Debian package, so its licence is not known"
  packages+=" $package"
done < <(needed "${binaries[@]}")
# What it needs beside Open MPI the program needs, too; what Open MPI needs comes with that.
if [ -n "$mpi_part" ]; then
  install -s -m 755 "$mpi_part" "$root/$lib/"
fi

# RPATH, not RUNPATH: it reaches what libraries need of each other, and no LD_LIBRARY_PATH of a
# cluster's modules slips another libstdc++ in.
patchelf --force-rpath --set-rpath "\$ORIGIN/../$lib" "${binaries[@]}"
for library in "$root/$lib"/*; do
  patchelf --force-rpath --set-rpath "\$ORIGIN" "$library"
done
# The CUDA part opens CUDA's libraries when it needs them; here is where a toolkit has them.
if [ -n "$cuda_part" ]; then
  patchelf --force-rpath --set-rpath "\$ORIGIN:/usr/local/cuda/lib64" "$root/$lib/libmeshtrain_cuda.so"
fi

# Texts: licences of what is packed, and of what is linked in (the -dev packages but those of parts).
packages+=" $(sed -n '/^packages="/,/^"/p' scripts/install_dependencies.sh | grep -E -- '-dev$' |
  grep -vE 'openmpi|sentencepiece')"
for package in $packages; do
  [ -f "/usr/share/doc/$package/copyright" ] || die "/usr/share/doc/$package/copyright is missing"
  cp -L "/usr/share/doc/$package/copyright" "$root/$licenses/$package"
done
cp -r README.md configs datasets "$root/$texts/"

# What a machine with an old glibc, or without one of the libraries, would only say at run time.
for file in "${binaries[@]}" "$root/$lib"/*; do
  worst=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
  newest=$(printf '%s\n' "GLIBC_$newest_glibc" "$worst" | sort -V | tail -1)
  [ "$newest" = "GLIBC_$newest_glibc" ] ||
    die "$(basename "$file") needs $worst; build on a system with glibc $newest_glibc (Debian 12)"
  for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [ -f "$root/$lib/$library" ] || grep -Eq "$glibc|$cuda|$mpi" <<<"$library" ||
      die "$(basename "$file") needs $library, which is not packed"
  done
done

# Everything but glibc is inside, so that one file serves several releases.
make_deb() {
  local deb=$stage/deb-root
  mkdir -p "$deb/DEBIAN"
  cp -r "$root" "$deb/usr"
  cat >"$deb/DEBIAN/control" <<END
Package: meshtrain
Version: $version
Architecture: amd64
Maintainer: meshtrain developers <meshtrain@localhost>
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Depends: libc6 (>= $newest_glibc)
Suggests: openmpi-bin
Section: science
Priority: optional
Description: sharded neural network training from one YAML file
 A YAML file declares the layers, the mesh of devices, a layout map and a strategy;
 meshtrain builds the sharded model on the local GPUs, or on virtual devices of the
 processor, and runs fit and evaluate. Several processes need Open MPI; GPUs need
 NVIDIA's driver, cuBLAS, cuDNN, NVRTC and NCCL.
END
  dpkg-deb --root-owner-group -Zxz --build "$deb" "$output" >/dev/null
}

# The suites hold the same libraries, a copy each: a third of the bytes where a copy is found 200 MB earlier.
pack() {
  if [ -n "$with_tests" ]; then
    xz --lzma2=preset=2,dict=256MiB
  else
    gzip -n -9
  fi
}

mkdir -p "$(dirname "$output")"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
case $form in
  tarball)
    tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" |
      pack >"$output"
    ;;
  wheel) python3 scripts/make_wheel.py "$root" "$version" "$output" ;;
  deb) make_deb ;;
esac
bytes=$(stat -c %s "$output")
[ "$bytes" -lt $most_bytes ] || die "$output has $bytes bytes, more than $most_bytes"
missing_part() {
  [ -n "$2" ] || echo ", without the $1 part (not built)"
}
missing=$(missing_part CUDA "$cuda_part")$(missing_part MPI "$mpi_part")
echo "$output: $((bytes / 1000)) kB$missing$(missing_part SentencePiece "$sentencepiece_part")"
[ -n "$check" ] || exit 0

readonly tokenizer=$PWD/tests/golden/tokenizers/sentencepiece_unigram  # a model of SentencePiece

# check_trains PROGRAM TEXTS: it finds its parts, trains and tokenizes, far from its sources.
check_trains() {
  if [ -n "$cuda_part" ] && (cd "$stage" && env -i "$1" devices) | grep -F libmeshtrain_cuda.so; then
    die "the packed program does not find its GPU part"
  fi
  (cd "$stage" && env -i "$1" --version && env -i "$1" train "$2/configs/quickstart.yaml" --epochs 1 -o "$stage/run" -q)
  [ -s "$stage/run/weights.safetensors" ] || die "the packed program left no weights"
  if [ -n "$sentencepiece_part" ]; then
    (cd "$stage" && env -i "$1" data tokenize --tokenizer "$tokenizer" "$2/datasets/tales.txt" -o tales.bin)
  fi
}
if [ $form = wheel ]; then
  python3 -m venv "$stage/venv"
  "$stage/venv/bin/pip" install --quiet --no-index "$output"
  check_trains "$stage/venv/bin/meshtrain" "$stage/venv/$texts"
  "$stage/venv/bin/pip" uninstall --quiet --yes meshtrain
  [ ! -e "$stage/venv/bin/meshtrain" ] || die "pip did not remove the program"
  echo "runs in an empty virtual environment"
  exit 0
elif [ $form = deb ]; then
  dpkg-deb -x "$output" "$stage/deb"
  check_trains "$stage/deb/usr/bin/meshtrain" "$stage/deb/usr/$texts"
  echo "runs from the unpacked .deb"
  exit 0
fi

# The check: a root folder that holds glibc and the tarball, and nothing else.
bare=$stage/bare
mkdir -p "$bare/lib64" "$bare/lib/x86_64-linux-gnu" "$bare/tmp" "$bare/opt" "$bare/proc/self"
cp -L /lib64/ld-linux-x86-64.so.2 "$bare/lib64/"
for library in libc.so.6 libm.so.6 libmvec.so.1 libdl.so.2 libpthread.so.0 librt.so.1; do
  cp -L "/lib/x86_64-linux-gnu/$library" "$bare/lib/x86_64-linux-gnu/"
done
tar -C "$bare/opt" -xzf "$output"
chroot=$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)
enter=(env -i "$chroot" "$bare")
if [ "$(id -u)" -ne 0 ]; then
  if unshare --map-root-user true 2>/dev/null; then
    enter=(env -i "$(command -v unshare)" --map-root-user "$chroot" "$bare")
  elif sudo -n true 2>/dev/null; then
    enter=(sudo -n env -i "$chroot" --userspec="$(id -u):$(id -g)" "$bare")
  else
    die "--check needs root, sudo or user namespaces"
  fi
fi
inside=/opt/$name
ln -s "$inside/bin/meshtrain" "$bare/proc/self/exe"  # where the loader learns what $ORIGIN is
"${enter[@]}" "$inside/bin/meshtrain" --version
"${enter[@]}" "$inside/bin/meshtrain" train "$inside/configs/quickstart.yaml" --epochs 1 -o /tmp/run
[ -s "$bare/tmp/run/weights.safetensors" ] || die "the packed program left no weights"
if [ -n "$sentencepiece_part" ]; then
  cp -r "$tokenizer" "$bare/tmp/tokenizer"
  "${enter[@]}" "$inside/bin/meshtrain" data tokenize --tokenizer /tmp/tokenizer "$inside/datasets/tales.txt" \
    -o /tmp/ids
fi
echo "runs where there is nothing but glibc"
