//! Accesses of one word, each in every order and at every scope.

use core::arch::asm;

use crate::ordering::{Order, Ordering, Reach, Scope};

/// Calls a macro with an instruction's order and scope as text, and what else it takes.
macro_rules! in_order {
    ($order:ident, $scope:ident, [$($named:ident = $text:literal),+], $instruction:ident! $operands:tt) => {
        match ($order::ORDER, $scope::REACH) {
            $((Order::$named, Reach::Cta) => $instruction!($text, ".cta", $operands),
            (Order::$named, Reach::Gpu) => $instruction!($text, ".gpu", $operands),
            (Order::$named, Reach::Sys) => $instruction!($text, ".sys", $operands),)+
            #[allow(unreachable_patterns)]
            _ => unreachable!(),
        }
    };
}

macro_rules! load {
    ($order:literal, $scope:literal, ($class:ident, $kind:literal, $address:expr)) => {{
        let value;
        asm!(concat!("ld", $order, $scope, ".global.", $kind, " {}, [{}];"), out($class) value, in(reg64) $address);
        value
    }};
}
macro_rules! store {
    ($order:literal, $scope:literal, ($class:ident, $kind:literal, $address:expr, $value:expr)) => {
        asm!(concat!("st", $order, $scope, ".global.", $kind, " [{}], {};"), in(reg64) $address, in($class) $value)
    };
}
macro_rules! change {
    ($order:literal, $scope:literal, ($class:ident, $operation:literal, $address:expr, $value:expr)) => {{
        let before;
        asm!(
            concat!("atom", $order, $scope, ".global.", $operation, " {}, [{}], {};"),
            out($class) before, in(reg64) $address, in($class) $value,
        );
        before
    }};
}
macro_rules! compare {
    ($order:literal, $scope:literal, ($class:ident, $kind:literal, $address:expr, $expected:expr, $new:expr)) => {{
        let before;
        asm!(
            concat!("atom", $order, $scope, ".global.cas.", $kind, " {}, [{}], {}, {};"),
            out($class) before, in(reg64) $address, in($class) $expected, in($class) $new,
        );
        before
    }};
}

macro_rules! words {
    ($($bits:ty | $class:ident, $kind:literal: $load:ident, $store:ident, $compare:ident;)+) => {
        $(/// # Safety
        /// `address` must be that of an aligned word of global memory.
        #[inline(always)]
        pub unsafe fn $load<O: Ordering, S: Scope>(address: u64) -> $bits {
            unsafe {
                in_order!(O, S, [Relaxed = ".relaxed", Acquire = ".acquire"], load!($class, $kind, address))
            }
        }
        /// # Safety
        /// `address` must be that of an aligned word of global memory.
        #[inline(always)]
        pub unsafe fn $store<O: Ordering, S: Scope>(address: u64, value: $bits) {
            unsafe {
                in_order!(O, S, [Relaxed = ".relaxed", Release = ".release"], store!($class, $kind, address, value))
            }
        }
        /// # Safety
        /// `address` must be that of an aligned word of global memory.
        #[inline(always)]
        pub unsafe fn $compare<O: Ordering, S: Scope>(address: u64, expected: $bits, new: $bits) -> $bits {
            unsafe {
                in_order!(
                    O, S, [Relaxed = ".relaxed", Acquire = ".acquire", Release = ".release", AcqRel = ".acq_rel"],
                    compare!($class, $kind, address, expected, new)
                )
            }
        })+
    };
}
words! {
    u16 | reg16, "b16": load_b16, store_b16, compare_b16;
    u32 | reg32, "b32": load_b32, store_b32, compare_b32;
    u64 | reg64, "b64": load_b64, store_b64, compare_b64;
}

macro_rules! changes {
    ($($name:ident: $bits:ty | $class:ident = $operation:literal;)+) => {
        $(/// What the word was before.
        ///
        /// # Safety
        /// `address` must be that of an aligned word of global memory.
        #[inline(always)]
        pub unsafe fn $name<O: Ordering, S: Scope>(address: u64, value: $bits) -> $bits {
            unsafe {
                in_order!(
                    O, S, [Relaxed = ".relaxed", Acquire = ".acquire", Release = ".release", AcqRel = ".acq_rel"],
                    change!($class, $operation, address, value)
                )
            }
        })+
    };
}
changes! {
    add_u32: u32 | reg32 = "add.u32";
    min_u32: u32 | reg32 = "min.u32";
    min_s32: u32 | reg32 = "min.s32";
    max_u32: u32 | reg32 = "max.u32";
    max_s32: u32 | reg32 = "max.s32";
    and_b32: u32 | reg32 = "and.b32";
    or_b32: u32 | reg32 = "or.b32";
    xor_b32: u32 | reg32 = "xor.b32";
    exchange_b32: u32 | reg32 = "exch.b32";
    add_u64: u64 | reg64 = "add.u64";
    min_u64: u64 | reg64 = "min.u64";
    min_s64: u64 | reg64 = "min.s64";
    max_u64: u64 | reg64 = "max.u64";
    max_s64: u64 | reg64 = "max.s64";
    and_b64: u64 | reg64 = "and.b64";
    or_b64: u64 | reg64 = "or.b64";
    xor_b64: u64 | reg64 = "xor.b64";
    exchange_b64: u64 | reg64 = "exch.b64";
    add_f32: u32 | reg32 = "add.f32";
    add_f16: u16 | reg16 = "add.noftz.f16";
}
#[cfg(not(entwine_sm_80))]
changes! {
    add_bf16: u16 | reg16 = "add.noftz.bf16";
}

/// What the word was before. GPUs before Hopper have no instruction for it.
///
/// # Safety
/// `address` must be that of an aligned word of global memory.
#[cfg(entwine_sm_80)]
#[inline(always)]
pub unsafe fn add_bf16<O: Ordering, S: Scope>(address: u64, value: u16) -> u16 {
    use crate::element::{Element, MatmulElement};
    use half::bf16;

    let sum = |before: u16| bf16::pack(bf16::from_bits(before).to_f32() + bf16::from_bits(value).to_f32(), 0.0) as u16;
    let mut before = unsafe { load_b16::<crate::ordering::Relaxed, S>(address) };
    loop {
        let found = unsafe { compare_b16::<O, S>(address, before, sum(before)) };
        if found == before {
            return before;
        }
        before = found;
    }
}

/// What the word was before: nothing exchanges 16 bits at once but by comparing.
///
/// # Safety
/// `address` must be that of an aligned word of global memory.
#[inline(always)]
pub unsafe fn exchange_b16<O: Ordering, S: Scope>(address: u64, value: u16) -> u16 {
    let mut before = unsafe { load_b16::<crate::ordering::Relaxed, S>(address) };
    loop {
        let found = unsafe { compare_b16::<O, S>(address, before, value) };
        if found == before {
            return before;
        }
        before = found;
    }
}
