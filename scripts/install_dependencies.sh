#!/bin/sh
# Installs the packages that building and testing meshtrain needs, on Debian 12 or an Ubuntu that has
# the same names. Does nothing, and needs no rights, when all of them are there.
#   scripts/install_dependencies.sh [--long]
#   --long   also what the long tests of tests/cluster need: a firewall, SSH servers, Slurm
set -eu

# python3 runs the checks in tests/ that read sources and the README, NumPy reads and writes files beside
# the program; the binary needs neither. Open MPI is for runs of several processes: what is built without
# it does everything else. iproute2 makes the hosts of tests/cluster.
packages="
  clang-format
  cmake
  doctest-dev
  g++
  iproute2
  libcli11-dev
  libcurl4-openssl-dev
  libdnnl-dev
  libfarmhash-dev
  libfmt-dev
  libhdf5-dev
  libopenmpi-dev
  libpcre2-dev
  libpng-dev
  libprotobuf-dev
  libsentencepiece-dev
  libssl-dev
  libturbojpeg0-dev
  libutf8proc-dev
  libxxhash-dev
  libyaml-cpp-dev
  libzip-dev
  ninja-build
  nlohmann-json3-dev
  openmpi-bin
  patchelf
  pkg-config
  protobuf-compiler
  python3
  python3-numpy
  tmux
  xz-utils
  zlib1g-dev
"

case ${1:-} in
  "") ;;
  --long) packages="$packages libfaketime munge nftables openssh-server slurm-client slurmctld slurmd" ;;
  *)
    echo "usage: scripts/install_dependencies.sh [--long]" >&2
    exit 2
    ;;
esac

die() {
  printf 'install_dependencies: %s\n' "$*" >&2
  exit 1
}

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
  die "this is not Debian or Ubuntu (no apt-get). Install what these Debian packages hold, then run
scripts/build.sh:" $packages
fi

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

missing=
for package in $packages; do
  is_installed "$package" || missing="$missing $package"
done
if [ -z "$missing" ]; then
  exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    die "these packages are missing and you are neither root nor is there a sudo command. Ask for:
  apt-get install --no-install-recommends$missing"
  fi
  if ! sudo -n true 2>/dev/null && [ ! -t 0 ]; then
    die "these packages are missing and sudo wants a password, but there is no terminal to type it. Run:
  sudo apt-get install --no-install-recommends$missing"
  fi
  as_root=sudo
fi

printf 'Installing:%s\n' "$missing"
$as_root apt-get -q update ||
  die "apt-get update failed: is there a network, and are the sources in /etc/apt right?"
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing ||
  die "apt-get could not install:$missing"
