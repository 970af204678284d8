//! cuBLASLt's matrix product: the same one on every GPU, by the algorithms that its heuristic proposes.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::path::PathBuf;
use std::ptr;

use anyhow::{Context, Result, ensure};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, cudaDataType,
};
use cudarc::driver::sys::CUstream;
use entwine::{Tensor, World};

use crate::gpus::Gpus;
use crate::library::{self, functions};
use crate::shapes::Shape;

/// Bytes that an algorithm may use besides its operands: what the vendor recommends on this architecture.
const WORKSPACE: usize = 32 << 20;
/// `CUBLAS_OP_T`.
const TRANSPOSED: i32 = 1;
/// How many of the heuristic's proposals are considered.
const PROPOSALS: usize = 8;

type Status = i32;

functions! {
    struct Functions {
        create: fn(*mut cublasLtHandle_t) -> Status = "cublasLtCreate";
        destroy: fn(cublasLtHandle_t) -> Status = "cublasLtDestroy";
        version: fn() -> usize = "cublasLtGetVersion";
        status_string: fn(Status) -> *const c_char = "cublasLtGetStatusString";
        create_product: fn(*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType) -> Status
            = "cublasLtMatmulDescCreate";
        set_product: fn(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize) -> Status
            = "cublasLtMatmulDescSetAttribute";
        destroy_product: fn(cublasLtMatmulDesc_t) -> Status = "cublasLtMatmulDescDestroy";
        create_layout: fn(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64) -> Status
            = "cublasLtMatrixLayoutCreate";
        set_layout: fn(
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayoutAttribute_t,
            *const c_void,
            usize,
        ) -> Status = "cublasLtMatrixLayoutSetAttribute";
        destroy_layout: fn(cublasLtMatrixLayout_t) -> Status = "cublasLtMatrixLayoutDestroy";
        create_preference: fn(*mut cublasLtMatmulPreference_t) -> Status = "cublasLtMatmulPreferenceCreate";
        set_preference: fn(
            cublasLtMatmulPreference_t,
            cublasLtMatmulPreferenceAttributes_t,
            *const c_void,
            usize,
        ) -> Status = "cublasLtMatmulPreferenceSetAttribute";
        destroy_preference: fn(cublasLtMatmulPreference_t) -> Status = "cublasLtMatmulPreferenceDestroy";
        propose: fn(
            cublasLtHandle_t,
            cublasLtMatmulDesc_t,
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t,
            cublasLtMatmulPreference_t,
            c_int,
            *mut Proposal,
            *mut c_int,
        ) -> Status = "cublasLtMatmulAlgoGetHeuristic";
        multiply: fn(
            cublasLtHandle_t,
            cublasLtMatmulDesc_t,
            *const f32,
            u64,
            cublasLtMatrixLayout_t,
            u64,
            cublasLtMatrixLayout_t,
            *const f32,
            u64,
            cublasLtMatrixLayout_t,
            u64,
            cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t,
            u64,
            usize,
            CUstream,
        ) -> Status = "cublasLtMatmul";
    }
}

/// `cublasLtMatmulHeuristicResult_t`, with a state that may be any.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proposal {
    algorithm: cublasLtMatmulAlgo_t,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}
const _: () = assert!(size_of::<Proposal>() == size_of::<cublasLtMatmulHeuristicResult_t>());

/// The library, with a handle and a workspace on every GPU.
pub struct CublasLt {
    functions: Functions,
    handles: Vec<cublasLtHandle_t>,
    workspace: Tensor<f32>,
}

impl CublasLt {
    /// Loads it and makes it ready on every GPU.
    ///
    /// # Errors
    /// It is not found, or does not start.
    pub fn open(world: &World, gpus: &Gpus, folders: &[PathBuf]) -> Result<Self> {
        let library = library::open(&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"], folders)?;
        let functions = Functions::load(library)?;
        let workspace = world.zeros([WORKSPACE / 4096, 4096 / size_of::<f32>()])?;
        let mut cublas = CublasLt { functions, handles: Vec::new(), workspace };
        for rank in 0..world.ranks() {
            gpus.make_current(rank)?;
            let mut handle = ptr::null_mut();
            // SAFETY: the call writes one handle.
            cublas.check("start", unsafe { (cublas.functions.create)(&mut handle) })?;
            cublas.handles.push(handle);
        }
        Ok(cublas)
    }

    /// The library's version.
    pub fn version(&self) -> String {
        // SAFETY: the call takes nothing.
        library::version(unsafe { (self.functions.version)() })
    }

    fn check(&self, action: &str, status: Status) -> Result<()> {
        library::check("cuBLASLt", action, status, |status| {
            // SAFETY: the library's strings are static.
            unsafe { CStr::from_ptr((self.functions.status_string)(status)) }.to_string_lossy().into_owned()
        })
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        for &handle in &self.handles {
            // SAFETY: created in `open`, and no call is in flight. The process is about to end.
            let _ = unsafe { (self.functions.destroy)(handle) };
        }
    }
}

/// A product of bf16 matrices of one shape, accumulated in f32.
pub struct Product<'a> {
    cublas: &'a CublasLt,
    description: cublasLtMatmulDesc_t,
    /// Of A, B and C, row-major; to the library they are column-major and transposed.
    layouts: [cublasLtMatrixLayout_t; 3],
    proposals: Vec<Proposal>,
    chosen: usize,
}

