"""Hosts on one machine: each is a network, hostname and mount namespace, on one bridge.

The whole test runs in namespaces of its own (of processes, too), so that nothing of it outlives it
and nothing outside is touched. It needs to be root, or user namespaces that unprivileged users may
make; `inside()` exits with 77 (skipped) where there is neither.

    hosts.inside()                      # once, first thing in the program
    with hosts.Hosts(3, folder) as net: # h0 10.77.0.10, h1 10.77.0.11, h2 10.77.0.12
        net.run("h0", ["hostname"])
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
NEEDED = ["ip", "nsenter", "unshare", "mount", "hostname"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def load_factor():
    """Seconds that a CPU-second of this process takes now, at least 1: limits in seconds are multiplied by it."""
    began, cpu_began = time.monotonic(), time.process_time()
    cpu = 0.0
    while cpu < 0.1:
        cpu = time.process_time() - cpu_began
    return max(1.0, (time.monotonic() - began) / cpu)


def inside():
    """Starts this program again inside new namespaces, unless it is there already."""
    if os.environ.get("MESHTRAIN_TEST_INSIDE") == "1":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans stay visible as ours
        return
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        skip(f"{', '.join(missing)} not found (apt-get install iproute2 util-linux hostname)")
    spaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        spaces += ["--user", "--map-root-user"]
    probe = subprocess.run(["unshare", *spaces, "ip", "link", "add", "probe", "type", "bridge"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        skip(f"no namespaces of hosts here: {probe.stderr.strip()}")
    os.environ["MESHTRAIN_TEST_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", *spaces, sys.executable, *sys.argv])


def sh(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    """`count` hosts on a bridge; `folder` gets the remote agent and what it needs."""

    def __init__(self, count, folder):
        self.names = [f"h{i}" for i in range(count)]
        self.folder = folder
        self.holders = {}
        self.agent = os.path.join(folder, "agent")

    def address(self, host):
        return f"10.77.0.{10 + self.names.index(host)}"

    def __enter__(self):
        self.temporary = os.path.join(self.folder, "tmp")  # Open MPI's files, too, go with the test
        os.makedirs(self.temporary, exist_ok=True)
        os.environ["TMPDIR"] = self.temporary
        sh("mount", "--make-rprivate", "/")
        # A disk that all hosts share, as a network's file system, and that a test can fill.
        self.disk = os.path.join(self.folder, "disk")
        os.makedirs(self.disk, exist_ok=True)
        sh("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", self.disk)
        self._names()
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        sh("ip", "address", "add", "10.77.0.1/24", "dev", "br0")
        sh("ip", "link", "set", "br0", "up")
        for host in self.names:
            self._start(host)
        self._agent()
        return self

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
        for host in self.names:
            subprocess.run(["ip", "link", "delete", f"v{host}"], capture_output=True)
        subprocess.run(["ip", "link", "delete", "br0"], capture_output=True)
        subprocess.run(["umount", "-l", self.disk], capture_output=True)

    def _names(self):
        path = os.path.join(self.folder, "etc_hosts")
        with open(path, "w") as file:
            file.write("127.0.0.1 localhost\n")
            for host in self.names:
                file.write(f"{self.address(host)} {host}\n")
        sh("mount", "--bind", path, "/etc/hosts")

    def _start(self, host):
        # The holder has the namespaces open; what runs on the host enters them. Open MPI names
        # its memory after the host, and hosts of other tests have the same names.
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "--ipc", "sh", "-c",
                                   f"mount -t tmpfs tmpfs /dev/shm && hostname {host} && "
                                   "echo up && exec sleep infinity"],
                                  stdout=subprocess.PIPE, text=True)
        self.holders[host] = holder
        assert holder.stdout.readline() == "up\n"
        pid = str(holder.pid)
        with open(os.path.join(self.folder, f"{host}.pid"), "w") as file:
            file.write(pid)
        sh("ip", "link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        sh("ip", "link", "set", f"v{host}", "master", "br0", "up")
        self.run(host, ["ip", "link", "set", "lo", "up"])
        self.run(host, ["ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0"])
        self.run(host, ["ip", "link", "set", "eth0", "up"])
        self.run(host, ["ip", "route", "add", "default", "via", "10.77.0.1"])

    def _agent(self):
        """Instead of ssh: AGENT HOST COMMAND..., the command for a shell as ssh has it."""
        with open(self.agent, "w") as file:
            file.write(f"""#!/bin/sh
