// Text to token ids and back, from a Hugging Face folder's tokenizer.json and
// tokenizer_config.json.
//
// Models: BPE, byte-level (GPT-2, Llama-3, Qwen2, Qwen3) and SentencePiece style with byte fallback
// (Llama-2). Any other model, normalizer, pre-tokenizer, post-processor or decoder is refused at
// load, with the field and its value named. The pipeline is that of Hugging Face's `tokenizers`
// library: added tokens are cut out, the text between them is normalised, pre-tokenised and merged,
// and the post-processor puts special tokens around the result. The sections `truncation` and
// `padding` are not applied. An explicit `add_bos_token` / `add_eos_token` of tokenizer_config.json
// wins over the post-processor.
//
// Where this differs from that library, so that Decode(Encode(x)) == x holds and streams never
// wait:
//   * `clean_up_tokenization_spaces` is not applied;
//   * added tokens decode to their own text under a ByteLevel decoder, even if they are spelled in
//   its alphabet;
//   * a Metaspace decoder removes one leading space, not all of the first token's;
//   * an ill-formed run of byte-fallback tokens keeps its well-formed characters.
//
// Threads: const methods may be called from any number of threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

struct EncodeOptions {
  // Puts BOS, EOS and the like where the model's post-processor wants them.
  bool add_special_tokens = true;
  // Recognises special tokens spelled in the text. When false they are ordinary text; added tokens
  // that are not special (such as Qwen3's <tool_call>) are recognised always.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // Reads model_dir/tokenizer.json and, where present, tokenizer_config.json and
  // chat_template.jinja (which wins over the template in tokenizer_config.json). NOT_FOUND without
  // tokenizer.json, INVALID_ARGUMENT for malformed content, UNIMPLEMENTED for what is not
  // supported.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& model_dir);

  // The same from memory. An empty tokenizer_config_json stands for an absent file. Safe on hostile
  // input.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(
      std::string_view tokenizer_json, std::string_view tokenizer_config_json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Bytes of `text` that are not UTF-8 are read as U+FFFD.
  std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;

  // Encode(text) has no fewer tokens than this, whatever the options. Costs one look at each byte;
  // 0 where nothing can be said: for a tokenizer that drops parts of texts, or fuses unknown ones.
  int64_t LeastTokens(std::string_view text) const;

  // Always valid UTF-8. Ids without a token yield nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

  // The bytes that `id` adds in the middle of a text, not necessarily valid UTF-8; empty for an id
  // without a token.
  const std::string& TokenBytes(int32_t id) const;

  // The id of an added token's text, or of a vocabulary entry whose bytes are `text`.
  std::optional<int32_t> SpecialId(std::string_view text) const;
  bool IsSpecial(int32_t id) const;

  // One more than the largest id. A model's embedding may have more rows than this.
  int32_t vocab_size() const;

  // From tokenizer_config.json; absent where it says null or nothing, or names no token of this
  // vocabulary.
  const std::optional<std::string>& bos_token() const;
  const std::optional<std::string>& eos_token() const;
  const std::optional<std::string>& unk_token() const;
  const std::optional<std::string>& pad_token() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

  // Jinja source, verbatim; of a list of named templates the one called "default".
  const std::optional<std::string>& chat_template() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  static absl::StatusOr<std::unique_ptr<Parts>> Assemble(std::string_view tokenizer_json,
                                                         std::string_view tokenizer_config_json);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace skein::engine
