//! Words in this rank's memory, for what every role looks up.

/// The word at an address. Those who write it have handed it over before.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn word(address: u64) -> u32 {
    // SAFETY: callers pass the addresses of words of tables and matrices, within their bounds.
    unsafe { crate::ptx::load_global(address) }
}

/// The word at an address. Those who write it have handed it over before.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn word(address: u64) -> u32 {
    // SAFETY: callers pass the addresses of words of tables and matrices, within their bounds.
    unsafe { (address as *const u32).read() }
}

/// The same number, of which the compiler for GPUs knows nothing: what is computed from it is computed where it is used, and
/// takes no register in between.
#[inline(always)]
pub fn anew(number: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::anew(number);
    #[cfg(not(target_arch = "nvptx64"))]
    number
}
