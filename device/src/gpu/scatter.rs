//! How a warp copies rows to where an arrangement has them.

use core::cell::Cell;

use super::cta::{Config, Cta};
use super::fault::misfit;
use super::routing::{anew_size, every};
use super::signals::Signals;
use crate::abi::{Head, MatrixArg};
use crate::element::Element;
use crate::layout::ROW;
use crate::order::tiles;
use crate::place::SlotPlace;
use crate::ptx::*;
use crate::routing::{Placed, Routed, RoutingPlace, Scattered};

/// Lanes of a warp.
const LANES: u32 = 32;

/// Copies rows to all of their places with the first of these. As many are looked after at a time as lanes have choices of
/// theirs, and copied at a time as fit into the mover's buffer: each row comes there once, and goes to wherever it belongs
/// from there.
///
/// # Safety
/// All lanes of the mover must come here together. `parity` is that of the buffer's barrier.
#[inline(always)]
pub(super) unsafe fn scatter<E: Element, C: Config>(
    cta: &Cta<'_, C>,
    signals: &Signals<'_, '_, C>,
    parity: &Cell<u32>,
    routing: &RoutingPlace,
    rows: &Scattered,
) {
    let routing = &RoutingPlace { size: anew_size(routing), ..*routing };
    let (lane, choices) = (cta.thread() % LANES, routing.size.choices);
    let head = &Head { world: anew(cta.head.world), rank: anew(cta.head.rank), ..*cta.head };
    let (room, buffer) = (C::ROWS as u32 * ROW, cta.move_buffer());
    let bytes = tiles(rows.from.columns * E::SIZE, 16) * 16;
    if let Some(found) = routing.misfit_scattered(rows) {
        misfit(routing, &found);
    }
    if choices == 0 {
        return;
    }
    // All ranks have begun the launch, and lend their rows: their tables are there. Which of them are late on purpose the caller
    // knows.
    fence_proxy_async_global();
    let arranged = routing.arranged(head);
    let (group, end) = (arranged.group(rows.block), rows.block * routing.size.block_rows + arranged.rows(rows.block));
    let end = if end < rows.first + rows.count { end } else { rows.first + rows.count };
    // A lane knows where the rows of one rank start.
    let turn_of =
        |turn: u32| if head.rank + turn < head.world { head.rank + turn } else { head.rank + turn - head.world };
    let start = if lane < head.world { arranged.start(turn_of(lane), group) } else { u32::MAX };

    // A lane has one choice of one of the rows, or, if a row has more than there are lanes, every so many of a row's.
    let side_by_side = (LANES / choices).max(1);
    let (of_row, first_choice) = if choices < LANES { (lane / choices, lane % choices) } else { (0, lane) };
    let leader = if choices < LANES { of_row * choices } else { 0 };
    let of_my_row = |lanes: u32| if choices < LANES { lanes >> leader & ((1 << choices) - 1) } else { lanes };
    let rounds = tiles(choices, LANES);
    let at_once = if bytes < room { room.checked_div(bytes).unwrap_or(LANES) } else { 1 };
    let mut first = rows.first;
    while first < end {
        let (row, is_row) = (first + of_row, of_row < side_by_side && first + of_row < end);
        let mut turn = 0;
        every(1, head.world, 1, |next| turn = if unsafe { shuffle(start, next) } <= row { next } else { turn });
        let source = turn_of(turn);
        let is_row = is_row && unsafe { load_shared(cta.brings()) } >> source & 1 != 0;
        if unsafe { lanes_where(is_row) } == 0 {
            first += side_by_side;
            continue;
        }
        let routed = arranged.rows_of(source);
        let chosen = if is_row { routed.row_at(row, group) } else { 0 };
        let place_in = |routed: Routed, round: u32| {
            let choice = first_choice + round * LANES;
            if is_row && choice < choices { routed.place(&routed.entry(chosen, choice)) } else { None }
        };
        let first_place = place_in(routed, 0);
        // Few rows choose so many groups that a lane has several to look after. They are looked up again each time.
        let place = |round: u32| if round == 0 { first_place } else { place_in(arranged.rows_of(anew(source)), round) };
        let mut earlier = 0;
        every(0, rounds, 1, |round| {
            earlier |= of_my_row(unsafe { lanes_where(place(round).is_some_and(|place| place.row < row)) });
        });
        let brings = is_row && earlier == 0;
        let from = signals.matrix_of(&rows.from, source);
        let missed = unsafe { lanes_where(brings && chosen >= from.rows) };
        if missed != 0 {
            let first = missed.trailing_zeros();
            let (chosen, rows) = unsafe { (shuffle(chosen, first), shuffle(from.rows, first)) };
            misfit(routing, &routing.misfit_row(&MatrixArg { rows, ..from }, chosen));
        }
        let from = from.data + chosen as u64 * from.pitch;
        let mut pending = if bytes > 0 { unsafe { lanes_where(brings && lane == leader) } } else { 0 };
        let mut offset = 0;
        while pending != 0 {
            // The rows before this lane's among those that are left.
            let before = (pending & ((1 << leader) - 1)).count_ones();
            let now = brings && pending >> leader & 1 != 0 && before < at_once;
            let leads = now && lane == leader;
            let leading = unsafe { lanes_where(leads) };
            let length = (bytes - offset).min(room);
            if lane == 0 {
                unsafe { mbarrier_arrive_expect(cta.moved(), leading.count_ones() * length) };
            }
            if leads {
                unsafe { bulk_load(buffer + before * bytes, from + offset as u64, length, cta.moved()) };
            }
            // The copy alone is waited for: nobody else can hold it up.
            while !unsafe { mbarrier_try_wait(cta.moved(), parity.get()) } {}
            parity.set(parity.get() ^ 1);
            if now {
                every(0, rounds, 1, |round| {
                    if let Some(place) = place(round) {
                        let to = rows.to.data + place.row as u64 * rows.to.pitch + offset as u64;
                        unsafe { bulk_store(to, buffer + before * bytes, length) };
                    }
                });
            }
            bulk_commit();
            bulk_wait_read::<0>();
            unsafe { sync_warp() };
            offset += length;
            if offset == bytes {
                offset = 0;
                pending &= !leading;
            }
        }
        bulk_wait();
        fence_acq_rel_sys();
        if brings {
            every(0, rounds, 1, |round| {
                if let Some(place) = place(round) {
                    let block = place.row.checked_div(routing.size.block_rows).unwrap_or(0);
                    signals.count(&SlotPlace { index: [block, 0, 0, 0], ..rows.gate }, arranged.rows(block));
                }
            });
        }
        unsafe { sync_warp() };
        first += side_by_side;
    }
}