pid=$(cat '{self.folder}'/"$1".pid) || exit 255
export NCCL_HOSTID="$1"
shift
export TMPDIR='{self.temporary}'
exec nsenter --target "$pid" --net --uts --mount --ipc sh -c "cd '{self.folder}' && $*"
""")
        os.chmod(self.agent, 0o755)

    def words(self, host, words):
        """A command as one that runs on `host`."""
        return ["nsenter", "--target", str(self.holders[host].pid), "--net", "--uts", "--mount",
                "--ipc", f"--wdns={self.folder}", *words]

    def run(self, host, words, **options):
        done = subprocess.run(self.words(host, words), capture_output=True, text=True, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{host}: {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    # --- faults ---------------------------------------------------------------------------------
    def cut(self, host):
        sh("ip", "link", "set", f"v{host}", "down")

    def mend(self, host):
        sh("ip", "link", "set", f"v{host}", "up")

    def disturb(self, host, words):
        """tc netem on all that comes to the host: ["delay", "200ms", "loss", "30%"]; [] ends it.
        False where the kernel has no netem."""
        subprocess.run(["tc", "qdisc", "delete", "dev", f"v{host}", "root"], capture_output=True)
        return not words or subprocess.run(["tc", "qdisc", "add", "dev", f"v{host}", "root", "netem",
                                            *words], capture_output=True).returncode == 0

    def drop_ports(self, host, ports):
        """Packets to and from these TCP ports vanish on `host`."""
        port = "{" + ",".join(ports) + "}"
        self._drop(host, f"tcp dport {port} drop; tcp sport {port} drop;")

    def drop_some(self, host, percent):
        """So many packets in a hundred vanish on `host`, both ways."""
        self._drop(host, f"oifname lo accept; numgen random mod 100 < {percent} drop;")

    def _drop(self, host, rule):
        rules = f"""table inet test {{
 chain i {{ type filter hook input priority 0; {rule.replace("oifname", "iifname")} }}
 chain o {{ type filter hook output priority 0; {rule} }}
}}"""
        done = subprocess.run(self.words(host, ["nft", "-f", "-"]), input=rules, text=True,
                              capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"nft: {done.stderr}")

    def forget_drops(self, host):
        subprocess.run(self.words(host, ["nft", "delete", "table", "inet", "test"]),
                       capture_output=True)

    def small_disk(self, host, path, size):
        """A tmpfs of `size` at `path`, which only this host sees."""
        self.run(host, ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path])

    def unmount(self, host, path):
        subprocess.run(self.words(host, ["umount", "-l", path]), capture_output=True)

    # --- processes ------------------------------------------------------------------------------
    def host_of(self, pid):
        for host, holder in self.holders.items():
            try:
                if os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{holder.pid}/ns/net"):
                    return host
            except OSError:
                return None
        return None


def processes(pattern):
    """Processes whose program's name fits, without zombies: [(pid, name, words)]."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                stat = file.read()
            with open(f"/proc/{entry}/cmdline") as file:
                words = file.read().split("\0")[:-1]
        except OSError:
            continue
        name = stat[stat.index("(") + 1:stat.rindex(")")]
        state = stat[stat.rindex(")") + 2]
        if re.fullmatch(pattern, name) and state not in "ZX":
            found.append((int(entry), name, words))
    return found


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def environ_of(pid):
    try:
        with open(f"/proc/{pid}/environ") as file:
            return dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry)
    except OSError:
        return {}


def end_all(pattern):
    for pid, _, _ in processes(pattern):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
