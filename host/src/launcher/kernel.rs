//! Kernels, loaded for a world and launched on it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use entwine_device::abi::{Head, NONE};

use crate::arguments::{ArgumentValue, Arguments, Bound, KernelType};
use crate::dims;
use crate::error::Error;
use crate::extent::Sizes;
use crate::injection::{Injected, Injection};
use crate::launch::{InFlight, Launch, Launches};
use crate::params::params;
use crate::platform::{Program, Start};
use crate::region::{Layout, Region};
use crate::spec::{ArgumentKind, ElementType, KernelSpec};
use crate::timeline::Timeline;
use crate::variant;
use crate::world::World;

/// A kernel that is ready to be launched on a world.
///
/// Its launches, and those of the world's other kernels, run on each rank in the order in which they were made.
pub struct Kernel<K> {
    loaded: Arc<Loaded>,
    settings: Settings,
    kernel: PhantomData<fn() -> K>,
}

#[derive(Clone, Copy)]
struct Settings {
    tile: Option<(u32, u32)>,
    deadline: Duration,
    link_limit: u32,
}

impl<K: KernelType> Kernel<K> {
    /// Makes every variant of the kernel ready on every rank.
    ///
    /// # Errors
    /// On GPUs: the kernel was built without device code, the driver could not compile it, or a CTA does not fit.
    pub fn load(world: &World) -> Result<Self, Error> {
        let loaded = Arc::new(Loaded::new(K::SPEC, world)?);
        let settings = Settings { tile: None, deadline: Duration::from_secs(10), link_limit: 0 };
        Ok(Kernel { loaded, settings, kernel: PhantomData })
    }

    /// With this tile, `(rows, columns)`, in every launch, instead of the one that suits the shapes best. A row's result
    /// has the same bits whatever the other rows are, as long as the tile is the same.
    ///
    /// # Errors
    /// The kernel was not compiled for it.
    pub fn with_tile(mut self, tile: (u32, u32)) -> Result<Self, Error> {
        if !K::SPEC.variants.iter().any(|variant| variant.tile == tile) {
            return Err(variant::no_variant(K::SPEC, None, Some(tile)));
        }
        self.settings.tile = Some(tile);
        Ok(self)
    }

    /// With this deadline: a wait gives up so long after all ranks have started. Default: 10 s.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline.max(Duration::from_nanos(1));
        self
    }

    /// With at most this many CTAs of a rank moving tiles over the link at once; 0, the default, is any number.
    pub fn with_link_limit(mut self, ctas: u32) -> Self {
        self.settings.link_limit = ctas;
        self
    }

    /// Does harm to the next launch, so that a test can see it reported.
    ///
    /// # Errors
    /// There is no such rank or channel, or the slot has the wrong number of coordinates.
    pub fn inject(&self, injection: Injection<'_>) -> Result<(), Error> {
        let injected = Injected::resolve(K::SPEC, self.loaded.world.ranks(), injection)?;
        self.loaded.lock().injected = Some(injected);
        Ok(())
    }

    /// Starts the kernel on every rank.
    ///
    /// # Errors
    /// An argument of another world, element type or shape than expected; memory ran out; or an earlier launch
    /// failed whose [`Launch`] was dropped, so that nobody has been told.
    pub fn launch<'a>(&self, arguments: impl Arguments<'a, Kernel = K>) -> Result<Launch, Error> {
        self.start(arguments, None, false)
    }

    /// As [`Kernel::launch`], in the order of the user's own CUDA streams: one for each rank, on its GPU.
    ///
    /// # Errors
    /// As for [`Kernel::launch`]; a stream of another GPU than its rank's; simulated ranks.
    pub fn launch_on<'a>(
        &self,
        streams: &[crate::Stream],
        arguments: impl Arguments<'a, Kernel = K>,
    ) -> Result<Launch, Error> {
        self.start(arguments, Some(streams), false)
    }

    /// Launches the kernel, waits for it and tells what each CTA did when. Nothing else should run on the world
    /// meanwhile.
    ///
    /// # Errors
    /// As for [`Kernel::launch`] and [`Launch::wait`]; GPUs, which keep no such record yet.
    pub fn record<'a>(&self, arguments: impl Arguments<'a, Kernel = K>) -> Result<Timeline, Error> {
        self.loaded.world.synchronize()?;
        let events = self.start(arguments, None, true)?.wait_recorded()?;
        Ok(Timeline::new(K::SPEC, events))
    }

    fn start<'a, A: Arguments<'a, Kernel = K>>(
        &self,
        arguments: A,
        streams: Option<&[crate::Stream]>,
        record: bool,
    ) -> Result<Launch, Error> {
        let flight = self.loaded.launch(&self.settings, A::element(), arguments.into_values(), streams, record)?;
        Ok(Launch::new(self.loaded.clone(), flight))
    }
}

