//! Compiles the kernels to PTX.

fn main() {
    entwine_build::compile();
}
