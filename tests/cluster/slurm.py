"""A Slurm of three nodes on the hosts of hosts.py: munged, slurmctld on h0, a slurmd on each."""

import os
import shutil
import subprocess

import hosts

NEEDED = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue"]
TASKS_PER_NODE = 4
REQUEUE_SECONDS = 10  # Slurm starts a job again no sooner than its credentials live


def skip_unless_there():
    """Slurm changes users and groups, which a user namespace does not allow."""
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        hosts.skip(f"{', '.join(missing)} not found (apt-get install slurmctld slurmd slurm-client munge)")
    if os.geteuid() != 0:
        hosts.skip("slurmd must be started by root")


class Slurm:
    def __init__(self, net, folder):
        self.net, self.folder = net, folder
        self.daemons = []
        self.environment = {"SLURM_CONF": os.path.join(folder, "slurm.conf")}

    def __enter__(self):
        os.makedirs(self.folder)
        os.makedirs(os.path.join(self.folder, "state"))
        os.makedirs(os.path.join(self.folder, "pmix"))
        self._write("slurm.conf", self._config())
        # Each slurmd's PMIx makes folders of the same name.
        self._write("mpi.conf", f"PMIxCliTmpDirBase={self.folder}/pmix\n")
        self._start_munge()
        self._start("h0", ["slurmctld", "-D", "-i"])
        for host in self.net.names:
            private = os.path.join(self.folder, f"pmix.{host}")
            os.makedirs(private)
            self.net.run(host, ["mount", "--bind", private, os.path.join(self.folder, "pmix")])
            self._start(host, ["slurmd", "-D", "-N", host])
        hosts.wait_until(self._all_idle, 60, f"three idle nodes; {self.folder}/*.log")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def _config(self):
        nodes = "\n".join(f"NodeName={host} NodeAddr={self.net.address(host)} CPUs={TASKS_PER_NODE} "
                          "RealMemory=1000" for host in self.net.names)
        folder = self.folder
        return f"""ClusterName=test
SlurmctldHost=h0({self.net.address('h0')})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={REQUEUE_SECONDS}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
SlurmdTimeout=20
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=NO
"""

    def _start_munge(self):
        folder = os.path.join(self.folder, "munge")
        os.makedirs(folder, mode=0o700)
        key = os.path.join(folder, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(128))
        self._start("h0", ["munged", "--foreground", "--force", f"--key-file={key}",
                           f"--socket={self.folder}/munge.socket", f"--pid-file={folder}/pid",
                           f"--log-file={folder}/log", f"--seed-file={folder}/seed"])
        hosts.wait_until(lambda: os.path.exists(f"{self.folder}/munge.socket"), 20, "munged")

    def _start(self, host, words):
        log = open(os.path.join(self.folder, f"{words[0]}.{host}.out"), "w")
        self.daemons.append(subprocess.Popen(
            self.net.words(host, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=os.environ | self.environment))
        log.close()

    def _all_idle(self):
        done = subprocess.run(self.net.words("h0", ["sinfo", "-h", "-o", "%T %D"]),
                              capture_output=True, text=True, env=os.environ | self.environment)
        return done.stdout.split() == ["idle", str(len(self.net.names))]

    def ask(self, words):
        done = subprocess.run(self.net.words("h0", words), capture_output=True, text=True,
                              env=os.environ | self.environment)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()