impl<K: KernelType> fmt::Debug for Kernel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &K::SPEC.name).finish_non_exhaustive()
    }
}

/// A loaded kernel, whatever its type.
pub(crate) struct Loaded {
    spec: &'static KernelSpec,
    world: World,
    program: Box<dyn Program>,
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
}

impl Loaded {
    fn new(spec: &'static KernelSpec, world: &World) -> Result<Self, Error> {
        let program = world.platform().load(spec)?;
        Ok(Loaded { spec, world: world.clone(), program, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for a launch, and for those before it, and says what became of it.
    pub fn settle(&self, flight: &InFlight) -> Result<(), Error> {
        // Without the lock, so that others can launch meanwhile.
        let _ = flight.end();
        self.lock().launches.settle_through(self.spec, flight);
        flight.outcome().expect("a launch in flight has been settled").clone()
    }

    fn launch(
        &self,
        settings: &Settings,
        element: Option<ElementType>,
        values: Vec<ArgumentValue<'_>>,
        streams: Option<&[crate::Stream]>,
        record: bool,
    ) -> Result<Arc<InFlight>, Error> {
        let element = element.unwrap_or(self.spec.variants[0].element);
        let arguments = Bound::check(self.spec, &self.world, element, values)?;
        let dims = dims::bind(self.spec, &arguments)?;
        let sizes = Sizes { dims: &dims, world: self.world.ranks() as u32, tile: (1, 1) };
        let processors = self.world.platform().processors();
        let index = variant::choose(self.spec, element, settings.tile, sizes, processors)?;
        let variant = &self.spec.variants[index];
        let sizes = Sizes { tile: variant.tile, ..sizes };
        dims::check(self.spec, &arguments, &sizes)?;
        let layout = Layout::of(self.spec, variant.element, &sizes)?;

        let mut state = self.lock();
        state.launches.settle_ended(self.spec)?;
        state.recover()?;
        let faults = state.launches.board(&self.world)?;
        let region = state.region_for(self, &layout)?;
        let channels: Vec<_> = region.channels(&layout).collect();
        let regions = region.addresses();
        let ctas = self.program.resident(index);
        let head = |rank: usize| Head {
            rank: rank as u32,
            world: sizes.world,
            ctas,
            link_limit: settings.link_limit,
            deadline_ns: u64::try_from(settings.deadline.as_nanos()).unwrap_or(u64::MAX),
            regions: region.table(rank),
            fault: faults.address(rank),
            fabric: 0,
            drop_channel: NONE,
            drop_slot: NONE,
            dims,
        };
        let mut heads: Vec<_> = (0..self.world.ranks()).map(head).collect();
        let fenced = state.layout.as_ref().is_some_and(|last| *last != layout);
        if let Some(injected) = state.injected.take() {
            injected.apply(self.spec, &channels, &mut heads)?;
        }
        let mut rank_params = Vec::new();
        for (rank, head) in heads.iter().enumerate() {
            let matrices = arguments.matrices.iter().map(|matrix| {
                let sharded = matches!(matrix.spec.kind, ArgumentKind::Matrix { sharded: true, .. });
                matrix.ranks[rank].argument(&self.world, rank, if sharded { sizes.world } else { 1 })
            });
            let matrices: Vec<_> = matrices.collect::<Result<_, _>>()?;
            rank_params.push(params(head, &matrices, &channels, &arguments.scalars));
        }
        let start = Start { variant: index, params: rank_params, regions, ctas, fenced, streams, record };
        let run = self.program.start(start).inspect_err(|error| {
            state.launches.give_up(error);
            state.in_doubt = true;
        })?;
        state.layout = Some(layout);
        let matrices = arguments.matrices.into_iter().flat_map(|matrix| matrix.ranks).collect();
        let flight = Arc::new(InFlight::new(run, faults, matrices));
        state.launches.push(flight.clone());
        Ok(flight)
    }
}

impl State {
    /// After a failure: waits until every rank has really ended, and puts them at one epoch again.
    fn recover(&mut self) -> Result<(), Error> {
        self.in_doubt |= self.launches.drain()?;
        if let (true, Some(region)) = (self.in_doubt, &self.region) {
            region.reset(region.epoch()?.wrapping_add(1))?;
        }
        self.in_doubt = false;
        Ok(())
    }

    /// The region, grown if need be so that `layout` fits.
    fn region_for(&mut self, kernel: &Loaded, layout: &Layout) -> Result<&Region, Error> {
        if !self.region.as_ref().is_some_and(|region| region.holds(layout)) {
            self.launches.settle_all(kernel.spec)?;
            self.recover()?;
            let epoch = match &self.region {
                Some(region) => region.epoch()?,
                None => kernel.world.first_epoch(),
            };
            self.region = Some(Region::new(&kernel.world, layout, self.region.as_ref(), epoch)?);
        }
        Ok(self.region.as_ref().expect("just made"))
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
