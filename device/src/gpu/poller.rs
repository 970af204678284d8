//! The poller: one thread that waits for the signals of panels ahead of the loader. A look at a signal takes as long as it
//! takes to load a chunk or two, so that a loader which looked for itself would fall behind with each of them.

use core::cell::Cell;

use super::boxes::arrived;
use super::cta::{Config, Cta, Cursor};
use super::fault::POLLER;
use super::signals::Signals;
use super::{holds_nothing, in_a_cta};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::layout::ROW;
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// The polling thread. What has arrived is counted in shared memory, in chunks of all of the CTA's products that have an
/// operand in a slot: the loader goes through the same products and counts alike.
pub struct Poller<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    signals: Signals<'c, 'p, C>,
    choice: Cell<Cursor>,
    /// Chunks of the products before.
    before: Cell<u32>,
}

impl<'c, 'p, C: Config> Poller<'c, 'p, C> {
    /// Starts the role.
    #[inline(always)]
    pub fn begin(cta: &'c Cta<'p, C>) -> Self {
        let signals = Signals::new(cta, false);
        unsafe { cta.know_epoch() };
        Poller { cta, signals, choice: Cell::new(Cursor::START), before: Cell::new(0) }
    }

    /// Ends the role.
    #[inline(always)]
    pub fn finish(&self) {
        self.cta.end_log();
    }
}

impl<'c, 'p, C: Config> Role for Poller<'c, 'p, C> {
    in_a_cta!();
    holds_nothing!();

    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(POLLER, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], _: bool) {
        self.note(stage, tile);
        self.cta.begin_tile(stage, Some(tile));
    }

    #[inline(always)]
    fn take(&self, _: &Queue, _: bool, _: impl Fn(u32) -> Option<SlotPlace>, _: impl Fn(u32)) -> u32 {
        self.cta.told(&self.choice)
    }

    #[inline(always)]
    fn arranged(&self, _: &RoutingPlace) -> u32 {
        self.cta.told(&self.choice)
    }

    #[inline(always)]
    fn arrive(&self, _: &SlotPlace, _: u32) {}

    #[inline(always)]
    fn pass(&self, _: &SlotPlace) {}

    #[inline(always)]
    fn arrange(&self, _: &RoutingPlace, _: &MatrixArg, _: &MatrixArg, _: &MatrixArg) {}

    #[inline(always)]
    fn scatter<E: Element>(&self, _: &RoutingPlace, _: &Scattered) {}

    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(&self, _: &RoutingPlace, _: u32, _: u32, _: &MatrixPlace) {
        self.cta.hear(&self.choice);
    }

    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(&self, _: (), _: &MatrixPlace, _: impl Fn(f32, f32) -> f32) {
        self.cta.hear(&self.choice);
    }

    #[inline(always)]
    fn reclaim(&self) {}

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, a: &PanelPlace, b: &PanelPlace)
    where
        Shape<M, N>: TileShape,
    {
        if !a.arrives() && !b.arrives() {
            return;
        }
        let (before, chunks) = (self.before.get(), tiles(a.columns(), ROW / E::SIZE));
        let mut chunk = 0;
        while chunk < chunks {
            chunk = arrived(&self.signals, a, chunk).min(arrived(&self.signals, b, chunk)).min(chunks);
            unsafe { store_release_shared(self.cta.polled(), before.wrapping_add(chunk)) };
        }
        self.before.set(before.wrapping_add(chunks));
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, _: &mut (), _: &Place) {}

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, _: &Place) {}

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, _: &(), _: &Place) {}

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, _: &Place, _: &Place) {}

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, _: &PanelPlace, _: &SlotPlace) {}
}
