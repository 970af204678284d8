//! A CTA: who its threads are, where its shared memory lies, how it starts and leaves, and how its
//! threads wait for each other without ever hanging.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;

use super::boxes::for_maps;
use super::fault;
use crate::abi::{Control, Head, MAX_AXES, MatrixArg};
use crate::layout;
use crate::log::EventKind;
use crate::order::Queue;
use crate::ptx::*;

/// What a variant is compiled for.
pub trait Config {
    /// Rows of the tile; the math warpgroups hold 64 each.
    const ROWS: usize;
    /// Columns of the tile.
    const COLUMNS: usize;
    /// Bytes of an element of a staged tile.
    const ELEMENT: u32;
    /// Whether the kernel has channels. One without takes no part in the protocol between ranks.
    const COMMUNICATES: bool;
    /// Whether a mover carries some of its stages.
    const MOVES: bool;
    /// Whether panels arrive in slots, for whose signals a poller looks.
    const POLLS: bool;
    /// Whether stages go by a routing: the threads beside the math warpgroups then need more registers.
    const ROUTES: bool;
    /// Whether what they move are rows, too, so that the mover is a whole warp.
    const MOVES_ROWS: bool;
    /// Whether its roles record what they do when.
    const RECORDS: bool;

    /// Slots of the ring.
    const RING_DEPTH: u32 = layout::ring_depth(Self::ROWS, Self::COLUMNS, Self::ELEMENT, Self::MOVES);
    /// Bytes of a ring slot.
    const RING_SLOT: u32 = layout::ring_slot(Self::ROWS, Self::COLUMNS);
    /// Bytes of the staging buffer.
    const STAGING: u32 = layout::staging(Self::ROWS, Self::COLUMNS, Self::ELEMENT);
    /// Math warpgroups.
    const WARPGROUPS: u32 = layout::warpgroups(Self::ROWS);
}

/// Registers of a thread that does not compute, and of one that does. With two math warpgroups the
/// accumulators don't fit into an even share.
const REGISTERS: [u32; 2] = shared_out([72, 216]);
/// The same where stages go by a routing, and where that is recorded.
const ROUTING_REGISTERS: [u32; 2] = shared_out([88, 208]);
const RECORDED_REGISTERS: [u32; 2] = shared_out([96, 200]);

/// Shares of what a CTA with two math warpgroups starts with. It would wait for more for ever.
const fn shared_out(shares: [u32; 2]) -> [u32; 2] {
    const STARTED_WITH: u32 = 168;
    assert!(shares[0] + 2 * shares[1] <= 3 * STARTED_WITH);
    shares
}

/// Warps are told apart by these threads.
pub(super) const LOADING_THREAD: u32 = 0;
const COMMUNICATING_THREAD: u32 = 32;
const MOVING_THREAD: u32 = 64;
const POLLING_THREAD: u32 = 96;
/// Not the loader, which has the longest way to its first load.
const PREPARING_THREAD: u32 = 96;
const FETCHING_THREAD: u32 = 64;

/// What the loader has told the other roles, tiles or that something has come, and they may not have heard yet.
pub(super) const CHOICES: u32 = 2;

/// Tries of a wait between two looks at the abort word.
pub(super) const TRIES: u32 = 64;

// Offsets in the header.
const FULL: u32 = 0;
const EMPTY: u32 = 64;
const READY: u32 = 128;
const STAGED: u32 = 136;
const CHOSEN: u32 = 144;
const CHOICE_FREE: u32 = 160;
const CHOICE: u32 = 176;
const MOVED: u32 = 184;
const KNOWN: u32 = 192;
const POLLED: u32 = 200;
const BRINGS: u32 = 208;
const PASSES_SINCE: u32 = 212;
/// What a report of a fault needs: the addresses and numbers of [`Head`], then each role's stage and tile.
pub(super) const HEAD: u32 = 256;
/// Not 0 once a thread has ended because the launch is given up.
pub(super) const GIVEN_UP: u32 = 288;
/// Not 0 once the loader has.
pub(super) const LOADER_ENDED: u32 = 292;
pub(super) const SITES: u32 = 320;
pub(super) const SITE: u32 = 32;
/// When each role, waiting, first saw that every rank had started.
pub(super) const SINCE: u32 = 448;
/// How many entries each role has written of its log.
pub(super) const LOGGED: u32 = 480;
/// Where the regions start, for the communication thread: it asks for each piece that it sends.
const REGIONS: u32 = 512;
/// Where the math warpgroups store or read a tile that goes straight: the number of places, and their addresses.
const TARGETS: u32 = 576;
/// The tiles that the loader has put by, and those that the mover has.
const PUT_BY: u32 = 704;
const MOVER_PUT_BY: u32 = PUT_BY + 4 * Queue::PUT_BY;

