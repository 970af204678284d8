//! The mover: one thread that carries the stages which only move tiles, at its own pace beside the other roles.

use core::cell::Cell;

use super::boxes::{Source, put_in_matrix};
use super::cta::{Config, Cta};
use super::fault::MOVER;
use super::signals::{Signals, Way};
use super::{holds_nothing, in_a_cta};
use crate::abi::{Head, MAX_AXES};
use crate::element::{Element, MatmulElement};
use crate::layout::ROW;
use crate::log::EventKind;
use crate::order::tiles;
use crate::place::{PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::shape::{Shape, TileShape};

/// The moving thread. One box at a time passes through a buffer of its own: a CTA's share of the traffic is
/// small, and all CTAs move at once.
pub struct Mover<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    signals: Signals<'c, 'p, C>,
    parity: Cell<u32>,
}

impl<'c, 'p, C: Config> Mover<'c, 'p, C> {
    /// Starts the role.
    #[inline(always)]
    pub fn begin(cta: &'c Cta<'p, C>) -> Self {
        let signals = Signals::new(cta, false);
        unsafe { cta.know_epoch() };
        Mover { cta, signals, parity: Cell::new(0) }
    }

    /// Ends the role.
    #[inline(always)]
    pub fn finish(&self) {
        self.cta.end_log();
    }

    /// Passes `count` boxes through the buffer.
    #[inline(always)]
    fn pass<E: Element>(&self, from: Source, count: u32, rows: usize, put: impl Fn(u32, u32)) {
        let (buffer, moved) = (self.cta.move_buffer(), self.cta.moved());
        self.cta.event(EventKind::Store);
        for index in 0..count {
            if from.limited() {
                self.signals.take_link(Way::In);
            }
            unsafe { mbarrier_arrive_expect(moved, from.bytes(rows)) };
            from.load::<E>(index, rows, buffer, moved);
            self.cta.wait(moved, self.parity.get());
            self.parity.set(self.parity.get() ^ 1);
            if from.limited() {
                self.signals.return_link(Way::In);
            }
            put(index, buffer);
            bulk_commit();
            bulk_wait_read::<0>();
        }
    }
}

impl<'c, 'p, C: Config> Role for Mover<'c, 'p, C> {
    in_a_cta!();
    holds_nothing!();

    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(MOVER, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.note(stage, tile);
        self.cta.begin_tile(stage, Some(tile));
    }

    /// The mover makes its own choices: no other role is at its stages.
    #[inline(always)]
    fn first_ready(&self, candidates: u64, slot: impl Fn(u32) -> Option<SlotPlace>) -> u32 {
        self.signals.first_ready(candidates, slot)
    }

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, _: &PanelPlace, _: &PanelPlace)
    where
        Shape<M, N>: TileShape,
    {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't call `matmul`") }
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, _: &mut (), _: &Place) {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't add to one") }
    }

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, _: &Place) {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't `read` one") }
    }

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, _: &(), _: &Place) {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't store a computed one") }
    }

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        const { assert!(S::ROWS <= C::ROWS, "a tile that a mover moves has at most the kernel's BM rows") };
        if let Place::Slot(arriving) = from
            && from.is_at(to, S::ROWS, S::COLUMNS)
        {
            self.signals.receive(arriving);
            return;
        }
        let from = Source::tile::<C, S>(&self.signals, from);
        let count = S::COLUMNS as u32 * E::SIZE / ROW;
        match to {
            Place::Matrix(to) => {
                self.pass::<E>(from, count, S::ROWS, |index, buffer| put_in_matrix::<E>(to, S::ROWS, index, 1, buffer));
                self.cta.event(EventKind::Stored);
            }
            Place::Slot(slot) => {
                self.pass::<E>(from, count, S::ROWS, |index, buffer| {
                    self.signals.put::<E>(slot, S::ROWS, S::COLUMNS, index, 1, buffer)
                });
                self.signals.announce(slot);
            }
        }
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace) {
        const { assert!(M <= C::ROWS, "a panel that a mover moves has at most the kernel's BM rows") };
        let count = tiles(from.columns() * E::SIZE, ROW);
        let from = Source::panel(&self.signals, from);
        self.pass::<E>(from, count, M, |index, buffer| self.signals.put::<E>(to, M, 0, index, 1, buffer));
        self.signals.announce(to);
    }
}
