"""What processes on several hosts must do, case by case. SHORT runs with every change."""

import errno
import os
import signal
import time

import hosts
import ssh
from runs import GONE, check

LONG_RUN = ["fit.epochs=100000", "data.train.samples=16", "checkpoint.every=20 steps"]
SIX = ["--mesh", "data=2,model=3", "--devices", "cpu:6"]
SIX_GPUS = ["--mesh", "data=2,model=3", "--devices", "gpu:all"]
DETECT = 5 * hosts.load_factor()  # seconds to the end of all after a loss
HEARTBEAT = 2       # of these tests, see Bench.environment
COLLECTIVE = 4

SHORT, LONG = [], []


def short(case):
    SHORT.append(case)
    return case


def long(case):
    LONG.append(case)
    return case


def reference(bench, words=(), config="model.yaml", name="one"):
    if not os.path.exists(bench.path(name + "/weights.safetensors")):
        bench.alone(["train", config, "-o", name, *words]).expect(0)
    return name


def same_on(bench, processes, config, words, one):
    run = f"{one}-{processes}"
    bench.mpirun(processes, ["train", config, "-o", run, *words]).expect(0)
    bench.same(run, one)
    bench.nothing_left()
    bench.remove(run)


@short
def two_four_and_eight_processes_compute_what_one_does(bench):
    reference(bench)
    for processes in (2, 4, 8):
        same_on(bench, processes, "model.yaml", [], "one")


@short
def six_processes_on_three_hosts_compute_what_one_does(bench):
    words = SIX
    reference(bench, words, name="six")
    for processes in (2, 3, 6):
        same_on(bench, processes, "model.yaml", words, "six")


def ranks():
    """The processes that train, not those that only start and watch."""
    return [pid for pid, _, words in hosts.processes("meshtrain")
            if "launch" not in words]


def connections(bench, host, pid, state):
    """(own port, address of the other end) of a process's TCP sockets."""
    lines = bench.net.run(host, ["ss", "-Htnp", "state", state]).splitlines()
    return [(line.split()[2].rsplit(":", 1)[1], line.split()[3].rsplit(":", 1)[0])
            for line in lines if f"pid={pid}," in line]


def ports_of_rank_0(bench, pid):
    """Where all other hosts are connected to it: of the control channel, and of MPI."""
    listening = {port for port, _ in connections(bench, "h0", pid, "listening")}
    own = {}
    for port, peer in connections(bench, "h0", pid, "established"):
        own.setdefault(port, set()).add(peer.replace("[::ffff:", "").rstrip("]"))
    others = {bench.net.address(host) for host in bench.net.names[1:]}
    all_there = {port for port, peers in own.items() if others <= peers}
    return sorted(all_there - listening), sorted(all_there & listening)


def begin(bench, run, processes=6, words=(), launch=False):
    """A run of many steps that has saved something, with the launcher that was asked for."""
    bench.remove(run)
    words = ["train", "model.yaml", "-o", run, *SIX, *LONG_RUN, *words]
    process = (bench.launch(processes, words[1:]) if launch else bench.mpirun(processes, words))
    bench.wait_for_steps(process, run, 30)
    return process


def ends(bench, process, codes, seconds, began):
    process.expect(codes)
    passed = time.monotonic() - began
    check(passed <= seconds, f"ended only after {passed:.1f} s\n{process.err()[-3000:]}")
    bench.nothing_left(GONE)


@short
def a_killed_rank_ends_all_and_the_run_goes_on_to_the_same_bits(bench):
    process = begin(bench, "killed", launch=True, words=["fit.epochs=60"])
    pid, began = process.pid_of(4), time.monotonic()
    check(bench.net.host_of(pid) == "h2", "rank 4 is on h2")
    os.kill(pid, signal.SIGKILL)
    ends(bench, process, 8, DETECT, began)
    process.says(r"error\[E601\]: rank 4 on host h2 \(pid \d+\)")
    words = [*SIX, *LONG_RUN, "fit.epochs=60"]
    bench.mpirun(6, ["train", "model.yaml", "-o", "killed", "--resume", *words]).expect(0)
    bench.alone(["train", "model.yaml", "-o", "whole", *words]).expect(0)
    bench.same("killed", "whole")