/// A CTA, as one of its threads sees it.
pub struct Cta<'p, C: Config> {
    pub(super) head: &'p Head,
    /// Address of this rank's control block, which is where its symmetric region starts.
    pub(super) region: u64,
    pub(super) shared: u32,
    thread: u32,
    aborted: Cell<bool>,
    config: PhantomData<C>,
}

impl<'p, C: Config> Cta<'p, C> {
    /// The CTA, before anything is set up in its shared memory.
    #[inline(always)]
    pub(super) fn open(head: &'p Head) -> Self {
        Cta {
            head,
            region: head.region,
            shared: shared_base(),
            thread: thread_idx_x(),
            aborted: Cell::new(false),
            config: PhantomData,
        }
    }

    /// Sets up the barriers, and has the matrices' tensor maps at hand.
    ///
    /// # Safety
    /// Every thread of the CTA must begin, once, with the launch's parameters.
    #[inline(always)]
    pub unsafe fn begin<const MATRICES: usize>(head: &'p Head, matrices: &[MatrixArg; MATRICES]) -> Self {
        let cta = Cta::open(head);
        let begun = cta.time();
        if cta.thread == 0 {
            unsafe {
                for slot in 0..C::RING_DEPTH {
                    mbarrier_init(cta.full(slot), 1);
                    mbarrier_init(cta.empty(slot), C::WARPGROUPS);
                }
                mbarrier_init(cta.ready(), 1);
                mbarrier_init(cta.staged(), 128 * C::WARPGROUPS);
                mbarrier_init(cta.moved(), 1);
                mbarrier_init(cta.known(), 1 + C::MOVES as u32 + C::POLLS as u32);
                for choice in 0..CHOICES {
                    mbarrier_init(cta.chosen(choice), 1);
                    mbarrier_init(cta.choice_free(choice), 128 * C::WARPGROUPS + 1 + C::POLLS as u32);
                }
            }
            fence_mbarrier_init();
        }
        if cta.thread == PREPARING_THREAD {
            unsafe {
                store_shared(cta.polled(), 0);
                cta.prepare_reports();
                cta.prepare_log();
            }
        }
        if cta.thread == FETCHING_THREAD {
            for matrix in matrices {
                if matrix.maps != 0 {
                    for_maps(C::ROWS | C::COLUMNS, |map, _| unsafe { prefetch_tensor_map(matrix.maps + map) });
                }
            }
        }
        unsafe { sync_threads() };
        // Up to here the launch before may still run; what it leaves in memory is used from here on.
        launch_dependents();
        wait_for_dependencies();
        if cta.loads() {
            cta.event_at(EventKind::Start, begun);
        }
        cta
    }

    /// Whether this thread belongs to the math warpgroups.
    #[inline(always)]
    pub fn computes(&self) -> bool {
        self.thread >= 128
    }

    /// Whether this thread is the loader.
    #[inline(always)]
    pub fn loads(&self) -> bool {
        self.thread == LOADING_THREAD
    }

    /// Whether this thread is the communication thread.
    #[inline(always)]
    pub fn communicates(&self) -> bool {
        self.thread == COMMUNICATING_THREAD
    }

    /// Whether this thread is the mover, or one of its lanes.
    #[inline(always)]
    pub fn moves(&self) -> bool {
        if C::MOVES_ROWS { self.thread / 32 == MOVING_THREAD / 32 } else { self.thread == MOVING_THREAD }
    }

    /// Whether this thread is the poller.
    #[inline(always)]
    pub fn polls(&self) -> bool {
        self.thread == POLLING_THREAD
    }

    /// Leaves registers to the math warpgroups.
    ///
    /// # Safety
    /// All threads that don't compute must come here together.
    #[inline(always)]
    pub unsafe fn give_registers(&self) {
        if const { C::WARPGROUPS == 2 } {
            if const { C::ROUTES && C::RECORDS } {
                unsafe { setmaxnreg_dec::<{ RECORDED_REGISTERS[0] }>() }
            } else if const { C::ROUTES } {
                unsafe { setmaxnreg_dec::<{ ROUTING_REGISTERS[0] }>() }
            } else {
                unsafe { setmaxnreg_dec::<{ REGISTERS[0] }>() }
            }
        }
    }

