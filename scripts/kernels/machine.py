"""A virtual machine under QEMU that speaks by its console and switches itself off."""
import subprocess
import threading

# A virtual machine that says nothing for so many seconds of this machine hangs.
SILENCE = 1800


def console(kernel, archive, log, words="", counted=False):
    """Boots `kernel` with `archive` as its first file system and `words` on its command line; gives each line of its console.

    With `counted`, the clock of the virtual machine counts its instructions, and skips the time in which it waits: how busy this
    machine is makes no difference to it. QEMU does that for one processor only.
    """
    if counted:
        processors = ["-accel", "tcg", "-icount", "shift=3,sleep=off", "-smp", "1"]
    else:
        processors = ["-accel", "tcg,thread=multi", "-smp", "2"]
    command = [
        "qemu-system-x86_64", *processors, "-machine", "q35", "-cpu", "max", "-m", "2048",
        "-kernel", str(kernel), "-initrd", str(archive), "-append", f"console=ttyS0 quiet panic=-1 {words}".strip(),
        "-nographic", "-nodefaults", "-serial", "stdio", "-net", "none", "-no-reboot"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as machine:
        try:
            while True:
                watch = threading.Timer(SILENCE, machine.kill)
                watch.start()
                line = machine.stdout.readline()
                watch.cancel()
                if not line:
                    break
                log.write(line)
                log.flush()
                yield line
        finally:
            machine.kill()
