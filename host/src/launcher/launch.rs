//! Launches in flight: awaited in their order, and given up together when one of them fails.

use std::collections::VecDeque;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use entwine_device::abi::{FaultKind, FaultRecord, NONE};

use crate::error::Error;
use crate::fault::Fault;
use crate::loaded::Loaded;
use crate::log::EventLog;
use crate::memory::Allocation;
use crate::platform::{Area, Run};
use crate::spec::KernelSpec;
use crate::tensor::RankMatrix;
use crate::world::World;

/// A launch that was started on every rank. Dropping it neither stops it nor waits for it.
#[must_use = "`wait` says whether the launch succeeded; if this is dropped, the kernel's next launch says so"]
pub struct Launch {
    kernel: Arc<Loaded>,
    flight: Arc<InFlight>,
}

impl Launch {
    pub(crate) fn new(kernel: Arc<Loaded>, flight: Arc<InFlight>) -> Self {
        Launch { kernel, flight }
    }

    /// Whether it has ended on every rank.
    pub fn is_finished(&self) -> bool {
        self.flight.run.is_finished()
    }

    /// Waits until it has ended on every rank.
    ///
    /// # Errors
    /// It was given up: [`Error::Fault`] says what was missing, [`Error::NotStarted`] which rank never began. A
    /// launch that was started before an earlier one of the same kernel failed fails with it.
    pub fn wait(self) -> Result<(), Error> {
        self.kernel.settle(&self.flight)
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}

/// A launch, with everything that it uses.
pub(crate) struct InFlight {
    run: Arc<dyn Run>,
    faults: Arc<FaultBoard>,
    ended: OnceLock<Result<(), Error>>,
    outcome: OnceLock<Result<(), Error>>,
    _matrices: Vec<Arc<RankMatrix>>,
    _log: Option<Arc<EventLog>>,
}

impl InFlight {
    pub fn new(
        run: Arc<dyn Run>,
        faults: Arc<FaultBoard>,
        matrices: Vec<Arc<RankMatrix>>,
        log: Option<Arc<EventLog>>,
    ) -> Self {
        InFlight { run, faults, ended: OnceLock::new(), outcome: OnceLock::new(), _matrices: matrices, _log: log }
    }

    /// Waits until it has ended on every rank, or has to be given up.
    pub fn end(&self) -> &Result<(), Error> {
        self.ended.get_or_init(|| self.run.finish())
    }

    /// What became of it, once it has been settled.
    pub fn outcome(&self) -> Option<&Result<(), Error>> {
        self.outcome.get()
    }
}

/// A kernel's launches, oldest first.
#[derive(Default)]
pub(crate) struct Launches {
    in_flight: VecDeque<Arc<InFlight>>,
    /// They failed, and may not all have ended.
    given_up: Vec<Arc<InFlight>>,
    /// Fault boards on which nothing was ever written.
    boards: Vec<Arc<FaultBoard>>,
}

impl Launches {
    /// A fault board that no launch uses.
    pub fn board(&mut self, world: &World) -> Result<Arc<FaultBoard>, Error> {
        if let Some(unused) = self.boards.iter().find(|board| Arc::strong_count(board) == 1) {
            return Ok(unused.clone());
        }
        let board = Arc::new(FaultBoard::new(world)?);
        self.boards.push(board.clone());
        Ok(board)
    }

    /// Adds the newest launch.
    pub fn push(&mut self, flight: Arc<InFlight>) {
        self.in_flight.push_back(flight);
    }

    /// Settles what has ended by itself. If a launch failed that nobody holds any more, that is the error.
    pub fn settle_ended(&mut self, kernel: &'static KernelSpec) -> Result<(), Error> {
        while self.in_flight.front().is_some_and(|front| front.run.is_finished()) {
            self.settle_front(kernel)?;
        }
        Ok(())
    }

    /// Settles launches up to this one, waiting for them.
    pub fn settle_through(&mut self, kernel: &'static KernelSpec, flight: &InFlight) {
        while flight.outcome().is_none() && !self.in_flight.is_empty() {
            // A failure that nobody holds is this one's failure too.
            let _ = self.settle_front(kernel);
        }
    }

    /// Settles every launch, waiting for them.
    pub fn settle_all(&mut self, kernel: &'static KernelSpec) -> Result<(), Error> {
        while !self.in_flight.is_empty() {
            self.settle_front(kernel)?;
        }
        Ok(())
    }

    /// Waits until what was given up has really ended. Returns whether there was anything.
    pub fn drain(&mut self) -> Result<bool, Error> {
        for flight in &self.given_up {
            flight.run.drain()?;
        }
        Ok(self.given_up.drain(..).count() > 0)
    }

