#!/usr/bin/env python3
"""meshtrain under Slurm on three nodes: slurm_test.py PROGRAM"""

import os
import shutil
import signal
import sys
import tempfile
import time

import hosts
import slurm
from cases import LONG_RUN, SIX, reference
from runs import GONE, Bench, Run, check, run_cases

DETECT = 15 * hosts.load_factor()  # srun waits for its own messages after ours


def srun(bench, cluster, words, options=(), environment=None):
    return Run(bench, "h0", ["srun", "--mpi=pmix", "-N3", "-n6", "--ntasks-per-node=2", *options,
                              bench.program, *words],
               environment=cluster.environment | (environment or {}))


def steps_are_one_process_s(bench, cluster):
    one = reference(bench, SIX, name="six")
    run = srun(bench, cluster, ["train", "model.yaml", "-o", "srun", *SIX])
    run.expect(0)
    check("W616" not in run.err(), "ranks in a row are warned of")
    bench.same("srun", one)
    bench.nothing_left()


def tasks_that_are_dealt_out_in_turn_are_reported(bench, cluster):
    one = reference(bench, SIX, name="six")
    # With Slurm 22.05's own choice one start in thirteen crashed in MPI_Init: README.md.
    run = srun(bench, cluster, ["train", "model.yaml", "-o", "cyclic", *SIX], ["-m", "cyclic"],
               {"SLURM_PMIX_FENCE": "ring"})
    run.expect(0)
    run.says(r"warning\[W616\].*: h0 has ranks 0, 3, h1 has ranks 1, 4, h2 has ranks 2, 5")
    run.says(r"srun --distribution=block")
    bench.same("cyclic", one)
    bench.nothing_left()


def a_signal_saves_and_stops_the_step(bench, cluster):
    run = srun(bench, cluster, ["train", "model.yaml", "-o", "stopped", *SIX, *LONG_RUN])
    bench.wait_for_steps(run, "stopped", 30)
    job = cluster.ask(["squeue", "-h", "-o", "%A"])
    cluster.ask(["scancel", "--signal=USR1", f"{job}.0"])
    run.expect(75)
    check(bench.checkpoints("stopped"), "no checkpoint")
    bench.nothing_left()


def a_killed_task_ends_the_step(bench, cluster):
    run = srun(bench, cluster, ["train", "model.yaml", "-o", "killed", *SIX, *LONG_RUN])
    bench.wait_for_steps(run, "killed", 30)
    began = time.monotonic()
    os.kill(run.pid_of(4), signal.SIGKILL)
    run.expect((8, 137))
    check(time.monotonic() - began <= DETECT, "took too long")
    run.says(r"error\[E601\]: rank 4 on host h2")
    bench.nothing_left(GONE)


def a_job_that_a_signal_stopped_is_requeued_and_ends_with_the_same_bits(bench, cluster):
    words = [*SIX, *LONG_RUN, "fit.epochs=60"]
    bench.alone(["train", "model.yaml", "-o", "whole", *words]).expect(0)
    exports = "\n".join(f"export {name}='{value}'" for name, value in bench.environment.items())
    line = " ".join(f"'{word}'" for word in [bench.program, "train", "model.yaml", "-o", "job",
                                              "--resume=auto", *words])
    bench.write("job.sh", f"""#!/bin/sh
{exports}
echo "start ${{SLURM_RESTART_COUNT:-0}}" >>job.log
srun --mpi=pmix {line}
code=$?
echo "end $code" >>job.log
[ $code = 75 ] && scontrol requeue $SLURM_JOB_ID
exit $code
""")
    job = Run(bench, "h0", ["sbatch", "--parsable", "-N3", "-n6",
                            "--ntasks-per-node=2", "--requeue", "--open-mode=append",
                            "-o", "job.out", "job.sh"], environment=cluster.environment)
    job.expect(0)
    number = job.out().strip()
    hosts.wait_until(lambda: bench.steps("job") >= 30 and bench.checkpoints("job"), 60, "steps")
    cluster.ask(["scancel", "--signal=USR1", f"{number}.0"])

    def log():
        with open(bench.path("job.log")) as file:
            return file.read().split("\n")
    hosts.wait_until(lambda: "end 75" in log(), 30, "the end after the signal")
    hosts.wait_until(lambda: "end 0" in log(), 240, "the end after the requeue")
    check(log() == ["start 0", "end 75", "start 1", "end 0", ""], f"{log()}")
    bench.same("job", "whole")


CASES = [steps_are_one_process_s, tasks_that_are_dealt_out_in_turn_are_reported,
         a_signal_saves_and_stops_the_step, a_killed_task_ends_the_step,
         a_job_that_a_signal_stopped_is_requeued_and_ends_with_the_same_bits]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    slurm.skip_unless_there()
    hosts.inside()
    folder = tempfile.mkdtemp(prefix="meshtrain-slurm-")
    with hosts.Hosts(3, folder) as net, slurm.Slurm(net, os.path.join(folder, "slurm")) as cluster:
        bench = Bench(net, os.path.abspath(sys.argv[1]), "", "", folder)
        failures = run_cases(CASES, bench, cluster)
    if not failures:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