impl<'a> Product<'a> {
    /// Asks the library how it would compute it, with C's columns in so many blocks that lie one after the other.
    ///
    /// # Errors
    /// It has no way to.
    pub fn new(cublas: &'a CublasLt, gpus: &Gpus, Shape { m, n, k }: Shape, blocks: usize) -> Result<Self> {
        let n = n / blocks;
        gpus.make_current(0)?;
        let functions = &cublas.functions;
        let mut description = ptr::null_mut();
        let (f32_sums, f32_scale) = (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F);
        // SAFETY: the call writes one handle.
        cublas.check("describe a product", unsafe {
            (functions.create_product)(&mut description, f32_sums, f32_scale)
        })?;
        let mut product =
            Product { cublas, description, layouts: [ptr::null_mut(); 3], proposals: Vec::new(), chosen: 0 };
        let attribute = cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        // SAFETY: the attribute is an operation, and copied.
        cublas.check("describe a product", unsafe {
            (functions.set_product)(description, attribute, ptr::from_ref(&TRANSPOSED).cast(), size_of_val(&TRANSPOSED))
        })?;
        for (layout, [rows, columns]) in product.layouts.iter_mut().zip([[m, k], [n, k], [m, n]]) {
            // SAFETY: the call writes one handle.
            cublas.check("describe a matrix", unsafe {
                (functions.create_layout)(
                    layout,
                    cudaDataType::CUDA_R_16BF,
                    columns as u64,
                    rows as u64,
                    columns as i64,
                )
            })?;
        }
        for (layout, elements) in product.layouts.into_iter().zip([0, n * k, m * n]) {
            product.repeat(layout, blocks as i32, elements as i64)?;
        }
        product.proposals = product.propose()?;
        ensure!(!product.proposals.is_empty(), "cuBLASLt has no algorithm for {m} × {n} × {k} in bf16");
        Ok(product)
    }

    /// So many matrices, `stride` elements from one to the next.
    fn repeat(&self, layout: cublasLtMatrixLayout_t, count: i32, stride: i64) -> Result<()> {
        let set = self.cublas.functions.set_layout;
        let (counted, strided) = (
            cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
        );
        // SAFETY: the attributes are a 32-bit and a 64-bit integer, and copied.
        unsafe {
            let described = set(layout, counted, ptr::from_ref(&count).cast(), size_of_val(&count));
            self.cublas.check("describe a matrix", described)?;
            let described = set(layout, strided, ptr::from_ref(&stride).cast(), size_of_val(&stride));
            self.cublas.check("describe a matrix", described)
        }
    }

    fn propose(&self) -> Result<Vec<Proposal>> {
        let functions = &self.cublas.functions;
        let [a, b, c] = self.layouts;
        let mut preference = ptr::null_mut();
        let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: a proposal is plain data, for which zeros are valid.
        let mut proposals: [Proposal; PROPOSALS] = unsafe { mem::zeroed() };
        let mut count = 0;
        // SAFETY: the handles are alive, and there is room for as many proposals as are asked for.
        let status = unsafe {
            self.cublas.check("make a preference", (functions.create_preference)(&mut preference))?;
            let set = (functions.set_preference)(
                preference,
                attribute,
                ptr::from_ref(&WORKSPACE).cast(),
                size_of_val(&WORKSPACE),
            );
            let proposed = (functions.propose)(
                self.cublas.handles[0],
                self.description,
                b,
                a,
                c,
                c,
                preference,
                PROPOSALS as c_int,
                proposals.as_mut_ptr(),
                &mut count,
            );
            (functions.destroy_preference)(preference);
            if set != 0 { set } else { proposed }
        };
        self.cublas.check("propose an algorithm", status)?;
        let proposals = &proposals[..count as usize];
        Ok(proposals
            .iter()
            .filter(|proposal| proposal.state == 0 && proposal.workspace <= WORKSPACE)
            .copied()
            .collect())
    }

    /// How many algorithms there are to choose from.
    pub fn algorithms(&self) -> usize {
        self.proposals.len()
    }

    /// Uses this algorithm from now on.
    pub fn choose(&mut self, algorithm: usize) {
        self.chosen = algorithm;
    }

    /// The algorithm in use.
    pub fn chosen(&self) -> usize {
        self.chosen
    }

    /// Enqueues C = A·Bᵀ on a rank's stream.
    ///
    /// # Errors
    /// The library failed.
    ///
    /// # Safety
    /// These must be the addresses of matrices of the product's shape, without gaps, on the rank's GPU; they must
    /// be there, and not be used otherwise, until the work is done.
    pub unsafe fn enqueue(&self, gpus: &Gpus, rank: usize, [a, b, c]: [u64; 3]) -> Result<()> {
        gpus.make_current(rank)?;
        let [a_layout, b_layout, c_layout] = self.layouts;
        let (one, zero) = (1.0, 0.0);
        // SAFETY: as the caller promised. What the library sees as C' = B'ᵀ·A' in column-major order is C = A·Bᵀ.
        let status = unsafe {
            (self.cublas.functions.multiply)(
                self.cublas.handles[rank],
                self.description,
                &one,
                b,
                b_layout,
                a,
                a_layout,
                &zero,
                c,
                c_layout,
                c,
                c_layout,
                &self.proposals[self.chosen].algorithm,
                self.cublas.workspace.raw(rank).address,
                WORKSPACE,
                gpus.streams[rank].cu_stream(),
            )
        };
        self.cublas.check("multiply", status)
    }
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        let functions = &self.cublas.functions;
        // SAFETY: created in `new`; the library copied what calls need. There is nothing to do about a failure.
        unsafe {
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                (functions.destroy_layout)(layout);
            }
            (functions.destroy_product)(self.description);
        }
    }
}