    /// Takes the registers that the other threads left.
    #[inline(always)]
    pub(super) unsafe fn take_registers(&self) {
        if const { C::WARPGROUPS == 2 } {
            if const { C::ROUTES && C::RECORDS } {
                unsafe { setmaxnreg_inc::<{ RECORDED_REGISTERS[1] }>() }
            } else if const { C::ROUTES } {
                unsafe { setmaxnreg_inc::<{ ROUTING_REGISTERS[1] }>() }
            } else {
                unsafe { setmaxnreg_inc::<{ REGISTERS[1] }>() }
            }
        }
    }

    /// Says that this thread has read the epoch.
    ///
    /// # Safety
    /// The communication thread, and the mover and the poller if there is one, must each say so once.
    #[inline(always)]
    pub(super) unsafe fn know_epoch(&self) {
        unsafe { mbarrier_arrive(self.known()) };
    }

    /// Counts the CTA, whose threads have read the epoch, this one too. The last one of a rank advances it for the next
    /// launch.
    ///
    /// # Safety
    /// One thread of each CTA must do so, once.
    #[inline(always)]
    pub(super) unsafe fn leave_epoch(&self, epoch: u32) {
        if !C::COMMUNICATES {
            return;
        }
        self.wait(self.known(), 0);
        unsafe { self.count_out(epoch) };
    }

    /// As [`leave_epoch`](Cta::leave_epoch), where all threads have met since they read the epoch.
    ///
    /// # Safety
    /// One thread of each CTA must do so, once.
    #[inline(always)]
    pub(super) unsafe fn count_out(&self, epoch: u32) {
        // An address that is not held in registers from the start of the launch on.
        let left = self.region + anew(offset_of!(Control, left) as u32) as u64;
        unsafe {
            if add_acq_rel_gpu(left, 1) + 1 < self.head.ctas {
                return;
            }
            store_relaxed_gpu(left, 0);
            store_relaxed_gpu(self.region + offset_of!(Control, epoch) as u64, epoch);
        }
    }

    /// Writes `epoch` to this rank's entry of a table in the control block of every rank.
    #[inline(always)]
    pub(super) unsafe fn tell_all(&self, table: usize, epoch: u32) {
        for rank in 0..self.head.world {
            unsafe { store_relaxed_sys(self.region_of(rank) + table as u64 + 4 * self.head.rank as u64, epoch) };
        }
    }

    /// The epoch of this launch.
    #[inline(always)]
    pub(super) fn epoch(&self) -> u32 {
        unsafe { load_relaxed_gpu(self.region + offset_of!(Control, epoch) as u64) }.wrapping_add(1)
    }

    /// Where the symmetric region of `rank` starts.
    #[inline(always)]
    pub(super) fn region_of(&self, rank: u32) -> u64 {
        unsafe { load_constant_u64(self.head.regions + 8 * rank as u64) }
    }

    /// Keeps where the regions start in shared memory.
    ///
    /// # Safety
    /// Only the thread that does may ask for them there.
    #[inline(always)]
    pub(super) unsafe fn keep_regions(&self) {
        for rank in 0..self.head.world {
            unsafe { store_shared_u64(self.shared + REGIONS + 8 * rank, self.region_of(rank)) };
        }
    }

    /// Where the symmetric region of `rank` starts.
    ///
    /// # Safety
    /// This thread must have kept the regions.
    #[inline(always)]
    pub(super) unsafe fn kept_region(&self, rank: u32) -> u64 {
        unsafe { load_shared_u64(self.shared + REGIONS + 8 * rank) }
    }

    /// Says in how many places the math warpgroups store or read the next tile.
    ///
    /// # Safety
    /// The staging buffer must be the communication thread's.
    #[inline(always)]
    pub(super) unsafe fn keep_targets(&self, count: u32) {
        unsafe { store_shared(self.shared + TARGETS, count) };
    }

    /// Keeps the address of one of them.
    ///
    /// # Safety
    /// As [`keep_targets`](Cta::keep_targets).
    #[inline(always)]
    pub(super) unsafe fn keep_target(&self, index: u32, address: u64) {
        unsafe { store_shared_u64(self.shared + TARGETS + 8 * (index + 1), address) };
    }

