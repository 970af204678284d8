"""cuBLASMp's fused products: weights and tokens as PyTorch stores them, one process a GPU."""

import ctypes
from ctypes import byref, c_byte, c_float, c_int, c_int64, c_size_t, c_void_p
from types import SimpleNamespace

import torch
import torch.distributed as dist

from contestant import nccl_version
from serving import Unsupported

OPERATIONS = ["gemm_reduce_scatter", "all_gather_gemm", "gemm_all_reduce"]
# As the library's package asks for.
LEAST_NCCL = (2, 29, 2)
BF16, COMPUTE_F32, TRANSPOSE = 14, 68, 1
TRANSA, ALGORITHM, EPILOGUE, COMMUNICATION_TYPE = 0, 3, 5, 27
ALL_REDUCE_EPILOGUE = 1
COLUMN_MAJOR, ROW_MAJOR = 0, 1
# Those that need no multicast: the default, split and atomic over P2P, and one after the other.
ALGORITHMS = [0, 1, 3, 5]


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", c_byte * 128)]


class CublasMp:
    """The library, with a communicator of its own."""

    def __init__(self, path, rank, world):
        if nccl_version() < LEAST_NCCL:
            needed, found = (".".join(map(str, version)) for version in (LEAST_NCCL, nccl_version()))
            raise Unsupported(f"cuBLASMp needs NCCL {needed} or newer, and PyTorch has loaded {found}: put a newer "
                              "libnccl.so.2 beside libcublasmp.so.0")
        # PyTorch has loaded NCCL and cuBLAS; the library finds what it needs among what is loaded.
        nccl = ctypes.CDLL("libnccl.so.2")
        nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, UniqueId, c_int]
        try:
            self.api, self.world = ctypes.CDLL(path), world
        except OSError as reason:
            raise Unsupported(f"couldn't load cuBLASMp: {reason}") from None
        unique, communicator = UniqueId(), c_void_p()
        if rank == 0:
            check(nccl.ncclGetUniqueId(byref(unique)), "ncclGetUniqueId")
        shared = [bytes(unique)]
        dist.broadcast_object_list(shared)
        unique = UniqueId.from_buffer_copy(shared[0])
        check(nccl.ncclCommInitRank(byref(communicator), world, unique, rank), "ncclCommInitRank")
        self.handle, self.column, self.row = c_void_p(), c_void_p(), c_void_p()
        self.call("Create", byref(self.handle), c_void_p(torch.cuda.current_stream().cuda_stream))
        self.call("GridCreate", c_int64(world), c_int64(1), c_int(COLUMN_MAJOR), communicator, byref(self.column))
        self.call("GridCreate", c_int64(1), c_int64(world), c_int(ROW_MAJOR), communicator, byref(self.row))

    def call(self, name, *arguments):
        check(getattr(self.api, "cublasMp" + name)(*arguments), "cublasMp" + name)

    def version(self):
        version = c_int()
        self.call("GetVersion", byref(version))
        return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"

    def matrix(self, rows, columns, row_block, column_block, grid):
        """A column-major matrix in blocks; a rank's part is one block wide or high."""
        matrix = c_void_p()
        sizes = map(c_int64, [rows, columns, row_block, column_block, 0, 0, row_block])
        self.call("MatrixDescriptorCreate", *sizes, c_int(BF16), grid, byref(matrix))
        return matrix

    def registered(self, tensor):
        """A copy of a tensor in memory that the other ranks' copies reach without a detour; `close` frees it."""
        memory = c_void_p()
        self.call("Malloc", self.column, byref(memory), c_size_t(2 * tensor.numel()))
        words = dict(shape=tuple(tensor.shape), typestr="<i2", data=(memory.value, False), version=3)
        copy = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=words), device="cuda").view(torch.bfloat16)
        copy.copy_(tensor)
        copy.close = lambda: self.call("Free", self.column, memory)
        return copy

    def product(self, op, rank_shape, algorithm):
        """A function of a and b (as stored: tokens × k, features × k) that returns tokens × features of this rank.

        What is row-major to PyTorch is column-major and transposed to the library: features × tokens = bᵀ·a.
        """
        (tokens, n, k), world = rank_shape, self.world
        share = tokens // world
        if op == "all_gather_gemm":
            features = n * world
            b = self.matrix(k, features, k, n, self.row)
            a = self.matrix(k, tokens, k, share, self.row)
            d = self.matrix(features, tokens, n, share, self.column)
            rows, inner, grid = tokens, k, self.column
        else:
            whole = op == "gemm_all_reduce"
            features, block = n, tokens if whole else share
            b = self.matrix(k * world, n, k, n, self.column)
            a = self.matrix(k * world, tokens, k, block, self.column)
            d = self.matrix(n, tokens * world if whole else tokens, n, block, self.row)
            rows, inner, grid = block, k * world, self.row
        description = c_void_p()
        self.call("MatmulDescriptorCreate", byref(description), c_int(COMPUTE_F32))
        attributes = {TRANSA: TRANSPOSE, ALGORITHM: algorithm}
        if op != "all_gather_gemm":
            attributes[COMMUNICATION_TYPE] = BF16
        if op == "gemm_all_reduce":
            attributes[EPILOGUE] = ALL_REDUCE_EPILOGUE
        for name, value in attributes.items():
            self.call("MatmulDescriptorSetAttribute", description, c_int(name), byref(c_int(value)), c_size_t(4))

        one, zero, origin = c_float(1), c_float(0), (c_int64(1), c_int64(1))
        out = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)

        def arguments(left, right):
            sizes = map(c_int64, [features, tokens, inner])
            operands = [c_void_p(right.data_ptr()), *origin, b, c_void_p(left.data_ptr()), *origin, a]
            return [
                self.handle, description, *sizes, byref(one), *operands, byref(zero),
                None, *origin, None, c_void_p(out.data_ptr()), *origin, d,
            ]

        device_bytes, host_bytes, workspace = c_size_t(), c_size_t(), c_void_p()
        self.call("Matmul_bufferSize", *arguments(out, out), byref(device_bytes), byref(host_bytes))
        # Every rank must take part in this, whatever it needs. In memory of another grid than that of the result, it
        # would not overlap.
        self.call("Malloc", grid, byref(workspace), c_size_t(max(device_bytes.value, 1)))
        host = ctypes.create_string_buffer(max(host_bytes.value, 1))

        def run(left, right):
            self.call("Matmul", *arguments(left, right), workspace, device_bytes, host, host_bytes)
            return out

        run.close = lambda: self.call("Free", grid, workspace)
        return run


def check(status, name):
    if status != 0:
        raise Unsupported(f"{name} failed with status {status}")
