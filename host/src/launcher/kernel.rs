//! Kernels, loaded for a world and launched on it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arguments::{Arguments, KernelType};
use crate::capture::Captured;
use crate::choice::{Choice, Chooser, Plan};
use crate::error::Error;
use crate::graph::Graph;
use crate::injection::{Injected, Injection};
use crate::launch::Launch;
use crate::loaded::Loaded;
use crate::request::Request;
use crate::spec::Carriage;
use crate::timeline::Timeline;
use crate::tuning::{self, Tuned};
use crate::world::World;

/// A kernel that is ready to be launched on a world.
///
/// Its launches, and those of the world's other kernels, run on each rank in the order in which they were made.
pub struct Kernel<K> {
    loaded: Arc<Loaded>,
    settings: Settings,
    kernel: PhantomData<fn() -> K>,
}

/// What a kernel's user has set.
pub(crate) struct Settings {
    pub chooser: Chooser,
    pub deadline: Duration,
}

impl<K: KernelType> Kernel<K> {
    /// Makes every variant of the kernel ready on every rank.
    ///
    /// # Errors
    /// On GPUs: the kernel was built without device code, the driver could not compile it, or a CTA does not fit.
    pub fn load(world: &World) -> Result<Self, Error> {
        let loaded = Arc::new(Loaded::new(K::SPEC, world)?);
        let settings = Settings { chooser: Chooser::new(K::SPEC, loaded.target()), deadline: Duration::from_secs(10) };
        Ok(Kernel { loaded, settings, kernel: PhantomData })
    }

    /// The tiles, `(rows, columns)`, that launches choose from: those that the kernel was compiled for. On GPUs older than
    /// Hopper, those of a multiple of 64 columns among them.
    pub fn tiles(&self) -> Vec<(u32, u32)> {
        let mut tiles = Vec::new();
        for variant in K::SPEC.variants {
            let there = self.loaded.target().is_none_or(|target| target.has_tile(variant.tile));
            if there && !tiles.contains(&variant.tile) {
                tiles.push(variant.tile);
            }
        }
        tiles
    }

    /// With this tile, `(rows, columns)`, in every launch, instead of the one that suits the shapes best. A row's result
    /// has the same bits whatever the other rows are, as long as the tile is the same.
    ///
    /// # Errors
    /// The kernel was not compiled for it.
    pub fn with_tile(mut self, tile: (u32, u32)) -> Result<Self, Error> {
        self.settings.chooser.pin(|pins| pins.pin_tile(tile))?;
        Ok(self)
    }

