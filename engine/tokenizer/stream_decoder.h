// Streaming detokenisation: token ids in, text deltas out.
//
// Every delta is valid UTF-8 and the deltas, Flush's included, concatenate to Tokenizer::Decode of
// all ids pushed (for at_text_start = true). Bytes wait only while they may still become a whole
// character: three at the most.
//
// Threads: one at a time. The tokenizer must outlive the decoder.
#pragma once

#include <cstdint>
#include <string>

#include "engine/tokenizer/text/text_assembler.h"
#include "engine/tokenizer/tokenizer.h"

namespace skein::engine {

struct StreamOptions {
  // Special tokens yield no text.
  bool skip_special = true;
  // True where the ids are a whole text; the space that SentencePiece-style tokenizers put before a
  // text is then dropped. False where they continue a prompt, so that the space between prompt and
  // answer stays.
  bool at_text_start = true;
};

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, StreamOptions options = {});

  std::string Push(int32_t id);

  // What was held back, with U+FFFD for bytes that never became a character. The decoder then
  // begins a new text.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  StreamOptions options_;
  TextAssembler assembler_;
};

}  // namespace skein::engine
