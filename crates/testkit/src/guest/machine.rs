//! One virtual machine, and the commands that it is given.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Device, server};
use crate::{Host, Process};

/// What `init.sh` says when it takes commands.
const READY: &str = "ready";

/// As much as Redis and the root file system need.
const MEMORY: &str = "512M";

/// Size of the memory that both machines have.
const WINDOW_BYTES: u64 = 64 << 20;

/// One CPU, and room for another: for a single one QEMU translates atomic additions and fences to plain
/// instructions, and the machines share memory.
const CPUS: &str = "1,maxcpus=2";

/// With room for two CPUs Linux would rather ask a slow device for the time. VFIO wants an IOMMU.
const KERNEL_WORDS: &str =
    "console=ttyS1 quiet panic=-1 tsc=reliable clocksource=tsc intel_iommu=on";

/// With interrupts as they are without it: a kernel that finds its timer's late, as an emulator's are on a busy machine, does
/// not go on where they are remapped.
const IOMMU: &str = "intel-iommu,intremap=off";

/// A virtual machine; it ends with the test.
pub struct Machine {
    process: Process,
    number: u8,
}

impl Machine {
    pub(super) fn start(
        host: &Host,
        parts: &super::Parts,
        initramfs: &Path,
        device: Device,
        number: u8,
    ) -> Self {
        let wire = |number| {
            host.folder()
                .join(format!("wire{number}"))
                .display()
                .to_string()
        };
        let network = format!(
            "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            wire(number),
            wire(3 - number)
        );
        let card = format!("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0{number}");
        let kernel_words = format!("{KERNEL_WORDS} crosslane.host={number}");
        let process = host
            .plain("qemu-system-x86_64")
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-machine", "q35", "-accel", "tcg", "-cpu", "max"])
            .args(["-smp", CPUS, "-m", MEMORY, "-no-reboot"])
            // Before the devices that it translates for.
            .args(["-device", IOMMU])
            .args(["-chardev", "stdio,id=commands,signal=off"])
            .args(["-chardev", "file,id=messages,path=/dev/stderr,append=on"])
            .args(["-serial", "chardev:commands", "-serial", "chardev:messages"])
            .args(words(host, device))
            .args(["-netdev", &network, "-device", &card])
            .arg("-kernel")
            .arg(&parts.kernel)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", &kernel_words])
            .with_open_input()
            .start();
        Self { process, number }
    }

    /// Its address on the network between the machines.
    pub fn address(&self) -> String {
        format!("192.0.2.{}", self.number)
    }

    pub(super) fn wait_until_up(&mut self) {
        while self.line() != READY {}
    }

    /// Run a shell command there; return what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&mut self, command: &str) -> String {
        let (status, output) = self.attempt(command);
        assert!(
            status == 0,
            "host {}: `{command}` ended with {status}:\n{output}",
            self.number
        );
        output
    }

    /// Run a shell command there; return its exit status and what it prints.
    pub fn attempt(&mut self, command: &str) -> (i32, String) {
        self.begin(command);
        self.end()
    }

    /// Start a shell command, whose end [`Machine::end`] waits for; meanwhile the other machine can run one.
    pub fn begin(&mut self, command: &str) {
        assert!(!command.contains('\n'), "one line: {command}");
        self.process.write_line(command);
    }

    /// Wait for the end of the command that was begun.
    pub fn end(&mut self) -> (i32, String) {
        let mut output = String::new();
        loop {
            let line = self.line();
            if let Some(text) = line.strip_prefix('|') {
                output += text;
                output.push('\n');
            } else if let Some(status) = line.strip_prefix('=') {
                let status = status.parse().expect("an exit status");
                return (status, output);
            }
        }
    }

    /// Run a shell command again and again until it succeeds.
    ///
    /// # Panics
    /// After a minute.
    pub fn run_until_success(&mut self, command: &str) {
        crate::wait_until(command, || {
            let is_good = self.attempt(command).0 == 0;
            if !is_good {
                std::thread::sleep(Duration::from_millis(50));
            }
            is_good.then_some(())
        });
    }

    /// The next line from its first serial port.
    fn line(&mut self) -> String {
        self.process.next_line().unwrap_or_else(|| {
            panic!(
                "host {} has ended; it said:\n{}",
                self.number,
                self.process.log()
            )
        })
    }
}

/// What QEMU is told of the memory that both machines have.
fn words(host: &Host, device: Device) -> [String; 4] {
    let (kind, rest, options) = match device {
        Device::Plain => (
            "-object",
            format!(
                "memory-backend-file,id=window,share=on,size={WINDOW_BYTES},mem-path={}",
                host.folder().join("window").display()
            ),
            "memdev=window",
        ),
        Device::Doorbell => (
            "-chardev",
            format!("socket,id=window,path={}", socket(host).display()),
            "chardev=window,vectors=1",
        ),
    };
    let device = format!("{},{options}", device.name());
    [kind.into(), rest, "-device".into(), device]
}

/// Where machines are passed it that have no name for it.
fn socket(host: &Host) -> PathBuf {
    host.folder().join("ivshmem")
}

/// Pass it to the machines that are started from now on.
pub(super) fn serve_memory(host: &Host) {
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true);
    let served = file.open(host.folder().join("window")).and_then(|memory| {
        memory.set_len(WINDOW_BYTES)?;
        server::serve(&socket(host), memory, 2)
    });
    served.expect("the folder is the test's own");
}
