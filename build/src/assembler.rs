//! NVIDIA's assembler and disassembler, where they are installed: what PTX costs once it is machine code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

/// What the assembler reports of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries, and the functions beside them that cost stack, in the order of the report.
    pub functions: Vec<Usage>,
    /// Warnings, and notes that an instruction sequence was serialised or a register request ignored.
    pub warnings: Vec<String>,
}

/// What one entry or function uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its symbol.
    pub name: String,
    /// Registers of a thread; 0 for a function, which has those of the entry that calls it.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of register spills, stores and loads together.
    pub spills: u32,
}

impl Report {
    /// What keeps the module from running at full speed; empty if nothing does.
    pub fn faults(&self) -> Vec<String> {
        let costly = self.functions.iter().filter(|usage| usage.stack > 0 || usage.spills > 0);
        let costly = costly.map(|usage| {
            let Usage { name, stack, spills, .. } = usage;
            format!("`{name}` has {stack} bytes of stack and {spills} bytes of spills: expected none of either")
        });
        costly.chain(self.warnings.iter().cloned()).collect()
    }

    fn from_messages(text: &str) -> Report {
        let mut report = Report::default();
        for line in text.lines() {
            if let Some((_, name)) = line.split_once("Function properties for ") {
                report.functions.push(Usage { name: name.to_owned(), ..Usage::default() });
            } else if line.contains("warning") || line.contains("(C7") {
                report.warnings.push(line.to_owned());
            } else if let Some(usage) = report.functions.last_mut() {
                let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
                if line.contains("bytes stack frame") {
                    usage.stack = numbers.next().unwrap_or_default();
                    usage.spills = numbers.sum();
                } else if line.contains("Used ") {
                    usage.registers = numbers.next().unwrap_or_default();
                }
            }
        }
        report.functions.retain(|usage| usage.registers > 0 || usage.stack > 0 || usage.spills > 0);
        report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.functions.iter().map(|usage| usage.name.len()).max().unwrap_or_default();
        for Usage { name, registers, stack, spills } in &self.functions {
            writeln!(f, "{name:width$}  {registers:3} registers  {stack:4} B stack  {spills:4} B spills")?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "{warning}"))
    }
}

/// `ptxas` is on the search path.
pub fn is_installed() -> bool {
    Command::new("ptxas").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Assembles the PTX in a file into a cubin for a processor, one of [`Target::assembled_for`](crate::Target::assembled_for).
///
/// # Errors
///
/// `ptxas` couldn't be started, or it refused the PTX: its messages.
pub fn assemble(processor: &str, ptx: &Path, cubin: &Path) -> io::Result<Report> {
    let mut ptxas = Command::new("ptxas");
    ptxas.arg(format!("-arch={processor}")).args(["-v", "-O3", "-o"]).arg(cubin).arg(ptx);
    Ok(Report::from_messages(&messages(ptxas)?.1))
}

/// The machine code of a cubin, as text.
///
/// # Errors
///
/// `nvdisasm` couldn't be started, or it refused the cubin: its messages.
pub fn disassemble(cubin: &Path) -> io::Result<String> {
    let mut nvdisasm = Command::new("nvdisasm");
    nvdisasm.arg("-c").arg(cubin);
    Ok(messages(nvdisasm)?.0)
}

/// What a command that must succeed wrote to its two outputs.
fn messages(mut command: Command) -> io::Result<(String, String)> {
    let output = command.output().map_err(|error| {
        io::Error::new(error.kind(), format!("couldn't start `{}`: {error}", command.get_program().display()))
    })?;
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() { Ok((out, err)) } else { Err(io::Error::other(err)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = "\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'slow'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'slow' for 'sm_90a'
ptxas info    : Function properties for slow
    64 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 64 bytes cumulative stack size
ptxas info    : Compile time = 1.727 ms
ptxas info    : Compiling entry function 'fast' for 'sm_90a'
ptxas info    : Function properties for fast
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers
ptxas info    : Function properties for report
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
";

    #[test]
    fn the_report_is_read_for_each_function() {
        let report = Report::from_messages(MESSAGES);
        let slow = Usage { name: "slow".into(), registers: 168, stack: 64, spills: 12 };
        let fast = Usage { name: "fast".into(), registers: 32, stack: 0, spills: 0 };
        assert_eq!(report.functions, [slow, fast]);
        let faults = report.faults();
        assert_eq!(faults.len(), 2);
        assert!(faults[0].contains("`slow` has 64 bytes of stack"));
        assert!(faults[1].contains("serialized in function 'slow'"));
    }
}
