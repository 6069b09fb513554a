//! GGUF files, read as if every byte were hostile; block types and their scalar dequantisation
