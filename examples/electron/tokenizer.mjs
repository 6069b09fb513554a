// Text to token ids: byte-level BPE with the vocabulary and the merges of a GGUF file, cut into words as SmolLM2 has it. What the
// example needs and no more: other models cut differently.

const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+/gu
/** Kinds of tokens in tokenizer.ggml.token_type: one that steers is written as it is. */
const CONTROL = 3

/** Bytes as the vocabulary writes them: what is not printable has a character from U+0100 on. */
const CHARACTERS = (() => {
  let next = 256
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255)
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++))
})()

export class Tokenizer {
  #ids = new Map()
  #ranks = new Map()
  #control

  /** @param {Record<string, any>} metadata of the file */
  constructor(metadata) {
    const tokens = metadata['tokenizer.ggml.tokens'] ?? []
    const kinds = metadata['tokenizer.ggml.token_type'] ?? []
    for (const [id, token] of tokens.entries()) this.#ids.set(token, id)
    for (const [rank, merge] of (metadata['tokenizer.ggml.merges'] ?? []).entries()) this.#ranks.set(merge, rank)
    const control = tokens.filter((_, id) => kinds[id] === CONTROL).map((token) => token.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    this.#control = new RegExp(`(${control.join('|') || '(?!)'})`)
  }

  /** Whether the vocabulary has a token of this spelling. */
  has(token) {
    return this.#ids.has(token)
  }

  /** Token ids of a text, in which control tokens may be spelt out. */
  encode(text) {
    return text.split(this.#control).flatMap((part, i) => {
      if (i % 2 === 1) return [this.#ids.get(part)]
      return (part.match(WORDS) ?? []).flatMap((word) => this.#word(word))
    })
  }

  #word(word) {
    let parts = Array.from(new TextEncoder().encode(word), (byte) => CHARACTERS[byte])
    for (;;) {
      let best = Infinity
      let at = -1
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.#ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity
        if (rank < best) [best, at] = [rank, i]
      }
      if (at < 0) break
      parts = [...parts.slice(0, at), parts[at] + parts[at + 1], ...parts.slice(at + 2)]
    }
    return parts.map((part) => this.#ids.get(part)).filter((id) => id !== undefined)
  }
}
