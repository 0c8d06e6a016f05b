#!/bin/sh
# From a fresh Debian 12 machine to a trained model: installs what is missing, builds, trains a small
# network on a 2 x 4 mesh of virtual devices. Ends with what to try next.
set -eu
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
echo "Building build/release/app/meshtrain"
scripts/build.sh release meshtrain

meshtrain=build/release/app/meshtrain
printf '\n$ %s\n' "$meshtrain train configs/quickstart.yaml"
"$meshtrain" train configs/quickstart.yaml

cat <<END

It works. The same model on a 4 x 2 mesh, and what goes where before it runs:
  $meshtrain train configs/quickstart.yaml --mesh 4x2
  $meshtrain plan configs/quickstart.yaml
END