    /// Waits for the oldest launch. If it failed, or any later one has meanwhile (then the oldest may have been
    /// cut short with it), all fail: the same signals serve them all.
    fn settle_front(&mut self, kernel: &'static KernelSpec) -> Result<(), Error> {
        let Some(front) = self.in_flight.front() else { return Ok(()) };
        let failure = match front.end() {
            Err(error) => Some(error.clone()),
            Ok(_) => self.fault(kernel),
        };
        let Some(error) = failure else {
            let front = self.in_flight.pop_front().expect("there is a front");
            let _ = front.outcome.set(Ok(()));
            return Ok(());
        };
        let unheld = self.in_flight.iter().any(|flight| Arc::strong_count(flight) == 1);
        self.give_up(&error);
        if unheld { Err(error) } else { Ok(()) }
    }

    /// The oldest fault among the launches.
    fn fault(&self, kernel: &'static KernelSpec) -> Option<Error> {
        let flight = self.in_flight.iter().find(|flight| flight.faults.is_marked())?;
        // The record is only complete when its launch has ended.
        match flight.end().as_ref().map_err(Clone::clone).and_then(|_| flight.faults.read(kernel)) {
            Ok(fault) => fault.map(|fault| Error::Fault(Arc::new(fault))),
            Err(error) => Some(error),
        }
    }

    /// All launches fail with this.
    pub fn give_up(&mut self, error: &Error) {
        self.boards.clear();
        for flight in self.in_flight.drain(..) {
            let _ = flight.outcome.set(Err(error.clone()));
            self.given_up.push(flight);
        }
    }
}

/// The fault records of one launch, or of captured ones, one for each rank, readable at any time.
pub(crate) struct FaultBoard {
    memory: Allocation,
    ranks: usize,
}

impl FaultBoard {
    /// A board without a fault.
    pub fn new(world: &World) -> Result<Self, Error> {
        let ranks = world.ranks();
        let bytes = ranks * size_of::<FaultRecord>();
        Ok(FaultBoard { memory: Allocation::plain(world.platform().allocate_shared(bytes)?, bytes), ranks })
    }

    /// Address of a rank's record.
    pub fn address(&self, rank: usize) -> u64 {
        self.memory.address() + (rank * size_of::<FaultRecord>()) as u64
    }

    /// Whether there is a fault on it. May be asked while the launch runs.
    pub fn is_marked(&self) -> bool {
        let kind = |rank| (self.address(rank) + offset_of!(FaultRecord, kind) as u64) as *mut u32;
        // SAFETY: the host and every rank reach the board at the same address, and the word is aligned.
        (0..self.ranks).any(|rank| unsafe { AtomicU32::from_ptr(kind(rank)) }.load(Ordering::Acquire) != 0)
    }

    /// Takes all faults off it. No launch may be writing to it.
    pub fn clear(&self) -> Result<(), Error> {
        self.memory.fill(Area::flat(0, self.ranks * size_of::<FaultRecord>()), &[0])
    }

    /// The fault that explains the others best: what a tile function did wrong rather than what was missing then, and of what was missing
    /// that of the earliest stage. No launch may be writing to the board.
    pub fn read(&self, kernel: &'static KernelSpec) -> Result<Option<Fault>, Error> {
        let mut faults = Vec::new();
        for rank in 0..self.ranks {
            let mut bytes = [0; size_of::<FaultRecord>()];
            self.memory.read(Area::flat(rank * bytes.len(), bytes.len()), &mut bytes)?;
            // SAFETY: a record is made of words and bytes, for which any bits are valid.
            let record = unsafe { bytes.as_ptr().cast::<FaultRecord>().read_unaligned() };
            // The ends of other ranks are waited for after everything else.
            let at_end = record.channel == NONE && record.kind != FaultKind::NotAcknowledged as u32;
            faults.extend(Fault::read(kernel, &record).map(|fault| (fault, (at_end, record.stage))));
        }
        let class = |kind| match kind {
            FaultKind::Panic
            | FaultKind::SlotOutOfRange
            | FaultKind::Race
            | FaultKind::Misfit
            | FaultKind::Outside
            | FaultKind::Overcounted
            | FaultKind::SentTwice
            | FaultKind::NotTheSender => 0,
            _ => 1,
        };
        let first = faults.into_iter().min_by_key(|(fault, place)| (class(fault.kind), *place));
        Ok(first.map(|(fault, _)| fault))
    }
}
