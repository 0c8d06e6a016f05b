#!/usr/bin/env python3
"""meshtrain on several hosts: cluster_test.py PROGRAM RECORDER EMULATOR [--long] [--only PART] [--keep]"""

import argparse
import os
import shutil
import sys
import tempfile

import cases
import hosts
from runs import Bench, run_cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("recorder", help="the library that makes calls on files fail")
    parser.add_argument("emulator", help="the library that stands for GPUs")
    parser.add_argument("--long", action="store_true", help="the long cases, not the short ones")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the runs")
    arguments = parser.parse_args()
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun not found (apt-get install openmpi-bin)")
    if arguments.long and shutil.which("nft") is None:
        hosts.skip("nft not found (apt-get install nftables)")
    hosts.inside()
    folder = tempfile.mkdtemp(prefix="meshtrain-cluster-")
    chosen = [case for case in (cases.LONG if arguments.long else cases.SHORT)
              if arguments.only in case.__name__]
    with hosts.Hosts(3, folder) as net:
        bench = Bench(net, os.path.abspath(arguments.program),
                      os.path.abspath(arguments.recorder), os.path.abspath(arguments.emulator),
                      folder)
        failures = run_cases(chosen, bench)
    if arguments.keep:
        print(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if not chosen:
        sys.exit("no such case")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
