"""A virtual machine under QEMU that speaks by its console and switches itself off."""
import subprocess


def console(kernel, archive, log, words="", memory=2048):
    """Boots `kernel` with `archive` as its first file system and `words` on its command line; gives each line of its console."""
    command = [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max", "-smp", "2", "-m", str(memory),
        "-kernel", str(kernel), "-initrd", str(archive), "-append", f"console=ttyS0 quiet panic=-1 {words}".strip(),
        "-nographic", "-nodefaults", "-serial", "stdio", "-net", "none", "-no-reboot"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as machine, \
            open(log, "w", encoding="utf-8") as kept:
        for line in machine.stdout:
            kept.write(line)
            kept.flush()
            yield line
