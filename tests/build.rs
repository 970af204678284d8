//! Compiles the tests' kernels to PTX.

fn main() {
    entwine_build::compile();
}
