//! Types whose scale is searched: the same blocks, bit for bit, as ggml makes. `data/make_search_fixture.py` made the fixture
//! from golden results and describes it.

use gguf::GgmlType;

#[test]
fn searched_blocks_are_those_of_ggml() {
    let mut rest: &[u8] = include_bytes!("data/search.bin");
    let mut take = |n: usize| {
        let (bytes, after) = rest.split_at(n);
        rest = after;
        bytes
    };
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    for expected_ty in
        [GgmlType::Q2K, GgmlType::Q3K, GgmlType::Q4K, GgmlType::Q5K, GgmlType::Q6K, GgmlType::Iq4Nl, GgmlType::Iq4Xs]
    {
        let ty = GgmlType::from_u32(word(take(4))).unwrap();
        assert_eq!(ty, expected_ty);
        let n = word(take(4)) as usize;
        assert!(n >= 4, "{ty}: {n} blocks");
        let values: Vec<f32> =
            take(4 * n * ty.block_len()).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let mut blocks = vec![0xaa; n * ty.block_bytes()];
        gguf::quantize(ty, &values, &mut blocks).unwrap();
        for (i, (made, expected)) in
            blocks.chunks(ty.block_bytes()).zip(take(n * ty.block_bytes()).chunks(ty.block_bytes())).enumerate()
        {
            assert_eq!(made, expected, "{ty}: block {i}");
        }
    }
    assert!(rest.is_empty());
}