@short
def a_stopped_rank_is_named_when_it_has_been_silent(bench):
    process = begin(bench, "stopped", launch=True)
    pid, began = process.pid_of(3), time.monotonic()
    host = bench.net.host_of(pid)
    os.kill(pid, signal.SIGSTOP)
    ends(bench, process, 8, COLLECTIVE + DETECT, began)
    process.says(rf"error\[E60[12]\]: rank 3 on host {host} \(pid \d+\)")


@short
def a_cut_cable_ends_all(bench):
    process = begin(bench, "cut", launch=True)
    began = time.monotonic()
    bench.net.cut("h1")
    try:
        # mpirun has its daemons' word that they ended only once the cable is whole; the ranks
        # themselves do not wait for that.
        hosts.wait_until(lambda: not ranks(), HEARTBEAT + DETECT, "the end of all ranks")
    finally:
        ended = time.monotonic() - began
        bench.net.mend("h1")
    ends(bench, process, 8, 60, began)
    process.says(r"error\[E60[12]\]: rank [23] on host h1")
    check(ended <= HEARTBEAT + DETECT, f"ranks ended after {ended:.1f} s")


@short
def a_full_disk_of_one_host_is_named_and_hurts_no_checkpoint(bench):
    bench.remove("full")
    wrapper = bench.write("full.sh", f"""#!/bin/sh
# From the first save on, h1's disk is full.
case $(hostname) in h1)
  export LD_PRELOAD='{bench.recorder}' MESHTRAIN_RECORD_FOLDER='{bench.path("full")}/checkpoints' \\
         MESHTRAIN_FAULT=1+:ENOSPC ;;
esac
exec "$@"
""")
    process = bench.mpirun(6, ["train", "model.yaml", "-o", "full", *SIX, "checkpoint.on_error=stop"],
                           wrapper=wrapper)
    process.expect(74)
    process.says(r"E42\d.*(h1|rank [23])")
    process.says("No space left on device")
    bench.nothing_left(GONE)
    check(not bench.checkpoints("full"), "a checkpoint without the shards of h1")


@short
def a_rank_with_another_config_is_named_before_anything_starts(bench):
    bench.remove("other")
    wrapper = bench.write("other.sh", """#!/bin/sh
case $OMPI_COMM_WORLD_RANK in 3) set -- "$@" fit.batch_size=32 ;; esac
exec "$@"
""")
    began = time.monotonic()
    process = bench.mpirun(6, ["train", "model.yaml", "-o", "other", *SIX], wrapper=wrapper)
    process.expect(2)
    process.says(r"error\[E611\].*rank 3")
    process.says(r"h1")
    check(time.monotonic() - began < 20, "took too long")
    check(not os.path.exists(bench.path("other")), "something was written")
    bench.nothing_left(GONE)


@short
def a_signal_to_mpirun_saves_and_stops_all(bench):
    process = begin(bench, "signalled", words=["fit.epochs=60"])
    [mpirun] = [pid for pid, name, _ in hosts.processes("mpirun")]
    began = time.monotonic()
    os.kill(mpirun, signal.SIGUSR1)
    ends(bench, process, 75, DETECT, began)
    bench.mpirun(4, ["train", "model.yaml", "-o", "signalled", "--resume", "--mesh", "data=2,model=2",
                     "--devices", "cpu:4", *LONG_RUN, "fit.epochs=60"]).expect(0)


# --- mostly long --------------------------------------------------------------------------------

@long
def a_disk_that_fills_up_ends_the_run_and_it_goes_on_when_there_is_room(bench):
    more = ["fit.epochs=60", "checkpoint.on_error=stop"]
    process = begin(bench, "disk/run", words=more)
    filler = os.path.join(bench.net.disk, "filler")
    file = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(file, bytes(4096))
    except OSError as error:
        check(error.errno == errno.ENOSPC, str(error))
    finally:
        os.close(file)
    process.expect(74)
    process.says("No space left on device")
    bench.nothing_left(GONE)
    os.unlink(filler)
    words = [*SIX, *LONG_RUN, *more]
    bench.mpirun(6, ["train", "model.yaml", "-o", "disk/run", "--resume", *words]).expect(0)
    bench.same("disk/run", reference(bench, words, name="whole"))


