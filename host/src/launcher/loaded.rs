//! A loaded kernel, whatever its type: its region and its launches.

use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use crate::capture::Pinned;
use crate::error::Error;
use crate::injection::Injected;
use crate::launch::{FaultBoard, InFlight, Launches};
use crate::log::EventLog;
use crate::platform::{Program, Replay, Run, Schedule};
use crate::region::{Layout, Region};
use crate::request::Request;
use crate::spec::{KernelSpec, Target};
use crate::world::World;

/// A kernel that is ready to start on every rank of a world.
pub(crate) struct Loaded {
    spec: &'static KernelSpec,
    world: World,
    program: Arc<dyn Program>,
    /// The program that keeps a log, once it was asked for.
    logging: OnceLock<Arc<dyn Program>>,
    /// The last log: the first launch after memory was allocated takes the driver longer than others do.
    log: Mutex<Option<Arc<EventLog>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    launches: Launches,
    region: Option<Region>,
    /// The layout of the last launch.
    layout: Option<Layout>,
    injected: Option<Injected>,
    /// A launch failed while it was being started.
    in_doubt: bool,
    /// What captured launches use, for each layout of those that there are.
    pinned: Vec<Weak<Pinned>>,
    /// Counts up when the region has moved, or fault boards are no longer clean: graphs are then built anew.
    generation: u64,
}

/// A graph as it was built, with what its launches use.
pub(crate) struct BuiltGraph {
    generation: u64,
    replay: Arc<dyn Replay>,
    faults: Arc<FaultBoard>,
}