    /// With this deadline: a wait gives up so long after all ranks have started. Default: 10 s.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline.max(Duration::from_nanos(1));
        self
    }

    /// With at most this many transfers of a rank over the link at once in every launch; 0 is any number. A saturated
    /// link slows the loads of a matmul; fewer than 8 don't fill it.
    pub fn with_link_limit(mut self, transfers: u32) -> Self {
        self.settings.chooser.pin(|pins| pins.pin_link_limit(transfers));
        self
    }

    /// With what is sent on this channel carried so in every launch.
    ///
    /// # Errors
    /// There is no such channel, or its declaration says otherwise.
    pub fn with_carriage(mut self, channel: &str, carriage: Carriage) -> Result<Self, Error> {
        self.settings.chooser.pin(|pins| pins.pin_carriage(channel, carriage))?;
        Ok(self)
    }

    /// With the orders `peers_first` and `ring` going through all ranks' blocks by so many columns of tiles at a time, in
    /// every launch; 0 is all. Where a rank has few rows, less of the right operand is then read twice, and the link is
    /// used throughout the launch.
    pub fn with_span(mut self, columns: u32) -> Self {
        self.settings.chooser.pin(|pins| pins.pin_span(columns));
        self
    }

    /// With every launch carried out in this way.
    ///
    /// # Errors
    /// The kernel was not compiled for its tile, or its channels can't be carried so.
    pub fn with_choice(mut self, choice: &Choice) -> Result<Self, Error> {
        self.settings.chooser.pin(|pins| pins.pin_all(choice))?;
        Ok(self)
    }

    /// Does harm to the next launch, so that a test can see what comes of it; to the first one of a graph, if that is what is started
    /// next.
    ///
    /// # Errors
    /// There is no such rank or channel, the slot has the wrong number of coordinates, or rows are to be late for too long, or
    /// where none are lent.
    pub fn inject(&self, injection: Injection<'_>) -> Result<(), Error> {
        let injected = Injected::resolve(K::SPEC, self.loaded.world().ranks(), injection)?;
        self.loaded.inject(injected);
        Ok(())
    }

    /// What a launch with these arguments would be: how it would be carried out and why, what it would put on the wire,
    /// and what it is expected to take. Nothing is started.
    ///
    /// # Errors
    /// As for [`Kernel::launch`].
    pub fn plan<'a>(&self, arguments: &impl Arguments<'a, Kernel = K>) -> Result<Plan, Error> {
        self.look_at(arguments)?.plan()
    }

    /// Measures the ways to carry out a launch with these arguments, and takes the fastest for such launches from now on,
    /// by all kernels of the world: those that are expected to be the fastest, and then others that differ little from
    /// the best of them. What is pinned stays so. It is remembered as long as the world, and in the file that
    /// [`WorldBuilder::tuning`](crate::WorldBuilder::tuning) names. Takes a second or so; each launch overwrites the
    /// outputs. Nothing else should run on the GPUs meanwhile.
    ///
    /// # Errors
    /// As for [`Kernel::launch`] and [`Launch::wait`]; simulated ranks; a tuning file that can't be used or written.
    pub fn tune<'a>(&self, arguments: impl Arguments<'a, Kernel = K>) -> Result<Tuned, Error> {
        let request = self.check(arguments)?;
        tuning::tune(&self.loaded, &self.settings.chooser, &request)
    }

    /// Starts the kernel on every rank.
    ///
    /// # Errors
    /// An argument of another world, element type or shape than expected; memory ran out; or an earlier launch
    /// failed whose [`Launch`] was dropped, so that nobody has been told.
    pub fn launch<'a>(&self, arguments: impl Arguments<'a, Kernel = K>) -> Result<Launch, Error> {
        self.start(arguments, None)
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
        self.start(arguments, Some(streams))
    }

    /// Prepares `launches` launches in a row, which then start with one call on each rank: on GPUs as CUDA graphs, whose
    /// launches cost less than the same number of single ones.
    ///
    /// # Errors
    /// As for [`Kernel::launch`].
    pub fn graph<'a>(&self, launches: u32, arguments: impl Arguments<'a, Kernel = K>) -> Result<Graph<'a>, Error> {
        self.graph_in_turns(launches, [arguments])
    }

    /// As [`Kernel::graph`], of launches that take the arguments in turns: the first launch takes the first ones, the
    /// second the second, and after the last comes the first again.
    ///
    /// # Errors
    /// As for [`Kernel::launch`]; no arguments, or arguments of different shapes.
    pub fn graph_in_turns<'a, A: Arguments<'a, Kernel = K>>(
        &self,
        launches: u32,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Graph<'a>, Error> {
        let requests = arguments.into_iter().map(|arguments| self.check(arguments)).collect::<Result<_, _>>()?;
        Graph::new(&self.loaded, requests, launches)
    }

    /// Adds a launch to the CUDA graphs that the user's own streams are capturing: one stream for each rank, on its GPU.
    /// Every replay of the graphs is then a launch.
    ///
    /// On each rank, replays and other launches on the world must run one after the other, in an order that is the same
    /// on all ranks: put them on the same streams (others with [`Kernel::launch_on`]), or wait for the ones before the
    /// others are started. A rank's replay waits for those of the other ranks, so start it on all of them before
    /// anything that may block. Where the order differs, launches wait for each other until their deadline, and
    /// [`Captured::wait`] reports it.
    ///
    /// Captured launches share nothing with the kernel's other launches, whatever their shapes and failures. Those whose
    /// channels have the same extents share their memory, so that a graph may hold many.
    ///
    /// # Safety
    /// This crate sees nothing of the replays. From the capture until the last replay has ended, the result must be kept,
    /// and what the launch reads and writes must be accessed in the order of the replays' streams alone, or when no
    /// replay runs: host access to a tensor does not wait for them.
    ///
    /// # Errors
    /// As for [`Kernel::launch`]; a stream that is not being captured; simulated ranks. After an error, what the streams
    /// have captured is to be thrown away.
    pub unsafe fn capture_on<'a>(
        &self,
        streams: &[crate::Stream],
        arguments: impl Arguments<'a, Kernel = K>,
    ) -> Result<Captured, Error> {
        let request = self.check(arguments)?;
        let pinned = self.loaded.capture(&request, streams)?;
        Ok(Captured::new(self.loaded.clone(), pinned, request.matrices().collect()))
    }

    /// Launches the kernel, waits for it and tells what each CTA did when. Nothing else should run on the world
    /// meanwhile.
    ///
    /// On GPUs this takes code of its own, which is compiled with `ENTWINE_TIMELINE=1` alone (see the documentation of
    /// `entwine_build`): a launch that is not recorded has no trace of it. The first call prepares that code.
    ///
    /// # Errors
    /// As for [`Kernel::launch`] and [`Launch::wait`]; [`Error::NoFittingCode`] on GPUs, if the kernel was built without
    /// code that records.
    pub fn record<'a>(&self, arguments: impl Arguments<'a, Kernel = K>) -> Result<Timeline, Error> {
        let world = self.loaded.world();
        world.synchronize()?;
        let begun = Instant::now();
        let request = self.check(arguments)?;
        let checked = begun.elapsed();
        let log = self.loaded.log(&request)?;
        let called = Instant::now() - checked;
        let flight = self.loaded.launch_logged(&request, &log)?;
        self.loaded.settle(&flight)?;
        let one_clock = world.platform().context(0).is_none();
        Ok(Timeline::new(K::SPEC, world.ranks(), request.layout.channels(), &log.rows()?, one_clock, called))
    }

    fn start<'a>(
        &self,
        arguments: impl Arguments<'a, Kernel = K>,
        streams: Option<&[crate::Stream]>,
    ) -> Result<Launch, Error> {
        let request = self.check(arguments)?;
        let flight = self.loaded.launch(&request, streams)?;
        Ok(Launch::new(self.loaded.clone(), flight))
    }

    fn look_at<'a, A: Arguments<'a, Kernel = K>>(&self, arguments: &A) -> Result<Request, Error> {
        Request::check(K::SPEC, self.loaded.world(), &self.settings, A::element(), arguments.values())
    }

    fn check<'a, A: Arguments<'a, Kernel = K>>(&self, arguments: A) -> Result<Request, Error> {
        Request::check(K::SPEC, self.loaded.world(), &self.settings, A::element(), arguments.into_values())
    }
}

impl<K: KernelType> fmt::Debug for Kernel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &K::SPEC.name).finish_non_exhaustive()
    }
}
