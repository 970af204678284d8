//! TMA descriptors of matrices.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::{DriverError, sys};
use entwine_device::abi::MatrixArg;

use super::device::Device;
use super::memory::DeviceBlock;
use crate::error::Error;
use crate::platform::{Area, Memory};
use crate::spec::ElementType;

/// Rows of the boxes, in the order in which the descriptors lie.
const BOX_ROWS: [u32; 6] = [8, 16, 32, 64, 128, 256];
/// Bytes of a box's row: the width of the swizzle.
const BOX_BYTES: u32 = 128;
/// What a stride must be less than.
const STRIDE_LIMIT: u64 = 1 << 40;
/// What a pitch must be less than: device code counts the bytes of a row in 32 bits.
const PITCH_LIMIT: u64 = 1 << 32;

/// The descriptors that [`MatrixArg::maps`] points at, in the GPU's memory; `None` for a matrix without elements.
pub(super) fn describe(
    device: &Arc<Device>,
    matrix: &MatrixArg,
    element: ElementType,
) -> Result<Option<DeviceBlock>, Error> {
    if matrix.rows == 0 || matrix.columns == 0 {
        return Ok(None);
    }
    if matrix.pitch >= PITCH_LIMIT {
        return Err(Error::Tensor(format!(
            "a matrix must have less than 4 GiB from row to row, and this one has {} bytes",
            matrix.pitch
        )));
    }
    let part_stride = matrix.pitch * matrix.part_rows as u64;
    if part_stride >= STRIDE_LIMIT {
        return Err(Error::Tensor(format!(
            "a matrix, or one rank's share of it, must be smaller than 1 TiB, and this one has {part_stride} bytes"
        )));
    }
    let mut bytes = Vec::new();
    for box_rows in BOX_ROWS {
        let map = device.with("describe a matrix for TMA", || encode(matrix, part_stride, element, box_rows))?;
        bytes.extend(map.opaque.iter().flat_map(|word| word.to_ne_bytes()));
    }
    let block = DeviceBlock::zeroed(device, bytes.len())?;
    block.write(Area::flat(0, bytes.len()), &bytes)?;
    Ok(Some(block))
}

/// A descriptor of `[parts][part_rows][columns]`. A last part that has fewer rows is described with as many as the others: what
/// lies behind it is the tensor's spare rows.
fn encode(
    matrix: &MatrixArg,
    part_stride: u64,
    element: ElementType,
    box_rows: u32,
) -> Result<sys::CUtensorMap, DriverError> {
    let data_type = match element {
        ElementType::Bf16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        ElementType::F16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        ElementType::F32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        ElementType::U32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        ElementType::I32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        ElementType::U64 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        ElementType::I64 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
    };
    let sizes: [u64; 3] = [matrix.columns.into(), matrix.part_rows.into(), matrix.parts.into()];
    let strides = [matrix.pitch, part_stride];
    let box_sizes = [BOX_BYTES / element.size() as u32, box_rows, 1];
    let element_strides = [1; 3];
    let mut map = MaybeUninit::uninit();
    // SAFETY: the arrays have as many entries as the rank asks for, and the call writes the descriptor.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            map.as_mut_ptr(),
            data_type,
            3,
            matrix.data as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            box_sizes.as_ptr(),
            element_strides.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        .result()?;
        Ok(map.assume_init())
    }
}
