//! The device code inside the vendor's libraries: for many kinds of GPUs, of which one is needed.

use anyhow::{Result, ensure};

/// What a container begins with: the magic number, its version and the size of this header.
const CONTAINER: [u8; 8] = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
const CONTAINER_HEADER: usize = 16;
/// An entry's kind that is machine code.
const MACHINE_CODE: u16 = 2;
/// Where an entry's header has its own size, that of what follows, and the processor.
const ENTRY_HEADER_AT: usize = 4;
const ENTRY_SIZE_AT: usize = 8;
const PROCESSOR_AT: usize = 28;

/// Leaves each container of a library with the machine code for one processor, as `90`, and puts zeros in the place of the rest,
/// which compress to nothing. A container without such code stays as it is.
///
/// # Errors
/// A container isn't laid out as expected, or none has such code.
pub fn keep(library: &mut [u8], processor: u32) -> Result<()> {
    let (mut at, mut kept) = (0, 0);
    while let Some(found) = find(&library[at..], &CONTAINER) {
        let container = at + found;
        let begin = container + CONTAINER_HEADER;
        let end = begin.saturating_add(word(library, container + 8)? as usize);
        ensure!(end <= library.len(), "device code at byte {container} has no end");
        kept += keep_entries(&mut library[container..end], processor)?;
        at = end;
    }
    ensure!(kept > 0, "the library has no machine code for sm_{processor}");
    Ok(())
}

/// Keeps entries of one container. How many.
fn keep_entries(container: &mut [u8], processor: u32) -> Result<usize> {
    let (mut kept, mut at) = (Vec::new(), CONTAINER_HEADER);
    while at < container.len() {
        let header = half(container, at + ENTRY_HEADER_AT)? as usize;
        let size = (word(container, at + ENTRY_SIZE_AT)? as usize).saturating_add(header);
        ensure!(size > 0 && at.saturating_add(size) <= container.len(), "an entry of device code has no end");
        let kind = u16::try_from(half(container, at)? & 0xffff)?;
        if kind == MACHINE_CODE && half(container, at + PROCESSOR_AT)? == processor {
            kept.push(at..at + size);
        }
        at += size;
    }
    if kept.is_empty() {
        return Ok(0);
    }
    let count = kept.len();
    let mut end = CONTAINER_HEADER;
    for entry in kept {
        let size = entry.len();
        container.copy_within(entry, end);
        end += size;
    }
    container[end..].fill(0);
    container[8..16].copy_from_slice(&((end - CONTAINER_HEADER) as u64).to_le_bytes());
    Ok(count)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted[0];
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
}

fn half(bytes: &[u8], at: usize) -> Result<u32> {
    let bytes = bytes.get(at..at + 4);
    ensure!(bytes.is_some(), "an entry of device code is cut off");
    Ok(u32::from_le_bytes(bytes.unwrap_or_default().try_into()?))
}

fn word(bytes: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from(half(bytes, at)?) | u64::from(half(bytes, at + 4)?) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 64;

    fn entry(kind: u16, processor: u32, payload: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; HEADER];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[2] = 1;
        entry[ENTRY_HEADER_AT] = HEADER as u8;
        entry[ENTRY_SIZE_AT] = payload.len() as u8;
        entry[PROCESSOR_AT] = processor as u8;
        [entry.as_slice(), payload].concat()
    }

    fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let entries = entries.concat();
        [CONTAINER.as_slice(), &(entries.len() as u64).to_le_bytes(), &entries].concat()
    }

    #[test]
    fn one_processors_code_is_left() {
        let wanted = entry(MACHINE_CODE, 90, &[7; 24]);
        let text_only = container(&[entry(1, 90, &[3; 8])]);
        let full = container(&[entry(MACHINE_CODE, 80, &[5; 16]), wanted.clone(), entry(1, 120, &[9; 8])]);
        let mut library = [b"before".as_slice(), &full, b"between", &text_only, b"after"].concat();
        let length = library.len();
        keep(&mut library, 90).unwrap();
        assert_eq!(library.len(), length, "nothing moves");
        let mut left = container(&[wanted]);
        left.resize(full.len(), 0);
        assert_eq!(library, [b"before".as_slice(), &left, b"between", &text_only, b"after"].concat());
    }

    #[test]
    fn what_is_missing_or_cut_off_is_said() {
        let mut other = container(&[entry(MACHINE_CODE, 80, &[5; 16])]);
        assert_eq!(keep(&mut other, 90).unwrap_err().to_string(), "the library has no machine code for sm_90");
        let mut cut = other[..40].to_vec();
        assert!(keep(&mut cut, 80).unwrap_err().to_string().ends_with("has no end"));
        let mut long = container(&[entry(MACHINE_CODE, 80, &[5; 16])]);
        long[CONTAINER_HEADER + ENTRY_SIZE_AT] = 200;
        assert_eq!(keep(&mut long, 80).unwrap_err().to_string(), "an entry of device code has no end");
    }
}
