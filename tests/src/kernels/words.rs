//! Every operation on words, of every type, in every order and at every scope.

use entwine::prelude::*;

/// Does something to a word, another one in each tile: in each order, at every scope on this rank and at the widest on another.
/// What comes of it is kept.
macro_rules! in_every_order {
    ($site:tt, [$($order:ident),+], |$word:ident, $o:ident, $s:ident| $act:expr) => {
        $(
            in_every_order!(@here $site, $order, Cta, |$word, $o, $s| $act);
            in_every_order!(@here $site, $order, Gpu, |$word, $o, $s| $act);
            in_every_order!(@here $site, $order, Sys, |$word, $o, $s| $act);
            in_every_order!(@there $site, $order, Sys, |$word, $o, $s| $act);
        )+
    };
    (@here ($here:ident, $there:ident, $operation:ident, $next:ident, $found:ident), $($act:tt)+) => {
        in_every_order!(@keep $here, $operation, $next, $found, $($act)+);
    };
    (@there ($here:ident, $there:ident, $operation:ident, $next:ident, $found:ident), $($act:tt)+) => {
        in_every_order!(@keep $there, $operation, $next, $found, $($act)+);
    };
    (@keep $place:ident, $operation:ident, $next:ident, $found:ident, $order:ident, $scope:ident, |$word:ident, $o:ident, $s:ident| $act:expr) => {
        if $operation == $next {
            let ($word, $o, $s) = (&$place, $order, $scope);
            $found = $act;
        }
        $next += 1;
    };
}

/// Kernels whose tiles each do to a word of their own what one of the suite's operations says, in one order at one scope: another
/// one at each distance.
macro_rules! words {
    ($($name:ident: $word:ident, [$($change:ident),+];)+) => {
        $(/// Operations on words of one type.
        #[entwine::kernel(tiles = [(64, 64)], elements = [f32], roles = one)]
        pub mod $name {
            use super::*;

            #[stage(grid = [rows])]
            fn exercise(
                at: At<1>,
                distance: u32,
                #[shape(1, 1)] operand: &mut Symmetric<$word>,
                #[shape(rows, world)] words: &mut Symmetric<$word>,
                #[shape(rows, 1)] kept: &mut Symmetric<$word>,
            ) {
                let peer = (at.rank() + distance) % at.world();
                let here = words.here().word([at[0], at.rank()]);
                let there = words.on(peer).word([at[0], at.rank()]);
                let operand = operand.here().word([0, 0]).load(Relaxed, Gpu);
                // Not the row itself: the compiler would find out each one's address before the first.
                let operation = (at[0] + distance) % words.rows();
                let mut next = 0;
                let mut found = operand;
                in_every_order!((here, there, operation, next, found), [Relaxed, Acquire], |word, o, s| word.load(o, s));
                in_every_order!((here, there, operation, next, found), [Relaxed, Release], |word, o, s| {
                    word.store(operand, o, s);
                    operand
                });
                in_every_order!(
                    (here, there, operation, next, found), [Relaxed, Acquire, Release, AcqRel],
                    |word, o, s| {
                        let held = word.load(Relaxed, Sys);
                        word.compare_exchange(held, operand, o, s).unwrap_or(operand)
                    }
                );
                in_every_order!(
                    (here, there, operation, next, found), [Relaxed, Acquire, Release, AcqRel],
                    |word, o, s| word.compare_exchange(operand, operand, o, s).err().unwrap_or(operand)
                );
                $(in_every_order!(
                    (here, there, operation, next, found), [Relaxed, Acquire, Release, AcqRel],
                    |word, o, s| word.$change(operand, o, s)
                );)+
                assert!(operation < next);
                kept.here().word([at[0], 0]).store(found, Relaxed, Gpu);
            }
        })+
    };
}
words! {
    words_u32: u32,
        [exchange, fetch_add, fetch_sub, fetch_min, fetch_max, fetch_and, fetch_or, fetch_xor];
    words_i32: i32,
        [exchange, fetch_add, fetch_sub, fetch_min, fetch_max, fetch_and, fetch_or, fetch_xor];
    words_u64: u64,
        [exchange, fetch_add, fetch_sub, fetch_min, fetch_max, fetch_and, fetch_or, fetch_xor];
    words_i64: i64,
        [exchange, fetch_add, fetch_sub, fetch_min, fetch_max, fetch_and, fetch_or, fetch_xor];
    words_f32: f32, [exchange, fetch_add, fetch_sub, fetch_min, fetch_max];
    words_f16: f16, [exchange, fetch_add, fetch_sub, fetch_min, fetch_max];
    words_bf16: bf16, [exchange, fetch_add, fetch_sub, fetch_min, fetch_max];
}