@long
def clocks_three_days_apart_change_nothing(bench):
    library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
    if not os.path.exists(library):
        print("not tried: libfaketime not found (apt-get install libfaketime)")
        return
    wrapper = bench.write("clocks.sh", f"""#!/bin/sh
case $(hostname) in h1) FAKETIME=+3d ;; h2) FAKETIME=-3d ;; *) exec "$@" ;; esac
export FAKETIME DONT_FAKE_MONOTONIC=1 LD_PRELOAD={library}
exec "$@"
""")
    words = [*SIX, *LONG_RUN, "fit.epochs=60"]
    bench.remove("clocks")
    process = bench.launch(6, ["model.yaml", "-o", "clocks", *words], wrapper=wrapper)
    bench.wait_for_steps(process, "clocks", 30)
    pid, began = process.pid_of(4), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ends(bench, process, 8, DETECT, began)
    process.says(r"error\[E601\]: rank 4 on host h2")
    bench.mpirun(6, ["train", "model.yaml", "-o", "clocks", "--resume", *words],
                 wrapper=wrapper).expect(0)
    bench.same("clocks", reference(bench, words, name="whole"))
    bench.nothing_left()


@long
def mpirun_without_launch_ends_as_soon(bench):
    for number in (signal.SIGKILL, signal.SIGSEGV):
        process = begin(bench, "plain")
        pid, began = process.pid_of(4), time.monotonic()
        os.kill(pid, number)
        ends(bench, process, (8, 128 + number), DETECT, began)  # whichever mpirun hears first
        process.says(r"error\[E601\]: rank 4 on host h2")


@long
def a_killed_mpirun_leaves_nothing_behind(bench):
    process = begin(bench, "orphans")
    [mpirun] = [pid for pid, name, _ in hosts.processes("mpirun")]
    os.kill(mpirun, signal.SIGKILL)
    process.wait(GONE)
    bench.nothing_left(GONE)


@long
def a_killed_launcher_leaves_nothing_behind(bench):
    process = begin(bench, "orphans", launch=True)
    os.kill(launcher(), signal.SIGKILL)
    process.wait(GONE)
    bench.nothing_left(GONE)


@short
def restarts_end_with_the_bits_of_one_run(bench):
    words = ["fit.epochs=60"]
    bench.remove("again")
    process = bench.launch(6, ["model.yaml", "-o", "again", *SIX, *LONG_RUN, *words],
                           options=["--restarts", "2"])
    bench.wait_for_steps(process, "again", 30)
    os.kill(process.pid_of(5), signal.SIGKILL)
    hosts.wait_until(lambda: "restart 1 of 2" in process.err(), 60, "the first restart")
    before = bench.checkpoints("again")[-1]
    hosts.wait_until(lambda: bench.checkpoints("again")[-1] > before, 60, "another checkpoint")
    os.kill(process.pid_of(1), signal.SIGKILL)
    process.expect(0)
    process.says(r"restart 2 of 2 after exit code 8 .* from step \d+ of again")
    if not os.path.exists(bench.path("whole/weights.safetensors")):
        bench.alone(["train", "model.yaml", "-o", "whole", *SIX, *LONG_RUN, *words]).expect(0)
    bench.same("again", "whole")


@long
def what_fails_again_at_the_same_place_is_not_started_for_ever(bench):
    bench.remove("stuck")
    wrapper = bench.write("dying.sh", """#!/bin/sh
case $OMPI_COMM_WORLD_RANK in 2) (sleep 3; kill -9 $$) & ;; esac
exec "$@"
""")
    process = bench.launch(6, ["model.yaml", "-o", "stuck", *SIX, *LONG_RUN,
                               "checkpoint.every=1000000 steps"],
                           options=["--restarts", "5"], wrapper=wrapper)
    process.expect(8)
    process.says("restart 1 of 5 after exit code 8 .* there is no checkpoint yet")
    process.says("no checkpoint was added since restart 1")
    check("restart 2" not in process.err(), "started again without progress")
    bench.nothing_left(GONE)