    /// Calls `each` with the address of every place that is kept.
    ///
    /// # Safety
    /// The staging buffer must be the math warpgroups'.
    #[inline(always)]
    pub(super) unsafe fn kept_targets(&self, mut each: impl FnMut(u64)) {
        let count = unsafe { load_shared(self.shared + TARGETS) };
        for index in 0..count {
            each(unsafe { load_shared_u64(self.shared + TARGETS + 8 * (index + 1)) });
        }
    }

    /// Leaves in shared memory what is needed to report a fault.
    ///
    /// # Safety
    /// One thread must do so, before a barrier that comes before everything else.
    #[inline(always)]
    pub(super) unsafe fn prepare_reports(&self) {
        unsafe { fault::prepare(self.shared, self.head, self.region) };
    }

    /// Address in the shared window of the CTA's shared memory.
    #[inline(always)]
    pub(super) fn shared(&self) -> u32 {
        self.shared
    }

    /// When this thread, waiting, first saw that every rank had started; 0 before.
    #[inline(always)]
    pub(super) fn waits_since(&self) -> u64 {
        unsafe { load_shared_u64(self.shared + SINCE + self.thread / 32 * 8) }
    }

    /// Notes when that was.
    ///
    /// # Safety
    /// Only a thread of its own may do so.
    #[inline(always)]
    pub(super) unsafe fn wait_since(&self, now: u64) {
        unsafe { store_shared_u64(self.shared + SINCE + self.thread / 32 * 8, now) };
    }

    /// Thread in the CTA.
    #[inline(always)]
    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// Waits until the phase of this parity has ended. For a thread of its own: ends it if the launch is given up.
    #[inline(always)]
    pub(super) fn wait(&self, barrier: u32, parity: u32) {
        let mut tries = 0u32;
        while !unsafe { mbarrier_try_wait(barrier, parity) } {
            tries = tries.wrapping_add(1);
            if tries % TRIES == 0 {
                self.end_if_aborted();
            }
        }
    }

    /// Waits until the phase of this parity has ended, or the launch is given up.
    #[inline(always)]
    pub(super) fn wait_together(&self, barrier: u32, parity: u32) {
        let mut tries = 0u32;
        while !self.aborted.get() && !unsafe { mbarrier_try_wait(barrier, parity) } {
            tries = tries.wrapping_add(1);
            if tries % TRIES == 0 {
                self.aborted.set(self.is_aborted());
            }
        }
    }

    /// Waits until the loader has made a choice, or has ended because the launch is given up. Whether it has made it. All who ask learn
    /// the same, whenever they do, so that the math warpgroups stay together: what the loader chose before it ended counts.
    #[inline(always)]
    pub(super) fn wait_for_choice(&self, slot: u32, parity: u32) -> bool {
        let made = || unsafe { mbarrier_try_wait(self.chosen(slot), parity) };
        let mut tries = 0u32;
        while !made() {
            tries = tries.wrapping_add(1);
            if tries % TRIES == 0 && unsafe { load_acquire_shared(self.shared + LOADER_ENDED) } != 0 {
                self.aborted.set(true);
                return made();
            }
        }
        true
    }

    /// Whether a thread of this CTA has ended because the launch is given up.
    #[inline(always)]
    pub(super) fn has_ended_thread(&self) -> bool {
        unsafe { load_shared(self.shared + GIVEN_UP) != 0 }
    }

    /// Whether a wait of this thread has ended because the launch is given up.
    #[inline(always)]
    pub(super) fn is_given_up(&self) -> bool {
        self.aborted.get()
    }

    /// Ends the thread if the launch is given up.
    #[inline(always)]
    pub(super) fn end_if_aborted(&self) {
        if self.is_aborted() {
            fault::end_thread();
        }
    }

    #[inline(always)]
    pub(super) fn is_aborted(&self) -> bool {
        unsafe { load_relaxed_sys(self.region + offset_of!(Control, abort) as u64) != 0 }
    }

    /// Notes what a role is at, in case it must report a fault.
    #[inline(always)]
    pub(super) fn note(&self, role: u32, stage: u32, tile: [u32; MAX_AXES]) {
        unsafe { fault::note(self.shared, role, stage, tile) };
    }

    /// The choice at a position of their ring, once it has been made.
    ///
    /// # Safety
    /// The choice must have been waited for, and each of its readers reads it once.
    #[inline(always)]
    pub(super) unsafe fn read_choice(&self, slot: u32) -> u32 {
        unsafe {
            let choice = load_shared(self.choice(slot));
            mbarrier_arrive(self.choice_free(slot));
            choice
        }
    }

