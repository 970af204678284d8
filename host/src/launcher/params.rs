//! A launch's parameters, laid out as [`Params`](entwine_device::abi::Params).

use entwine_device::abi::{ChannelArg, Head, MatrixArg};

/// The parameters of one rank, word by word.
pub(crate) fn params(head: &Head, matrices: &[MatrixArg], channels: &[ChannelArg], scalars: &[u64]) -> Box<[u64]> {
    let bytes = size_of_val(head) + size_of_val(matrices) + size_of_val(channels) + size_of_val(scalars);
    let mut words = Vec::with_capacity(bytes / size_of::<u64>());
    push(&mut words, std::slice::from_ref(head));
    push(&mut words, matrices);
    push(&mut words, channels);
    words.extend(scalars);
    words.into()
}

/// Values, word by word.
pub(crate) fn words<T: Words>(values: &[T]) -> Vec<u64> {
    let mut words = Vec::new();
    push(&mut words, values);
    words
}

/// The types that parameters are made of: `repr(C)`, without padding, whole words long.
pub(crate) trait Words: Copy {}
impl Words for Head {}
impl Words for MatrixArg {}
impl Words for ChannelArg {}

fn push<T: Words>(words: &mut Vec<u64>, values: &[T]) {
    // SAFETY: `Words` have no padding, so all their bytes are initialised.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
    words.extend(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use entwine_device::abi::Params;

    #[test]
    fn the_layout_is_that_of_params() {
        // SAFETY: all-zero words are valid.
        let head = Head { rank: 3, deadline_ns: 7, dims: [1, 2, 3, 4, 5, 6, 7, 8], ..unsafe { std::mem::zeroed() } };
        let matrix = MatrixArg { data: 16, columns: 9, parts: 2, ..Default::default() };
        let channel = ChannelArg { slots: [1, 2, 3, 4], pull: 1, ..Default::default() };
        let words = params(&head, &[matrix, matrix], &[channel], &[42]);
        assert_eq!(words.len() * 8, size_of::<Params<2, 1, 1>>());
        // SAFETY: the words are laid out as `Params`, and aligned like it.
        let params = unsafe { &*words.as_ptr().cast::<Params<2, 1, 1>>() };
        assert_eq!((params.head.rank, params.head.deadline_ns, params.head.dims[5]), (3, 7, 6));
        assert_eq!((params.matrices[1].data, params.matrices[1].columns), (16, 9));
        assert_eq!((params.channels[0].slots, params.channels[0].pull), ([1, 2, 3, 4], 1));
        assert_eq!(params.scalars, [42]);
    }
}