@long
def what_is_wrong_is_not_started_again(bench):
    process = bench.launch(6, ["model.yaml", "-o", "wrong", *SIX, "fit.initial_weights=none.npz"],
                           options=["--restarts", "3"])
    process.expect((3, 6))
    check("restart" not in process.err(), process.err())
    bench.nothing_left(GONE)


def same_guide(bench, name, counts):
    config = os.path.join(bench.configs, name + ".yaml")
    devices = {"mirrored_mlp": 2}.get(name, 8)
    words = ["--devices", f"cpu:{devices}", "distribution.reductions=fixed", "fit.epochs=2",
             "fit.limit_steps=4", "run.log_steps=true"]
    one = reference(bench, words, config, name)
    for processes in counts:
        if processes <= devices:
            same_on(bench, processes, config, words, one)


@short
def the_guide_s_model_parallel_in_four_processes_computes_what_one_does(bench):
    same_guide(bench, "keras_guide_model_parallel", (4,))


@long
def guide_models_compute_what_one_process_does(bench):
    for name in ("keras_guide_data_parallel", "keras_guide_model_parallel", "mirrored_mlp",
                 "jax_guide_convnet"):
        same_guide(bench, name, (2, 4, 8))


def same_zero(bench, level, counts):
    words = [f"distribution.zero={level}", *SIX]
    one = reference(bench, words, name=f"zero{level}")
    for processes in counts:
        same_on(bench, processes, "model.yaml", words, one)


@short
def zero_3_in_six_processes_computes_what_one_does(bench):
    same_zero(bench, 3, (6,))


@long
def zero_levels_compute_what_one_process_does(bench):
    for level in (1, 2, 3):
        same_zero(bench, level, (2, 6))


@short
def checkpoints_of_any_number_of_processes_are_taken_by_any_other(bench):
    words = [*SIX, "distribution.zero=1"]
    one = reference(bench, words, name="moved-one")
    for first, second in ((6, 1), (1, 6), (2, 3), (6, 2)):
        bench.remove("moved")
        for processes, more in ((first, ["fit.epochs=2"]), (second, ["--resume"])):
            line = ["train", "model.yaml", "-o", "moved", *words, *more]
            run = bench.alone(line) if processes == 1 else bench.mpirun(processes, line)
            run.expect(0)
        check(bench.weights("moved") == bench.weights(one), f"{first} then {second} processes")


@long
def a_slow_network_is_only_slow(bench):
    patient = {"MESHTRAIN_HEARTBEAT_TIMEOUT": "30", "MESHTRAIN_COLLECTIVE_TIMEOUT": "90"}
    one = reference(bench, [*SIX, "fit.epochs=2"], name="slow-one")

    def train():
        bench.remove("slow")
        bench.mpirun(3, ["train", "model.yaml", "-o", "slow", *SIX, "fit.epochs=2"],
                     environment=patient).expect(0)
        bench.same("slow", one)

    bench.net.drop_some("h1", 3)
    try:
        train()
    finally:
        bench.net.forget_drops("h1")
    for words in (["delay", "20ms"], ["loss", "5%"], ["delay", "5ms", "reorder", "25%", "50%"]):
        if not bench.net.disturb("h1", words):
            print(f"not tried: tc netem {' '.join(words)}; this kernel has no sch_netem")
            continue
        try:
            train()
        finally:
            bench.net.disturb("h1", [])


@long
def a_network_that_loses_nearly_all_ends_the_run(bench):
    process = begin(bench, "lossy", launch=True)
    bench.net.drop_some("h2", 95)
    try:
        began = time.monotonic()
        hosts.wait_until(lambda: not ranks(), HEARTBEAT + DETECT, "the end of all ranks")
    finally:
        bench.net.forget_drops("h2")
    ends(bench, process, 8, 60, began)
    process.says(r"error\[E601\]: rank [45] on host h2")


