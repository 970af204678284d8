//! What a launch is asked to do, once its arguments have been found right.

use std::sync::Arc;
use std::time::Duration;

use entwine_device::abi::{ChannelArg, Head, MAX_DIMS, MatrixArg, NONE};

use crate::arguments::{ArgumentValue, Bound};
use crate::choice::{Choice, Chosen, Plan};
use crate::dims;
use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::injection::Injected;
use crate::kernel::Settings;
use crate::launch::FaultBoard;
use crate::log::EventLog;
use crate::params::params;
use crate::platform::Work;
use crate::region::{Layout, Region};
use crate::spec::{ArgumentKind, ChannelSpec, ElementType, KernelSpec};
use crate::tensor::RankMatrix;
use crate::world::World;

/// Arguments that fit the kernel and each other, and the variant that serves them.
pub(crate) struct Request {
    kernel: &'static KernelSpec,
    world: World,
    deadline: Duration,
    element: ElementType,
    chosen: Arc<Chosen>,
    dims: [u32; MAX_DIMS],
    /// Where its channels lie in a region.
    pub layout: Layout,
    /// Its matrices and scalars.
    pub arguments: Bound,
}

impl Request {
    /// Checks a launch's arguments, and chooses the variant.
    pub fn check(
        kernel: &'static KernelSpec,
        world: &World,
        settings: &Settings,
        element: Option<ElementType>,
        values: Vec<ArgumentValue<'_>>,
    ) -> Result<Self, Error> {
        let element = element.unwrap_or(kernel.variants[0].element);
        let arguments = Bound::check(kernel, world, element, values)?;
        let dims = dims::bind(kernel, &arguments)?;
        let chosen = settings.chooser.choose(world, element, dims)?;
        let Choice { tile, carriages, .. } = &chosen.choice;
        let sizes = Sizes { dims: &dims, world: world.ranks() as u32, tile: *tile };
        dims::check(kernel, &arguments, &sizes)?;
        let layout = Layout::of(kernel, element, &sizes, carriages)?;
        let deadline = settings.deadline;
        Ok(Request { kernel, world: world.clone(), deadline, element, chosen, dims, layout, arguments })
    }

    /// Why launches cannot take these in turns: they must be alike in all but their matrices and scalars.
    pub fn why_not_in_turns(requests: &[Request]) -> Option<String> {
        let Some(first) = requests.first() else { return Some("a graph needs arguments to launch with".into()) };
        if requests.iter().any(|other| other.dims == first.dims && other.chosen.choice != first.chosen.choice) {
            return Some("what its launches take was tuned while it was made; make it again".into());
        }
        let other = requests.iter().position(|other| other.dims != first.dims)?;
        Some(format!(
            "the launches of a graph must have the same shapes, and arguments {other} differ: expected {:?}, found {:?}",
            first.named_dims(),
            requests[other].named_dims()
        ))
    }

    /// What its launch would be.
    pub fn plan(&self) -> Result<Plan, Error> {
        self.plan_of(&self.chosen)
    }

    /// What its launch would be if it were carried out so.
    pub fn plan_of(&self, chosen: &Chosen) -> Result<Plan, Error> {
        let ranks = self.world.ranks() as u32;
        Plan::new(self.kernel, self.element, &self.dims, ranks, chosen, self.world.gpu())
    }

    /// The same request, carried out in another way.
    pub fn carried_out(&self, choice: &Choice) -> Result<Self, Error> {
        let Request { kernel, ref world, deadline, element, dims, ref arguments, .. } = *self;
        let sizes = Sizes { dims: &dims, world: world.ranks() as u32, tile: choice.tile };
        dims::check_into(kernel, arguments, &sizes)?;
        let layout = Layout::of(kernel, element, &sizes, &choice.carriages)?;
        let chosen = Arc::new(Chosen::pinned(kernel, element, choice)?);
        Ok(Request {
            kernel,
            world: world.clone(),
            deadline,
            element,
            chosen,
            dims,
            layout,
            arguments: arguments.clone(),
        })
    }

    /// The kernel's element type in it.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The sizes of the kernel's dimensions.
    pub fn dims(&self) -> &[u32; MAX_DIMS] {
        &self.dims
    }

