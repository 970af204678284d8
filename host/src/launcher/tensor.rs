//! Tensors: a matrix in the memory of every rank.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use entwine_device::abi::MatrixArg;

use crate::element::TensorElement;
use crate::error::Error;
use crate::foreign::RawMatrix;
use crate::memory::Allocation;
use crate::params::words;
use crate::platform::Area;
use crate::spec::ElementType;
use crate::world::World;

/// Row starts and tensor maps need addresses and pitches that are multiples of this many bytes.
pub(crate) const ALIGNMENT: usize = 16;

/// Rows of the lowest box that matrices are loaded by. Boxes that reach beyond what their descriptor knows take TMA up to twice
/// as long, so one that is lower than this is described with its spare rows.
const LEAST_ROWS: usize = 64;

/// A row-major matrix of `T` in the memory of every rank; its height may differ from rank to rank.
///
/// The rows of a tensor are padded to 16 bytes, and as many spare rows as there are ranks lie behind the last one, or as make
/// 64 in all: of a `Sharded` argument whose rows do not divide evenly, and of a matrix of fewer rows than a tile, the last
/// tiles may reach into them.
pub struct Tensor<T> {
    matrices: Matrices,
    element: PhantomData<T>,
}

/// A tensor whatever its element type, as launches see it.
pub struct Matrices {
    pub(crate) world: World,
    pub(crate) element: ElementType,
    pub(crate) ranks: Vec<Arc<RankMatrix>>,
}

/// One rank's matrix of a tensor.
pub struct RankMatrix {
    element: ElementType,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Bytes from one row to the next.
    pitch: usize,
    /// Rows behind the last one that may be overwritten.
    pub(crate) spare_rows: usize,
    memory: Arc<Allocation>,
    maps: Mutex<Vec<Described>>,
    tables: Mutex<Vec<Table>>,
    /// What frees the memory, if it is not this crate's.
    _owner: Option<Box<dyn Any + Send + Sync>>,
}

/// Descriptors of a matrix.
struct Described {
    /// The rank in whose memory they lie.
    on: usize,
    /// The parts in which they describe the rows.
    parts: u32,
    /// None for an empty matrix, and on simulated ranks.
    maps: Option<Arc<Allocation>>,
}

/// A table of what every rank's matrix of a tensor is to one rank, in that rank's memory.
struct Table {
    matrices: Vec<MatrixArg>,
    memory: Arc<Allocation>,
}

/// A tensor that a launch takes as an argument.
pub trait AnyTensor: sealed::Sealed {}

pub(crate) mod sealed {
    pub trait Sealed {
        fn matrices(&self) -> &super::Matrices;
    }
}

impl<T: TensorElement> sealed::Sealed for Tensor<T> {
    fn matrices(&self) -> &Matrices {
        &self.matrices
    }
}
impl<T: TensorElement> AnyTensor for Tensor<T> {}

impl World {
    /// Splits a matrix of `[rows, columns]` by rows: rank `r` gets the `⌈rows / world⌉` rows from
    /// `r · ⌈rows / world⌉` on; the last ranks may get fewer, or none. `data` is row-major.
    ///
    /// # Errors
    /// `data` is not `rows · columns` long, or memory ran out.
    pub fn scatter<T: TensorElement>(&self, [rows, columns]: [usize; 2], data: &[T]) -> Result<Tensor<T>, Error> {
        check_length([rows, columns], data.len())?;
        self.tensor(|rank| {
            let (first, count) = share(rows, self.ranks(), rank);
            ([count, columns], Some(&data[first * columns..(first + count) * columns]))
        })
    }

    /// The same matrix of `[rows, columns]` on every rank. `data` is row-major.
    ///
    /// # Errors
    /// `data` is not `rows · columns` long, or memory ran out.
    pub fn replicate<T: TensorElement>(&self, shape: [usize; 2], data: &[T]) -> Result<Tensor<T>, Error> {
        check_length(shape, data.len())?;
        self.tensor(|_| (shape, Some(data)))
    }

    /// On each rank the matrix that `matrix` makes for it: its `[rows, columns]` and row-major elements.
    /// The ranks' columns must agree.
    ///
    /// # Errors
    /// A rank's elements are not `rows · columns` many, columns differ, or memory ran out.
    pub fn per_rank<T: TensorElement>(
        &self,
        matrix: impl FnMut(usize) -> ([usize; 2], Vec<T>),
    ) -> Result<Tensor<T>, Error> {
        let matrices: Vec<_> = (0..self.ranks()).map(matrix).collect();
        for (rank, (shape, data)) in matrices.iter().enumerate() {
            check_length(*shape, data.len())?;
            if shape[1] != matrices[0].0[1] {
                return Err(Error::Tensor(format!(
                    "a tensor has as many columns on every rank: {} on rank 0, but {} on rank {rank}",
                    matrices[0].0[1], shape[1]
                )));
            }
        }
        self.tensor(|rank| (matrices[rank].0, Some(&matrices[rank].1)))
    }

