//! How a warp copies rows to where an arrangement has them.

use core::cell::Cell;

use super::cta::{Config, Cta};
use super::routing::every;
use super::signals::Signals;
use crate::element::Element;
use crate::layout::ROW;
use crate::order::tiles;
use crate::place::SlotPlace;
use crate::ptx::*;
use crate::routing::{RoutingPlace, Scattered};

/// Lanes of a warp.
const LANES: u32 = 32;

/// Copies rows, as many at a time as lanes have choices of theirs to look after and as fit into the mover's buffer: each
/// row comes there once, and goes to wherever it belongs from there.
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
    let (lane, choices) = (cta.thread() % LANES, anew(routing.size.choices));
    let (room, buffer) = (C::ROWS as u32 * ROW, cta.move_buffer());
    let bytes = tiles(rows.from.columns * E::SIZE, 16) * 16;
    if bytes == 0 || choices == 0 {
        return;
    }
    signals.await_lender(rows.source);
    fence_proxy_async_global();
    let from = signals.matrix_of(&rows.from, rows.source);
    let arranged = routing.arranged(cta.head);
    let routed = arranged.rows_of(rows.source);

    // A lane has one choice of one of the rows, or, if a row has more than there are lanes, every so many of a row's.
    let side_by_side = (LANES / choices).max(1).min((room / bytes).max(1));
    let (of_row, first_choice) = if choices < LANES { (lane / choices, lane % choices) } else { (0, lane) };
    let rounds = tiles(choices, LANES);
    let end = (rows.first + rows.count).min(routing.size.rows);
    let mut row = rows.first;
    while row < end {
        let here = side_by_side.min(end - row);
        let place = |round: u32| {
            let choice = first_choice + round * LANES;
            if of_row < here && choice < choices { routed.place(&routed.entry(row + of_row, choice)) } else { None }
        };
        let first = place(0);
        let mut wanted = unsafe { lanes_where(first.is_some()) } as u64;
        if rounds > 1 {
            every(1, rounds, 1, |round| wanted |= unsafe { lanes_where(place(round).is_some()) } as u64);
        } else if choices < LANES {
            wanted = wanted >> (lane * choices).min(63) & ((1 << choices) - 1);
        }
        // The lane of a row's index brings it.
        let brings = lane < here && wanted != 0;
        let count = unsafe { lanes_where(brings) }.count_ones();
        let mut offset = 0;
        while offset < bytes && count > 0 {
            let length = (bytes - offset).min(room);
            if lane == 0 {
                unsafe { mbarrier_arrive_expect(cta.moved(), count * length) };
            }
            if brings {
                let source = from.data + (row + lane) as u64 * from.pitch + offset as u64;
                unsafe { bulk_load(buffer + lane * bytes, source, length, cta.moved()) };
            }
            cta.wait(cta.moved(), parity.get());
            parity.set(parity.get() ^ 1);
            every(0, rounds, 1, |round| {
                let place = if round == 0 { first } else { place(round) };
                if let Some(place) = place {
                    let to = rows.to.data + place as u64 * rows.to.pitch + offset as u64;
                    unsafe { bulk_store(to, buffer + of_row * bytes, length) };
                }
            });
            bulk_commit();
            bulk_wait_read::<0>();
            unsafe { sync_warp() };
            offset += length;
        }
        bulk_wait();
        fence_acq_rel_sys();
        every(0, rounds, 1, |round| {
            let place = if round == 0 { first } else { place(round) };
            if let Some(place) = place {
                let block = place.checked_div(routing.size.block_rows).unwrap_or(0);
                signals.count(&SlotPlace { index: [block, 0, 0, 0], ..rows.gate }, arranged.rows(block));
            }
        });
        unsafe { sync_warp() };
        row += here;
    }
}
