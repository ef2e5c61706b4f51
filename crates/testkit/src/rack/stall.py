"""Has a window stand still for the processes of one network namespace: what they have mapped of it becomes a copy
of their own, by system calls that they are made to do by ptrace(2), while all who map it stand still. Lines of
standard input:

    stall NAMESPACE     its processes have copies from now on
    hold NAMESPACE      the same, and its programs, but not its monitor, do not go on before `heal`
    mute NAMESPACE      the same, and its monitor, but not its programs, does not go on before `speak`
    heal                what is still there of the copies is the window again
"""

import ctypes, os, struct, sys

PATH = sys.argv[1]
SEIZE, INTERRUPT, DETACH, SINGLESTEP, GETREGS, SETREGS, CONT = 0x4206, 0x4207, 17, 9, 12, 13, 7
EVENT_STOP, WALL = 128, 0x40000000
R10, R9, R8, RAX, RDX, RSI, RDI, ORIG_RAX, RIP = 7, 8, 9, 10, 12, 13, 14, 15, 16
MMAP, MUNMAP, MREMAP = 9, 11, 25
READ_WRITE, SHARED_ANONYMOUS, PRIVATE_ANONYMOUS, MOVE_THERE = 3, 0x21, 0x22, 3

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, thread, data=None):
    if libc.ptrace(request, thread, None, data) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {thread}")


def maps(pid, name):
    """The ranges that are mapped from a file, or what the kernel calls so. Where the monitor has ended that opened the file, it
    stands in no folder any more."""
    name = os.path.basename(name)
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            words = line.split(None, 5)
            if len(words) == 6 and os.path.basename(words[5].strip()) in (name, f"{name} (deleted)"):
                yield tuple(int(word, 16) for word in words[0].split("-"))


def all_pids():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(maps(pid, PATH)):
                yield int(pid)
        except OSError:
            pass


class Stopped:
    """A process whose threads stand still."""

    def __init__(self, pid):
        self.pid, self.threads, seen = pid, set(), set()
        while new := {int(tid) for tid in os.listdir(f"/proc/{pid}/task")} - seen:
            seen |= new
            for thread in new:
                try:
                    ptrace(SEIZE, thread)
                    ptrace(INTERRUPT, thread)
                except (ProcessLookupError, PermissionError):
                    if self.has_ended(thread):  # Since it was listed.
                        continue
                    raise
                if self.await_stop(thread):
                    self.threads.add(thread)
        self.memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        (start, end), = maps(pid, "[vdso]")
        self.syscall_at = start + self.read(start, end - start).index(b"\x0f\x05")

    def has_ended(self, thread):
        """Also of one that is about to, which nobody may trace."""
        try:
            with open(f"/proc/{self.pid}/task/{thread}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    def await_stop(self, thread):
        """False where it ends instead."""
        while True:
            _, status = os.waitpid(thread, WALL)
            if not os.WIFSTOPPED(status):
                return False
            if status >> 16 == EVENT_STOP:
                return True
            ptrace(CONT, thread, os.WSTOPSIG(status))

    def read(self, at, length):
        return os.pread(self.memory.fileno(), length, at)

    def copy(self, start, to, length):
        step = 1 << 20
        for at in range(0, length, step):
            part = self.read(start + at, min(step, length - at))
            assert os.pwrite(self.memory.fileno(), part, to + at) == len(part)

    def call(self, number, *arguments):
        thread = self.pid
        saved = (ctypes.c_ulong * 27)()
        ptrace(GETREGS, thread, saved)
        changed = (ctypes.c_ulong * 27)(*saved)
        for register, value in zip((RDI, RSI, RDX, R10, R8, R9), (*arguments, 0, 0, 0, 0, 0, 0)):
            changed[register] = value & (1 << 64) - 1
        changed[RAX], changed[RIP], changed[ORIG_RAX] = number, self.syscall_at, (1 << 64) - 1
        ptrace(SETREGS, thread, changed)
        ptrace(SINGLESTEP, thread)
        _, status = os.waitpid(thread, WALL)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == 5, f"{status:#x}"
        ptrace(GETREGS, thread, changed)
        ptrace(SETREGS, thread, saved)
        result = ctypes.c_long(changed[RAX]).value
        assert not -4096 < result < 0, f"system call {number}: {os.strerror(-result)}"
        return result

    def go_on(self):
        for thread in self.threads:
            ptrace(DETACH, thread)


def stall(process):
    """Returns where what was mapped is now."""
    parked = []
    for start, end in list(maps(process.pid, PATH)):
        length = end - start
        copy = process.call(MMAP, 0, length, READ_WRITE, SHARED_ANONYMOUS, -1, 0)
        process.copy(start, copy, length)
        park = process.call(MMAP, 0, length, 0, PRIVATE_ANONYMOUS, -1, 0)
        process.call(MREMAP, start, length, length, MOVE_THERE, park)
        process.call(MREMAP, copy, length, length, MOVE_THERE, start)
        parked.append((start, end, park))
    return parked


def heal(process, parked):
    copies = set(maps(process.pid, "/dev/zero"))
    for start, end, park in parked:
        length = end - start
        if (start, end) in copies:
            process.call(MREMAP, park, length, length, MOVE_THERE, start)
        else:
            process.call(MUNMAP, park, length)


def is_monitor(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as words:
        return b"monitor" in words.read().split(b"\0")


# Who does not go on.
HELD = {
    "stall": lambda pid: False,
    "hold": lambda pid: not is_monitor(pid),
    "mute": is_monitor,
}


def main():
    parked, held = {}, {}
    for line in sys.stdin:
        word, *namespace = line.split()
        if word == "speak":
            for process in held.values():
                process.go_on()
            held = {}
            print("done", flush=True)
            continue
        stopped = held | {pid: Stopped(pid) for pid in all_pids() if pid not in held}
        held = {}
        if word == "heal":
            for pid, ranges in parked.items():
                if pid in stopped:
                    heal(stopped[pid], ranges)
            parked = {}
        else:
            inode = os.stat(f"/run/netns/{namespace[0]}").st_ino
            inside = [pid for pid in stopped if os.stat(f"/proc/{pid}/ns/net").st_ino == inode]
            parked = {pid: stall(stopped[pid]) for pid in inside}
            held = {pid: stopped[pid] for pid in inside if HELD[word](pid)}
        for pid in stopped.keys() - held.keys():
            stopped[pid].go_on()
        print("done", flush=True)


main()