impl Loaded {
    /// Makes every variant of the kernel ready on every rank.
    pub fn new(spec: &'static KernelSpec, world: &World) -> Result<Self, Error> {
        let program = world.platform().load(spec, false)?;
        Ok(Loaded {
            spec,
            world: world.clone(),
            program,
            logging: OnceLock::new(),
            log: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }

    /// What its device code is for; `None` on simulated ranks.
    pub fn target(&self) -> Option<Target> {
        self.program.target()
    }

    /// The world that it was loaded for.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Does harm to the next launch.
    pub fn inject(&self, injected: Injected) {
        self.lock().injected = Some(injected);
    }

    /// Starts a launch on every rank.
    pub fn launch(&self, request: &Request, streams: Option<&[crate::Stream]>) -> Result<Arc<InFlight>, Error> {
        self.launch_program(&*self.program, request, streams, None)
    }

    /// An empty log for a launch that keeps one.
    pub fn log(&self, request: &Request) -> Result<Arc<EventLog>, Error> {
        let ctas = self.logging()?.resident(request.variant());
        let capacity = request.log_capacity(ctas);
        let mut last = self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(unused) = last.as_ref().filter(|log| Arc::strong_count(log) == 1 && log.is_for(ctas, capacity)) {
            unused.clear()?;
            return Ok(unused.clone());
        }
        Ok(last.insert(Arc::new(EventLog::new(&self.world, ctas, capacity)?)).clone())
    }

    /// Starts a launch on every rank that keeps a log.
    pub fn launch_logged(&self, request: &Request, log: &Arc<EventLog>) -> Result<Arc<InFlight>, Error> {
        self.launch_program(&**self.logging()?, request, None, Some(log))
    }

    fn launch_program(
        &self,
        program: &dyn Program,
        request: &Request,
        streams: Option<&[crate::Stream]>,
        log: Option<&Arc<EventLog>>,
    ) -> Result<Arc<InFlight>, Error> {
        program.check(streams)?;
        let mut state = self.ready(request)?;
        let faults = state.launches.board(&self.world)?;
        let injected = state.injected.take();
        let region = state.region.as_ref().expect("the state is ready");
        let ctas = program.resident(request.variant());
        let work = request.work(region, &faults, ctas, injected, log.map(|log| &**log))?;
        state.start(slice::from_ref(request), &faults, streams, log, |schedule| program.start(work, schedule))
    }

    fn logging(&self) -> Result<&Arc<dyn Program>, Error> {
        if let Some(program) = self.logging.get() {
            return Ok(program);
        }
        let program = self.world.platform().load(self.spec, true)?;
        Ok(self.logging.get_or_init(|| program))
    }

    /// Starts a graph's launches on every rank; builds it before, if it is not built or no longer right. The launches
    /// take the requests in turns, which are alike in all but their matrices and scalars.
    pub fn launch_graph(
        &self,
        requests: &[Request],
        launches: u32,
        graph: &mut Option<BuiltGraph>,
        streams: Option<&[crate::Stream]>,
    ) -> Result<Arc<InFlight>, Error> {
        self.program.check(streams)?;
        let mut state = self.ready(&requests[0])?;
        if let Some(injected) = state.injected.take_if(|_| launches > 0) {
            return self.launch_injected(&mut state, requests, launches, injected, streams);
        }
        let built = match graph.take().filter(|graph| graph.generation == state.generation) {
            Some(built) => built,
            None => {
                let faults = state.launches.board(&self.world)?;
                let region = state.region.as_ref().expect("the state is ready");
                let work = |request: &Request| {
                    request.work(region, &faults, self.program.resident(request.variant()), None, None)
                };
                let turns = requests.iter().map(work).collect::<Result<_, _>>()?;
                let replay = self.program.clone().record(turns, launches)?;
                BuiltGraph { generation: state.generation, replay, faults }
            }
        };
        let BuiltGraph { replay, faults, .. } = graph.insert(built);
        state.start(requests, faults, streams, None, |schedule| replay.clone().start(schedule))
    }

    /// Starts a graph's launches once, harm done to the first of them: as a graph of its own, since the harm lies in what that
    /// launch takes.
    fn launch_injected(
        &self,
        state: &mut State,
        requests: &[Request],
        launches: u32,
        injected: Injected,
        streams: Option<&[crate::Stream]>,
    ) -> Result<Arc<InFlight>, Error> {
        let faults = state.launches.board(&self.world)?;
        let region = state.region.as_ref().expect("the state is ready");
        let mut injected = Some(injected);
        let works = requests.iter().cycle().take(launches as usize).map(|request| {
            request.work(region, &faults, self.program.resident(request.variant()), injected.take(), None)
        });
        let works = works.collect::<Result<_, _>>()?;
        let replay = self.program.clone().record(works, launches)?;
        state.start(requests, &faults, streams, None, |schedule| replay.start(schedule))
    }

    /// Adds a launch to what the streams capture. Its replays use what is returned.
    pub fn capture(&self, request: &Request, streams: &[crate::Stream]) -> Result<Arc<Pinned>, Error> {
        let mut state = self.lock();
        let mut pinned = None;
        self.program.capture(streams, &mut || {
            let Pinned { region, faults, .. } = &**pinned.insert(state.pinned(&self.world, &request.layout)?);
            request.work(region, faults, self.program.resident(request.variant()), state.injected.take(), None)
        })?;
        Ok(pinned.expect("the launch was prepared"))
    }

    /// Waits for the streams on which captured launches were replayed, and says what became of those.
    pub fn wait_captured(&self, pinned: &Pinned, streams: &[crate::Stream]) -> Result<(), Error> {
        let waited = self.program.await_streams(streams, &pinned.region.addresses());
        let _state = self.lock();
        let fault = if pinned.faults.is_marked() { pinned.faults.read(self.spec)? } else { None };
        let outcome = fault.map_or(waited, |fault| Err(Error::Fault(Arc::new(fault))));
        if matches!(outcome, Err(Error::Fault(_) | Error::NotStarted { .. })) {
            pinned.recover()?;
        }
        outcome
    }

    /// Waits for a launch, and for those before it, and says what became of it.
    pub fn settle(&self, flight: &InFlight) -> Result<(), Error> {
        // Without the lock, so that others can launch meanwhile.
        let _ = flight.end();
        self.lock().launches.settle_through(self.spec, flight);
        flight.outcome().expect("a launch in flight has been settled").clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The state, with nothing amiss and a region that holds the request.
    fn ready(&self, request: &Request) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.lock();
        state.launches.settle_ended(self.spec)?;
        state.recover()?;
        if !state.region.as_ref().is_some_and(|region| region.holds(&request.layout)) {
            state.launches.settle_all(self.spec)?;
            state.recover()?;
            state.grow(&self.world, &request.layout)?;
        }
        Ok(state)
    }
}

impl State {
    /// After a failure: waits until every rank has really ended, and puts them at one epoch again.
    fn recover(&mut self) -> Result<(), Error> {
        self.in_doubt |= self.launches.drain()?;
        if self.in_doubt {
            if let Some(region) = &self.region {
                region.reset(region.epoch()?.wrapping_add(1))?;
            }
            self.generation += 1;
            self.in_doubt = false;
        }
        Ok(())
    }

    /// Replaces the region by one in which `layout` fits, too. No launch is in flight.
    fn grow(&mut self, world: &World, layout: &Layout) -> Result<(), Error> {
        let (epoch, capacity) = match self.region.take() {
            Some(region) => (region.epoch()?, region.capacity()),
            None => (world.first_epoch(), Default::default()),
        };
        self.region = Some(Region::new(world, capacity.union(layout.need()), epoch)?);
        self.generation += 1;
        Ok(())
    }

    /// What captured launches with this layout use.
    fn pinned(&mut self, world: &World, layout: &Layout) -> Result<Arc<Pinned>, Error> {
        self.pinned.retain(|pinned| pinned.strong_count() > 0);
        if let Some(pinned) = self.pinned.iter().filter_map(Weak::upgrade).find(|pinned| pinned.layout == *layout) {
            return Ok(pinned);
        }
        let pinned = Arc::new(Pinned::new(world, layout)?);
        self.pinned.push(Arc::downgrade(&pinned));
        Ok(pinned)
    }

    fn start(
        &mut self,
        requests: &[Request],
        faults: &Arc<FaultBoard>,
        streams: Option<&[crate::Stream]>,
        log: Option<&Arc<EventLog>>,
        start: impl FnOnce(Schedule<'_>) -> Result<Arc<dyn Run>, Error>,
    ) -> Result<Arc<InFlight>, Error> {
        let layout = &requests[0].layout;
        let fenced = self.layout.as_ref().is_some_and(|last| last != layout);
        let run = start(Schedule { fenced, streams }).inspect_err(|error| {
            self.launches.give_up(error);
            self.in_doubt = true;
        })?;
        self.layout = Some(layout.clone());
        let matrices = requests.iter().flat_map(Request::matrices);
        let flight = Arc::new(InFlight::new(run, faults.clone(), matrices.collect(), log.cloned()));
        self.launches.push(flight.clone());
        Ok(flight)
    }
}

impl Drop for Loaded {
    /// What the launches in flight use must outlive them.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = state.launches.settle_all(self.spec);
        let _ = state.launches.drain();
    }
}