@long
def a_blocked_port_of_the_heartbeat_connection_ends_the_run(bench):
    process = begin(bench, "blocked", launch=True)
    control, _ = ports_of_rank_0(bench, process.pid_of(0))
    check(len(control) == 1, f"one control channel, not {control}")
    block(bench, process, control)
    process.says(r"error\[E601\]: rank [45] on host h2")


@long
def a_blocked_port_of_mpi_ends_the_run(bench):
    process = begin(bench, "blocked", launch=True)
    _, mpi = ports_of_rank_0(bench, process.pid_of(0))
    check(mpi, "no port of MPI")
    block(bench, process, mpi)
    process.says(r"error\[E60[125]\]: rank")


def block(bench, process, ports):
    bench.net.drop_ports("h2", ports)
    began = time.monotonic()
    try:
        hosts.wait_until(lambda: not ranks(), COLLECTIVE + DETECT, "the end of all ranks")
    finally:
        bench.net.forget_drops("h2")
    ends(bench, process, 8, 60, began)


@long
def a_folder_that_one_host_does_not_share_is_named(bench):
    bench.remove("apart")
    os.makedirs(bench.path("apart"))
    bench.net.small_disk("h1", bench.path("apart"), "1m")
    try:
        process = bench.mpirun(6, ["train", "model.yaml", "-o", "apart", *SIX],
                               environment={"MESHTRAIN_COLLECTIVE_TIMEOUT": "60"})
        process.expect(6)
        process.says(r"error\[E452\].*h1")
        bench.nothing_left(GONE)
    finally:
        bench.net.unmount("h1", bench.path("apart"))


@long
def hosts_without_the_folder_send_their_shards_to_rank_0(bench):
    reference(bench, SIX, name="six")
    bench.remove("sent")
    os.makedirs(bench.path("sent"))
    words = ["train", "model.yaml", "-o", "sent", *SIX, "checkpoint.gather=root"]
    for host in ("h1", "h2"):
        bench.net.small_disk(host, bench.path("sent"), "1m")
    try:
        bench.mpirun(6, [*words, "fit.epochs=1"]).expect(0)
        bench.mpirun(6, [*words, "--resume"]).expect(0)
        for host in ("h1", "h2"):
            there = bench.net.run(host, ["ls", "-A", bench.path("sent")])
            check(not there.strip(), f"{host} has {there}")
    finally:
        for host in ("h1", "h2"):
            bench.net.unmount(host, bench.path("sent"))
    check(not [name for name in os.listdir(bench.net.temporary) if name.startswith("meshtrain-")],
          "a copy is left")
    bench.same("sent", "six")
    bench.nothing_left()


@long
def a_crash_of_a_rank_is_a_lost_rank(bench):
    for number in (signal.SIGSEGV, signal.SIGABRT):
        process = begin(bench, "crashed", launch=True)
        pid, began = process.pid_of(1), time.monotonic()
        os.kill(pid, number)
        ends(bench, process, 8, DETECT, began)
        process.says(r"error\[E601\]: rank 1 on host h0")


# --- processes with a GPU each -------------------------------------------------------------------

def on_gpus(bench, run, words):
    environment = {"MESHTRAIN_GPU_LIBRARY": bench.emulator, "MESHTRAIN_EMULATOR_GPUS": "2",
                   "NCCL_HOSTID": "h0"}  # the agent gives the other hosts theirs
    return bench.launch(6, ["model.yaml", "-o", run, *SIX_GPUS, *words], environment=environment)


def begin_on_gpus(bench, run):
    bench.remove(run)
    process = on_gpus(bench, run, LONG_RUN)
    bench.wait_for_steps(process, run, 30)
    return process


def one_gpu(bench):
    """The run of six virtual devices of one GPU."""
    if not os.path.exists(bench.path("gpu/weights.safetensors")):
        bench.alone(["train", "model.yaml", "-o", "gpu", "--mesh", "data=2,model=3", "--devices",
                     "gpu:0x6"], environment={"MESHTRAIN_GPU_LIBRARY": bench.emulator}).expect(0)
    return "gpu"


