"""A virtual machine under QEMU that speaks by its console and switches itself off."""
import subprocess


def console(kernel, archive, log, words="", counted=False):
    """Boots `kernel` with `archive` as its first file system and `words` on its command line; gives each line of its console.

    With `counted`, the clock of the virtual machine counts its instructions, and skips the time in which it waits: how busy this
    machine is makes no difference to it. QEMU does that for one processor only.
    """
    if counted:
        processors = ["-accel", "tcg", "-icount", "shift=1,sleep=off", "-smp", "1"]
    else:
        processors = ["-accel", "tcg,thread=multi", "-smp", "2"]
    command = [
        "qemu-system-x86_64", *processors, "-machine", "q35", "-cpu", "max", "-m", "2048",
        "-kernel", str(kernel), "-initrd", str(archive), "-append", f"console=ttyS0 quiet panic=-1 {words}".strip(),
        "-nographic", "-nodefaults", "-serial", "stdio", "-net", "none", "-no-reboot"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as machine:
        for line in machine.stdout:
            log.write(line)
            log.flush()
            yield line
