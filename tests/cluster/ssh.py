"""Real SSH servers on the hosts of hosts.py, with keys of their own: `with Ssh(net) as agent:`."""

import os
import shutil
import subprocess

import hosts


class Ssh:
    """An sshd on each host; gives the words for --remote-agent. Fails where sshd is not installed."""

    def __init__(self, net):
        self.net = net
        self.folder = os.path.join(net.folder, "ssh")
        self.servers = []

    def __enter__(self):
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        for key in ("host", "user"):
            hosts.sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._path(key))
        for host in self.net.names:
            self._serve(host)
        with open(self._path("config"), "w") as file:
            file.write(f"IdentityFile {self._path('user')}\nIdentitiesOnly yes\nBatchMode yes\n"
                       f"StrictHostKeyChecking no\nUserKnownHostsFile {self._path('known')}\nLogLevel ERROR\n")
        return f"ssh -F {self._path('config')}"

    def __exit__(self, *_):
        for server in self.servers:
            server.terminate()
            server.wait()

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _serve(self, host):
        path = self._path(f"sshd-{host}")
        # What logs in here finds its host's name for NCCL, as the agent of hosts.py gives it, too.
        with open(path, "w") as file:
            file.write(f"ListenAddress {self.net.address(host)}\nHostKey {self._path('host')}\n"
                       f"AuthorizedKeysFile {self._path('user.pub')}\nStrictModes no\nUsePAM no\n"
                       f"PermitRootLogin yes\nPidFile none\nSetEnv NCCL_HOSTID={host} TMPDIR={self.net.temporary}\n")
        self.net.run(host, ["mkdir", "-p", "/run/sshd"])
        # In the foreground: it ends with the test.
        self.servers.append(subprocess.Popen(
            self.net.words(host, [shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-D", "-e", "-f", path]),
            stdin=subprocess.DEVNULL, stderr=open(path + ".log", "w")))
        hosts.wait_until(lambda: self._listens(host), 10, f"sshd of {host}")

    def _listens(self, host):
        return f"{self.net.address(host)}:22" in self.net.run(host, ["ss", "-Htln"])


def is_there():
    return shutil.which("sshd", path="/usr/sbin:/usr/bin") is not None and os.geteuid() == 0
