"""Whether a file system can carry SQLite's write-ahead log."""

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

# The log's index is shared memory, which these do not share between hosts.
_SHARED_BETWEEN_HOSTS = re.compile(
    r"9p|afs|beegfs|ceph|cifs|fuse\.(sshfs|glusterfs)|gpfs|lustre|nfs4?|orangefs|smb3|smbfs"
    r"|vboxsf|virtiofs"
)


def type_of(path: Path, mounts: str) -> str:
    """The file system type of the longest mount point that holds `path` (`""` if unknown).

    Args:
        path: An absolute path.
        mounts: Text in the format of `/proc/self/mountinfo`.
    """
    found, kind = "", ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        mount_point = fields.split()[4].replace("\\040", " ")
        if len(mount_point) >= len(found) and path.is_relative_to(mount_point):
            found, kind = mount_point, rest.split()[0]
    return kind


def is_shared_between_hosts(path: Path) -> bool:
    """True on a network file system, as far as the system tells."""
    try:
        mounts = MOUNTS.read_text()
    except OSError:
        return False
    kind = type_of(Path(os.path.realpath(path)), mounts)
    return _SHARED_BETWEEN_HOSTS.fullmatch(kind) is not None
