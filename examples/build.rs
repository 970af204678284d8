//! Compiles the examples' kernels to PTX.

fn main() {
    entwine_build::compile();
}