    /// Zeros, `[rows, columns]` of them on each rank.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn zeros<T: TensorElement>(&self, shape: [usize; 2]) -> Result<Tensor<T>, Error> {
        self.tensor(|_| (shape, None))
    }

    /// Zeros, `[rows, columns]` of them in all, split by rows like [`World::scatter`] does.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn zeros_scattered<T: TensorElement>(&self, [rows, columns]: [usize; 2]) -> Result<Tensor<T>, Error> {
        self.tensor(|rank| ([share(rows, self.ranks(), rank).1, columns], None))
    }

    /// `value`, `[rows, columns]` times on each rank.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn filled<T: TensorElement>(&self, shape: [usize; 2], value: T) -> Result<Tensor<T>, Error> {
        let mut tensor = self.zeros(shape)?;
        tensor.fill(value)?;
        Ok(tensor)
    }

    fn tensor<'d, T: TensorElement>(
        &self,
        mut matrix: impl FnMut(usize) -> ([usize; 2], Option<&'d [T]>),
    ) -> Result<Tensor<T>, Error> {
        let ranks = (0..self.ranks()).map(|rank| {
            let (shape, data) = matrix(rank);
            let matrix = RankMatrix::allocate(self, rank, shape, T::TYPE)?;
            if let Some(data) = data {
                matrix.memory.write(matrix.area(), bytemuck::cast_slice(data))?;
            }
            Ok(Arc::new(matrix))
        });
        Ok(Tensor::of(self, ranks.collect::<Result<_, Error>>()?))
    }
}

impl<T: TensorElement> Tensor<T> {
    pub(crate) fn of(world: &World, ranks: Vec<Arc<RankMatrix>>) -> Self {
        let matrices = Matrices { world: world.clone(), element: T::TYPE, ranks };
        Tensor { matrices, element: PhantomData }
    }

    /// Where a rank's matrix lies, for other libraries. It stays there as long as the tensor, and what others do with
    /// it is not in the order of launches unless it is on their streams.
    ///
    /// # Panics
    /// The world has no such rank.
    pub fn raw(&self, rank: usize) -> RawMatrix {
        let matrix = &self.matrices.ranks[rank];
        RawMatrix { address: matrix.memory.address(), rows: matrix.rows, columns: matrix.columns, pitch: matrix.pitch }
    }

    /// The world whose ranks hold it.
    pub fn world(&self) -> &World {
        &self.matrices.world
    }

    /// A rank's `[rows, columns]`.
    ///
    /// # Panics
    /// There is no such rank.
    pub fn shape(&self, rank: usize) -> [usize; 2] {
        let matrix = &self.matrices.ranks[rank];
        [matrix.rows, matrix.columns]
    }

    /// A rank's elements, row-major. Waits for the launches in flight.
    ///
    /// # Errors
    /// The machine failed. A launch's fault is reported by [`Launch::wait`](crate::Launch::wait) alone.
    ///
    /// # Panics
    /// There is no such rank.
    pub fn to_vec(&self, rank: usize) -> Result<Vec<T>, Error> {
        self.world().synchronize()?;
        let matrix = &self.matrices.ranks[rank];
        let mut data = vec![T::zeroed(); matrix.rows * matrix.columns];
        matrix.memory.read(matrix.area(), bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }

    /// All ranks' elements, row-major, rank after rank. Waits for the launches in flight.
    ///
    /// # Errors
    /// See [`Tensor::to_vec`].
    pub fn gather(&self) -> Result<Vec<T>, Error> {
        let ranks = (0..self.world().ranks()).map(|rank| self.to_vec(rank));
        Ok(ranks.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Overwrites every element on every rank with `value`. Waits for the launches in flight.
    ///
    /// # Errors
    /// The machine failed.
    pub fn fill(&mut self, value: T) -> Result<(), Error> {
        self.world().synchronize()?;
        for matrix in &self.matrices.ranks {
            matrix.memory.fill(matrix.area(), bytemuck::bytes_of(&value))?;
        }
        Ok(())
    }

    /// Overwrites a rank's elements, row-major. Waits for the launches in flight.
    ///
    /// # Errors
    /// `data` is not `rows · columns` long, or the machine failed.
    ///
    /// # Panics
    /// There is no such rank.
    pub fn write(&mut self, rank: usize, data: &[T]) -> Result<(), Error> {
        check_length(self.shape(rank), data.len())?;
        self.world().synchronize()?;
        let matrix = &self.matrices.ranks[rank];
        matrix.memory.write(matrix.area(), bytemuck::cast_slice(data))
    }
}

impl<T: TensorElement> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes: Vec<_> = (0..self.world().ranks()).map(|rank| self.shape(rank)).collect();
        f.debug_struct("Tensor").field("element", &T::TYPE).field("shapes", &shapes).finish_non_exhaustive()
    }
}

impl RankMatrix {
    fn allocate(world: &World, rank: usize, [rows, columns]: [usize; 2], element: ElementType) -> Result<Self, Error> {
        check_shape([rows, columns]).map_err(Error::Tensor)?;
        let pitch = (columns * element.size()).next_multiple_of(ALIGNMENT);
        let spare_rows = world.ranks().max(LEAST_ROWS.saturating_sub(rows));
        let bytes = (rows + spare_rows).saturating_mul(pitch).max(ALIGNMENT);
        let memory = world.allocate(rank, bytes)?;
        Ok(RankMatrix {
            element,
            rows,
            columns,
            pitch,
            spare_rows,
            memory,
            maps: Mutex::default(),
            tables: Mutex::default(),
            _owner: None,
        })
    }