@long
def gpus_of_three_hosts_compute_what_one_gpu_does(bench):
    on_gpus(bench, "gpus", []).expect(0)
    bench.same("gpus", one_gpu(bench))
    bench.nothing_left()


@long
def a_lost_gpu_process_of_another_host_ends_all(bench):
    process = begin_on_gpus(bench, "gpus-lost")
    pid, began = process.pid_of(3), time.monotonic()
    check(bench.net.host_of(pid) == "h1", "rank 3 is on h1")
    os.kill(pid, signal.SIGKILL)
    ends(bench, process, 8, DETECT, began)
    process.says(r"error\[E601\]: rank 3 on host h1")


@long
def a_signal_to_launch_stops_gpu_processes_of_all_hosts(bench):
    process = begin_on_gpus(bench, "gpus-stopped")
    began = time.monotonic()
    os.kill(launcher(), signal.SIGTERM)
    ends(bench, process, 75, DETECT, began)
    check(bench.checkpoints("gpus-stopped"), "no checkpoint")


@long
def a_killed_launch_leaves_no_gpu_process_anywhere(bench):
    process = begin_on_gpus(bench, "gpus-orphans")
    os.kill(launcher(), signal.SIGKILL)
    process.wait(GONE)
    bench.nothing_left(GONE)


@long
def real_ssh_starts_processes_of_both_kinds_and_carries_their_ends(bench):
    if not ssh.is_there():
        print("not tried: sshd not found (apt-get install openssh-server), or this is not root")
        return
    reference(bench, SIX, name="six")
    gpus = {"MESHTRAIN_GPU_LIBRARY": bench.emulator, "MESHTRAIN_EMULATOR_GPUS": "2", "NCCL_HOSTID": "h0"}
    with ssh.Ssh(bench.net) as agent:
        options = ["--remote-agent", agent]
        bench.launch(6, ["model.yaml", "-o", "by-ssh", *SIX], options=options).expect(0)
        bench.same("by-ssh", "six")
        bench.launch(6, ["model.yaml", "-o", "by-ssh-gpus", *SIX_GPUS], options=options,
                     environment=gpus).expect(0)
        bench.same("by-ssh-gpus", one_gpu(bench))
        for devices, environment in ((SIX, {}), (SIX_GPUS, gpus)):
            bench.remove("by-ssh-lost")
            process = bench.launch(6, ["model.yaml", "-o", "by-ssh-lost", *devices, *LONG_RUN],
                                   options=options, environment=environment)
            bench.wait_for_steps(process, "by-ssh-lost", 30)
            pid, began = process.pid_of(5), time.monotonic()
            check(bench.net.host_of(pid) == "h2", "rank 5 is on h2")
            os.kill(pid, signal.SIGKILL)
            ends(bench, process, 8, DETECT, began)
            process.says(r"error\[E601\]: rank 5 on host h2")


def launcher():
    [pid] = [pid for pid, _, words in hosts.processes("meshtrain") if "launch" in words]
    return pid


@long
def an_agent_that_starts_nothing_is_said(bench):
    environment = {"MESHTRAIN_GPU_LIBRARY": bench.emulator, "MESHTRAIN_EMULATOR_GPUS": "2"}
    for code, devices, message in (
            (127, SIX_GPUS, r"mpirun found no `orted` on another host \(exit code 127\)"),
            (127, SIX, r"mpirun found no `orted` on another host \(exit code 127\)"),
            (255, SIX, r"mpirun ended with exit code 255: a process could not be started")):
        agent = bench.write(f"agent{code}", f"#!/bin/sh\nexit {code}\n")
        os.chmod(bench.path(agent), 0o755)
        process = bench.launch(6, ["model.yaml", "-o", "unstarted", *devices],
                               options=["--remote-agent", bench.path(agent)],
                               environment=environment)
        process.expect(8)
        process.says(message)
        bench.nothing_left(GONE)