    /// Entries that a row of a launch's log should have room for, with this many CTAs.
    pub fn log_capacity(&self, ctas: u32) -> u64 {
        /// Entries of a tile, but for those of what it receives.
        const TILE: u64 = 24;
        /// Entries of a tile, for each rank that it may receive from.
        const PEER: u64 = 8;
        /// Entries of a tile, for each piece that it may send or receive.
        const PIECE: u64 = 3;
        let world = self.world.ranks() as u32;
        let sizes = Sizes { dims: &self.dims, world, tile: self.chosen.choice.tile };
        let dedicated: u32 = self.kernel.stages.iter().filter_map(|stage| stage.ctas).sum();
        let tiles = self.kernel.stages.iter().map(|stage| {
            let carriers = stage.ctas.unwrap_or(ctas.saturating_sub(dedicated)).max(1);
            extent::count(stage.grid, &sizes).unwrap_or(0).div_ceil(carriers) as u64
        });
        let cut = self.layout.channels().iter().filter(|channel| channel.pieces > 1);
        let pieces: u64 = cut.map(|channel| channel.pieces as u64).sum();
        (tiles.sum::<u64>() + 1) * (TILE + PEER * world as u64 + PIECE * pieces)
    }

    fn named_dims(&self) -> &[u32] {
        &self.dims[..self.kernel.dims.len()]
    }

    /// The variant's index.
    pub fn variant(&self) -> usize {
        self.chosen.variant
    }

    /// Its matrices on every rank.
    pub fn matrices(&self) -> impl Iterator<Item = Arc<RankMatrix>> {
        self.arguments.matrices.iter().flat_map(|matrix| matrix.ranks.iter().cloned())
    }

    /// Lays out each rank's parameters.
    pub fn work(
        &self,
        region: &Region,
        faults: &FaultBoard,
        ctas: u32,
        injected: Option<Injected>,
        log: Option<&EventLog>,
    ) -> Result<Work, Error> {
        let channels: Vec<_> = region.channels(&self.layout).collect();
        let mut heads: Vec<_> = (0..self.world.ranks()).map(|rank| self.head(rank, region, faults, ctas)).collect();
        if let Some(log) = log {
            heads.iter_mut().enumerate().for_each(|(rank, head)| log.apply(rank, head));
        }
        if let Some(injected) = injected {
            injected.apply(self.kernel, &channels, &mut heads)?;
        }
        let params = heads.iter().map(|head| self.params(head, &channels)).collect::<Result<_, Error>>()?;
        Ok(Work { variant: self.variant(), params, regions: region.addresses(), ctas, deadline: self.deadline })
    }

    fn head(&self, rank: usize, region: &Region, faults: &FaultBoard, ctas: u32) -> Head {
        Head {
            rank: rank as u32,
            world: self.world.ranks() as u32,
            ctas,
            link_limit: self.chosen.choice.link_limit,
            deadline_ns: u64::try_from(self.deadline.as_nanos()).unwrap_or(u64::MAX),
            region: region.addresses()[rank],
            regions: region.table(rank),
            fault: faults.address(rank),
            fabric: 0,
            log: 0,
            log_capacity: 0,
            span: self.chosen.choice.span,
            in_turn: (!self.chosen.choice.fused).into(),
            drop_channel: NONE,
            drop_slot: NONE,
            late: 0,
            late_ns: 0,
            dims: self.dims,
        }
    }

    fn params(&self, head: &Head, channels: &[ChannelArg]) -> Result<Box<[u64]>, Error> {
        let rank = head.rank as usize;
        let sizes = Sizes { dims: &self.dims, world: head.world, tile: self.chosen.choice.tile };
        let matrices = self.arguments.matrices.iter().enumerate().map(|(index, matrix)| {
            let (parts, reached) = match &matrix.spec.kind {
                ArgumentKind::Matrix { sharded: true, .. } => (head.world, false),
                ArgumentKind::Matrix { groups: Some(groups), .. } => (groups.value(&sizes).unwrap_or(1).max(1), false),
                ArgumentKind::Matrix { lent, symmetric, .. } => (1, *lent || *symmetric),
                ArgumentKind::Scalar(_) => unreachable!("a scalar is no matrix"),
            };
            let argument = matrix.ranks[rank].argument(&self.world, rank, parts)?;
            let lies_in_it = |channel: &ChannelSpec| channel.into == Some(index);
            let ranks = match reached || self.kernel.channels.iter().any(lies_in_it) {
                true => RankMatrix::table(&matrix.ranks, &self.world, rank, parts)?,
                false => 0,
            };
            // Of what is split over the ranks, as many as the first one has, so that all know which tiles there are.
            let part_rows = match &matrix.spec.kind {
                ArgumentKind::Matrix { rows, .. } if parts == 1 && rows.share_of().is_some() => {
                    matrix.ranks[0].rows as u32
                }
                _ => argument.part_rows,
            };
            Ok(MatrixArg { ranks, part_rows, ..argument })
        });
        let matrices: Vec<_> = matrices.collect::<Result<_, Error>>()?;
        Ok(params(head, &matrices, channels, &self.arguments.scalars))
    }
}
