//! Tensors in memory that this crate did not allocate.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, DevicePtr};

use crate::element::TensorElement;
use crate::error::Error;
use crate::tensor::{ALIGNMENT, RankMatrix, Tensor, check_shape};
use crate::world::World;

/// Where a matrix lies, in terms that other libraries know: to adopt what they allocated, or to lend them a tensor.
#[derive(Debug, Clone, Copy)]
pub struct RawMatrix {
    /// Device address of the first element, a multiple of 16.
    pub address: u64,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Bytes from one row to the next, a multiple of 16.
    pub pitch: usize,
}

impl<T: TensorElement> Tensor<T> {
    /// A tensor in memory that is not this crate's: one matrix for each rank, in their order. It has no spare rows, so
    /// a launch takes it for a `Sharded` argument only if its rows divide evenly.
    ///
    /// # Safety
    /// Each matrix must lie wholly in memory of its rank's GPU (of this process, for a simulated rank) that stays
    /// allocated, and that nothing else accesses while a launch or this tensor does, until the tensor is dropped and
    /// every launch that it was passed to has ended.
    ///
    /// # Errors
    /// Not one matrix for each rank; an address or a pitch that is not a multiple of 16, rows longer than the pitch,
    /// more than 2³¹ − 1 rows or columns, columns that differ between ranks, or an address on another GPU than the rank's.
    pub unsafe fn from_raw(world: &World, matrices: &[RawMatrix]) -> Result<Self, Error> {
        check_count(world, matrices.len())?;
        check_matrices::<T>(matrices)?;
        let ranks = matrices.iter().enumerate().map(|(rank, raw)| {
            // SAFETY: as the caller promised.
            let matrix = unsafe { RankMatrix::adopt(world, rank, raw, T::TYPE, None) };
            matrix.map(Arc::new)
        });
        Ok(Tensor::of(world, ranks.collect::<Result<_, _>>()?))
    }

    /// A tensor in memory that cudarc allocated, which it takes over: one slice for each rank, on its GPU, holding
    /// rows of `columns` elements without gaps. Waits for the slices' streams. It has no spare rows, so a launch takes
    /// it for a `Sharded` argument only if its rows divide evenly.
    ///
    /// # Errors
    /// Simulated ranks; not one slice for each rank; a length that is no multiple of `columns`, rows that are not a multiple of 16
    /// bytes long, or a slice on another GPU than the rank's.
    pub fn from_slices(world: &World, columns: usize, slices: Vec<CudaSlice<T>>) -> Result<Self, Error> {
        if world.cuda_context(0).is_none() {
            return Err(Error::Tensor("simulated ranks have no memory that cudarc allocates".into()));
        }
        check_count(world, slices.len())?;
        let mut matrices = Vec::new();
        for (rank, slice) in slices.iter().enumerate() {
            let rows = slice.len().checked_div(columns).unwrap_or(0);
            if rows * columns != slice.len() {
                let problem =
                    format!("the slice of rank {rank} has {} elements, which are no rows of {columns}", slice.len());
                return Err(Error::Tensor(problem));
            }
            let stream = slice.stream();
            let device = stream.context().ordinal();
            let action = "wait for a slice's stream";
            stream.synchronize().map_err(|source| Error::Cuda { device, action, source })?;
            let (address, _) = slice.device_ptr(stream);
            matrices.push(RawMatrix { address, rows, columns, pitch: columns * size_of::<T>() });
        }
        check_matrices::<T>(&matrices)?;
        let ranks = slices.into_iter().zip(&matrices).enumerate().map(|(rank, (slice, raw))| {
            // SAFETY: the matrix is all of the slice, which it owns.
            let matrix = unsafe { RankMatrix::adopt(world, rank, raw, T::TYPE, Some(Box::new(slice))) };
            matrix.map(Arc::new)
        });
        Ok(Tensor::of(world, ranks.collect::<Result<_, _>>()?))
    }
}

fn check_count(world: &World, count: usize) -> Result<(), Error> {
    let ranks = world.ranks();
    match count == ranks {
        true => Ok(()),
        false => Err(Error::Tensor(format!("a tensor needs one matrix for each of the {ranks} ranks, not {count}"))),
    }
}

fn check_matrices<T: TensorElement>(matrices: &[RawMatrix]) -> Result<(), Error> {
    for (rank, matrix) in matrices.iter().enumerate() {
        let refuse = |problem| Error::Tensor(format!("the matrix of rank {rank}: {problem}"));
        matrix.check(size_of::<T>(), matrices[0].columns).map_err(refuse)?;
    }
    Ok(())
}

impl RawMatrix {
    fn check(&self, element_bytes: usize, columns: usize) -> Result<(), String> {
        let RawMatrix { address, pitch, .. } = *self;
        check_shape([self.rows, self.columns])?;
        let row = self.columns * element_bytes;
        if !address.is_multiple_of(ALIGNMENT as u64) {
            return Err(format!("its address must be a multiple of {ALIGNMENT}, and {address:#x} is not"));
        }
        if !pitch.is_multiple_of(ALIGNMENT) {
            return Err(format!("its pitch must be a multiple of {ALIGNMENT} bytes, and {pitch} is not; copy it"));
        }
        if pitch < row {
            return Err(format!("its pitch of {pitch} bytes is less than a row's {row}"));
        }
        if self.columns != columns {
            return Err(format!("it has {} columns, but rank 0's has {columns}", self.columns));
        }
        Ok(())
    }
}