    /// What the loader tells a thread of its own between two tiles.
    #[inline(always)]
    pub(super) fn told(&self, next: &Cell<Cursor>) -> u32 {
        self.event(EventKind::End);
        self.hear(next)
    }

    /// What the loader tells a thread of its own, whose next choice is the one at `next`.
    #[inline(always)]
    pub(super) fn hear(&self, next: &Cell<Cursor>) -> u32 {
        let cursor = next.get();
        next.set(cursor.next(CHOICES));
        self.wait(self.chosen(cursor.slot), cursor.parity);
        unsafe { self.read_choice(cursor.slot) }
    }

    /// A ring slot has been filled.
    #[inline(always)]
    pub(super) fn full(&self, slot: u32) -> u32 {
        self.shared + FULL + 8 * slot
    }
    /// A ring slot has been read.
    #[inline(always)]
    pub(super) fn empty(&self, slot: u32) -> u32 {
        self.shared + EMPTY + 8 * slot
    }
    /// The staging buffer belongs to the math warpgroups; what was to be received lies in it, or where it lies is kept.
    #[inline(always)]
    pub(super) fn ready(&self) -> u32 {
        self.shared + READY
    }
    /// The staging buffer belongs to the communication thread; what is to be stored lies in it.
    #[inline(always)]
    pub(super) fn staged(&self) -> u32 {
        self.shared + STAGED
    }
    /// A choice has been made.
    #[inline(always)]
    pub(super) fn chosen(&self, choice: u32) -> u32 {
        self.shared + CHOSEN + 8 * choice
    }
    /// A choice has been read by all.
    #[inline(always)]
    pub(super) fn choice_free(&self, choice: u32) -> u32 {
        self.shared + CHOICE_FREE + 8 * choice
    }
    /// The choice itself.
    #[inline(always)]
    pub(super) fn choice(&self, choice: u32) -> u32 {
        self.shared + CHOICE + 4 * choice
    }
    /// A ring slot.
    #[inline(always)]
    pub(super) fn ring(&self, slot: u32) -> u32 {
        self.shared + layout::HEADER + slot * C::RING_SLOT
    }
    /// The mover's buffer has been filled.
    #[inline(always)]
    pub(super) fn moved(&self) -> u32 {
        self.shared + MOVED
    }
    /// How many chunks of products from slots the poller has seen to be there, in all products of this CTA.
    #[inline(always)]
    pub(super) fn polled(&self) -> u32 {
        self.shared + POLLED
    }
    /// The threads beside the loader have read the epoch.
    #[inline(always)]
    pub(super) fn known(&self) -> u32 {
        self.shared + KNOWN
    }
    /// The ranks (a bit each) whose rows the mover scatters on this way through a stage's tiles. Not in registers, of which it has
    /// none left.
    #[inline(always)]
    pub(super) fn brings(&self) -> u32 {
        self.shared + BRINGS
    }
    /// When the mover began to pass rows by.
    #[inline(always)]
    pub(super) fn passes_since(&self) -> u32 {
        self.shared + PASSES_SINCE
    }
    /// The tiles that the loader has put by.
    #[inline(always)]
    pub(super) fn put_by(&self) -> u32 {
        self.shared + PUT_BY
    }
    /// Those that the mover has.
    #[inline(always)]
    pub(super) fn mover_put_by(&self) -> u32 {
        self.shared + MOVER_PUT_BY
    }
    /// The mover's buffer.
    #[inline(always)]
    pub(super) fn move_buffer(&self) -> u32 {
        self.staging() + C::STAGING
    }
    /// The staging buffer.
    #[inline(always)]
    pub(super) fn staging(&self) -> u32 {
        self.shared + layout::HEADER + C::RING_DEPTH * C::RING_SLOT
    }
}

/// A position in a ring of slots, and the parity of the phase that its current round ends.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub slot: u32,
    pub parity: u32,
}

impl Cursor {
    pub const START: Cursor = Cursor { slot: 0, parity: 0 };

    /// The next slot of `depth`.
    #[inline(always)]
    pub fn next(self, depth: u32) -> Cursor {
        if self.slot + 1 == depth {
            Cursor { slot: 0, parity: self.parity ^ 1 }
        } else {
            Cursor { slot: self.slot + 1, parity: self.parity }
        }
    }

    /// The slot `count` further on.
    #[inline(always)]
    pub fn skip(self, count: u32, depth: u32) -> Cursor {
        let position = self.slot + count;
        Cursor { slot: position % depth, parity: self.parity ^ ((position / depth) & 1) }
    }
}