    /// A matrix in memory that is not this crate's.
    ///
    /// # Safety
    /// Its rows must be memory of the rank, which nothing else accesses while it is in use.
    pub(crate) unsafe fn adopt(
        world: &World,
        rank: usize,
        raw: &RawMatrix,
        element: ElementType,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, Error> {
        let RawMatrix { address, rows, columns, pitch } = *raw;
        // SAFETY: as the caller promised; nothing behind the last row's columns is accessed.
        let memory = unsafe { world.platform().adopt(rank, address)? };
        let memory = Arc::new(Allocation::plain(memory, pitch.saturating_mul(rows)));
        Ok(RankMatrix {
            element,
            rows,
            columns,
            pitch,
            spare_rows: 0,
            memory,
            maps: Mutex::default(),
            tables: Mutex::default(),
            _owner: owner,
        })
    }

    /// Bytes of a row's elements.
    pub(crate) fn row_bytes(&self) -> usize {
        self.columns * self.element.size()
    }

    /// Whether its memory is not this crate's, so that nothing may be written behind its rows.
    pub(crate) fn is_foreign(&self) -> bool {
        self.spare_rows == 0
    }

    /// What a kernel on `rank` is told of this matrix when its rows are seen in `parts` parts. Prepares the
    /// descriptors on first use; they live as long as the matrix.
    pub(crate) fn argument(&self, world: &World, rank: usize, parts: u32) -> Result<MatrixArg, Error> {
        let rows = self.rows as u32;
        let mut argument = MatrixArg {
            data: self.memory.address(),
            pitch: self.pitch as u64,
            maps: 0,
            ranks: 0,
            rows,
            columns: self.columns as u32,
            part_rows: rows.div_ceil(parts),
            parts,
        };
        let mut maps = self.maps.lock().unwrap();
        let known = maps.iter().position(|described| (described.on, described.parts) == (rank, parts));
        let index = match known {
            Some(index) => index,
            None => {
                let least = if parts == 1 { LEAST_ROWS.min(self.rows + self.spare_rows) as u32 } else { 0 };
                let described = MatrixArg { part_rows: argument.part_rows.max(least), ..argument };
                let memory = world.platform().describe(rank, &described, self.element)?;
                let memory = memory.map(|memory| Arc::new(Allocation::plain(memory, 0)));
                maps.push(Described { on: rank, parts, maps: memory });
                maps.len() - 1
            }
        };
        argument.maps = maps[index].maps.as_ref().map_or(0, |memory| memory.address());
        Ok(argument)
    }

    /// The address of what a kernel on `rank` is told of all ranks' matrices. Prepared on first use; it lives as long as
    /// that rank's matrix.
    pub(crate) fn table(ranks: &[Arc<RankMatrix>], world: &World, rank: usize, parts: u32) -> Result<u64, Error> {
        let matrices = ranks.iter().map(|matrix| matrix.argument(world, rank, parts));
        let matrices: Vec<_> = matrices.collect::<Result<_, Error>>()?;
        let mut tables = ranks[rank].tables.lock().unwrap();
        if let Some(known) = tables.iter().find(|table| table.matrices == matrices) {
            return Ok(known.memory.address());
        }
        let words = words(&matrices);
        let bytes = bytemuck::cast_slice(&words);
        let memory = world.allocate(rank, bytes.len())?;
        memory.write(Area::flat(0, bytes.len()), bytes)?;
        let address = memory.address();
        tables.push(Table { matrices, memory });
        Ok(address)
    }

    fn area(&self) -> Area {
        let row = self.row_bytes();
        Area { offset: 0, pitch: self.pitch, row, rows: if row == 0 { 0 } else { self.rows } }
    }
}

/// The first row and the number of rows that a rank owns of `rows` rows split evenly.
pub(crate) fn share(rows: usize, ranks: usize, rank: usize) -> (usize, usize) {
    let each = rows.div_ceil(ranks);
    let first = (rank * each).min(rows);
    (first, each.min(rows - first))
}

/// Refuses what TMA, whose coordinates are signed words, can't reach.
pub(crate) fn check_shape([rows, columns]: [usize; 2]) -> Result<(), String> {
    if rows.max(columns) > i32::MAX as usize {
        return Err(format!("a matrix has at most 2³¹ − 1 rows and columns, not {rows} × {columns}"));
    }
    Ok(())
}

fn check_length([rows, columns]: [usize; 2], length: usize) -> Result<(), Error> {
    if rows.checked_mul(columns) != Some(length) {
        return Err(Error::Tensor(format!("{rows} × {columns} elements are expected, and {length} were given")));
    }
    Ok(())
}
